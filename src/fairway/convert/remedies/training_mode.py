"""A module left in training mode is captured in eval mode.

Dropout and batch norm behave differently in training, and a file is for inference. Exporters keep the mode
they find: torch.export writes dropout that is random at run time. The TorchScript exporter sets the root to
eval mode, and afterwards everything below it to the root's old mode, whatever each module had. Here every
module's own mode is noted, all are set to eval for the capture, and each gets its own back.

Only `training` is set, without calling `eval()`: a `train` of the user's own that does more has had its say
when it was called. Refuses where every module in training mode is one of torch's that computes the same in
both. There is no upstream issue: exporters promise no more.
"""

from __future__ import annotations

from contextlib import contextmanager

from torch import nn

from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy
from fairway.diagnostics import Where

MATTERS = (
    nn.modules.dropout._DropoutNd,
    nn.modules.batchnorm._NormBase,
    nn.RReLU,
    nn.RNNBase,
    nn.MultiheadAttention,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
)
"""torch's own layers that ask for the mode. Any other class may ask too, unless it is one of torch's."""


def asks_for_mode(module: nn.Module) -> bool:
    return isinstance(module, MATTERS) or not type(module).__module__.startswith("torch.nn.")


def detect(case: Case) -> Match | Refusal:
    training = [(name, m) for name, m in case.model.named_modules() if m.training]
    if not training:
        return Refusal("every module is in eval mode")
    asking = [name or type(m).__name__ for name, m in training if asks_for_mode(m)]
    if not asking:
        return Refusal("the modules in training mode compute the same in both modes")
    shown = ", ".join(asking[:3]) + (", …" if len(asking) > 3 else "")
    places = tuple(Where(module=name) for name in asking)
    return Match(f"captured in eval mode; in training mode were {shown}", places)


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    modes = [(module, module.training) for module in case.model.modules()]
    try:
        for module, _ in modes:
            module.training = False
        yield
    finally:
        for module, mode in modes:
            module.training = mode


REMEDY = Remedy(
    name="training_mode",
    cures="FW202",
    title="Captures in eval mode",
    stage="model",
    affected={"torch": ">=2.9"},
    upstream=(),
    safety="Eval mode is what the model computes in inference; it is judged against eager PyTorch in eval mode.",
    detect=detect,
    apply=apply,
)
