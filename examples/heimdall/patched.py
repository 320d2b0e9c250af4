"""`HeimdallNet._calibrate` without its loops, for those who would rather swap the method than rewrite it.

Every net sees every receiver, then the one asked for is picked: the same sums, so the same numbers to the
last bits, and a graph that depends neither on the ids nor on how many receivers there are. Ten small
nets where one would do is the price: 0.7 M multiplications per receiver, beside 38 M in the IQ encoder.
"""

import torch


def calibrate_all(self, x, receiver_ids):
    every = torch.stack([net(x) for net in self.calibration], dim=2)
    wanted = receiver_ids[:, :, None, None].expand(-1, -1, 1, x.shape[-1])
    return every.gather(2, wanted).squeeze(2)
