"""CodeNet with the team's cure, which changes nothing, and with the loop rewritten, which does."""

from dataclasses import replace

import torch
from model import CodeNet, CodeNetExplicitH0
from recipe import airimu


def spread_by_gather(self, to_update, feat, frame_len):
    """Compute the result of the loop at once: sample j takes feature (j + 4) // 9, or the last one there is."""
    sample = torch.arange(to_update.shape[1], device=feat.device)
    index = ((sample + self.inter_head) // self.interval).clamp(max=feat.shape[1] - 1)
    return to_update + feat[:, index, :]


explicit_h0 = replace(airimu, model=lambda: CodeNetExplicitH0().eval())
by_hand = replace(airimu, patches={CodeNet.spread: spread_by_gather})
