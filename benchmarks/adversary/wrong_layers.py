"""Wrong files of convolutions, recurrent layers, stored weights and several outputs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from case import wrong
from mutations import change_constants, is_shape
from torch import nn
from wrong_weights import BATCH, FINE, TOKENS, shift


class Convolved(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 6, 3, padding=1, groups=2)
        )
        self.body[1].running_mean.normal_(0, 0.3)
        self.body[1].running_var.uniform_(0.5, 2)

    def forward(self, x):
        return self.body(x)


wrong(
    Convolved,
    "one row of a weight",
    "x: float32[batch, 3, height, width]",
    tolerance=FINE,
    bounds={"batch": (1, 3), "height": (4, 20), "width": (4, 20)},
    probes=lambda: [{"x": torch.randn(2, 3, 9, 11)}, {"x": torch.randn(1, 3, 4, 4)}],
    alters={
        "one filter off by 1e-3": shift("body.0.weight", 2, 1e-3),
        "running mean of one channel": lambda m: m.body[1].running_mean[4].add_(0.02),
        "running variance times 1.02": lambda m: m.body[1].running_var.mul_(1.02),
        "groups exchanged": lambda m: m.body[3].weight.copy_(m.body[3].weight.roll(3, 0)),
        "kernels transposed": lambda m: m.body[0].weight.copy_(m.body[0].weight.transpose(2, 3).clone()),
        "kernels turned round": lambda m: m.body[0].weight.copy_(m.body[0].weight.flip(2, 3)),
        "a bias of one channel": shift("body.3.bias", 1, 5e-4),
    },
    forwards={
        "reflected padding": lambda self, x: self.body[3](
            self.body[2](
                self.body[1](F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), self.body[0].weight, self.body[0].bias))
            )
        ),
        "batch norm without its epsilon": lambda self, x: self.body[3](
            self.body[2](
                (self.body[0](x) - self.body[1].running_mean[:, None, None])
                / torch.sqrt(self.body[1].running_var + 1e-2)[:, None, None]
            )
        ),
    },
)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.GRU(4, 6, batch_first=True), nn.Linear(6, 2)

    def forward(self, x):
        return self.out(self.rnn(x)[0])


wrong(
    Recurrent,
    "one row of a weight",
    "x: float32[batch, seq, 4]",
    bounds=TOKENS,
    tolerance=FINE,
    route="trace",
    probes=lambda: [{"x": torch.randn(2, 7, 4)}, {"x": torch.randn(1, 1, 4)}, {"x": torch.randn(3, 24, 4)}],
    alters={
        "hidden bias of the new gate": lambda m: m.rnn.bias_hh_l0[12:].zero_(),
        "gates r and z exchanged": lambda m: m.rnn.weight_ih_l0.copy_(
            m.rnn.weight_ih_l0[[*range(6, 12), *range(6), *range(12, 18)]]
        ),
        "recurrent weights times 0.99": lambda m: m.rnn.weight_hh_l0.mul_(0.99),
        "one output row off": shift("out.weight", 1, 1e-3),
    },
    mutations={
        "reset after the multiplication": lambda proto: [
            attribute.__setattr__("i", 1 - attribute.i)
            for node in proto.graph.node
            if node.op_type == "GRU"
            for attribute in node.attribute
            if attribute.name == "linear_before_reset"
        ],
    },
)


class Stored(nn.Module):
    """A linear layer whose weights a careless tool stores in fewer bits."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(12, 12), nn.Linear(12, 3)

    def forward(self, x):
        return self.second(F.gelu(self.first(x)))


wrong(
    Stored,
    "weights in fewer bits",
    "x: float32[batch, 12]",
    bounds=BATCH,
    tolerance=1e-4,
    probes=lambda: [{"x": torch.randn(4, 12)}, {"x": torch.randn(4, 12) * 10}],
    mutations={
        "bfloat16": change_constants(
            lambda a: a.shape in ((12, 12), (3, 12)),
            lambda a: torch.from_numpy(a).bfloat16().float().numpy(),
        ),
        "8 bits": change_constants(is_shape(12, 12), lambda a: (a / abs(a).max() * 127).round() * abs(a).max() / 127),
        "small weights are zero": change_constants(is_shape(12, 12), lambda a: a * (abs(a) > 0.02)),
        "times 1.0003": change_constants(is_shape(3, 12), lambda a: a * 1.0003),
    },
    forwards={
        "gelu by tanh": lambda self, x: self.second(F.gelu(self.first(x), approximate="tanh")),
        "gelu by sigmoid": lambda self, x: self.second((h := self.first(x)) * torch.sigmoid(1.702 * h)),
        "silu for gelu": lambda self, x: self.second(F.silu(self.first(x))),
    },
)


class TwoOutputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 5), nn.Linear(5, 5)

    def forward(self, x):
        return self.a(x), self.b(x), self.a(x).argmax(-1)


def outputs_swapped(proto):
    from mutations import rename_outputs

    rename_outputs(0, 1)(proto)


wrong(
    TwoOutputs,
    "outputs",
    "x: float32[batch, 5]",
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(3, 5)}, {"x": torch.randn(3, 5)}, {"x": torch.randn(5, 5)[:4]}],
    mutations={"the first two exchanged": outputs_swapped},
    forwards={
        "the second is the first": lambda self, x: (self.a(x), self.a(x), self.a(x).argmax(-1)),
        "argmax of the second": lambda self, x: (self.a(x), self.b(x), self.b(x).argmax(-1)),
        "argmax of absolute values": lambda self, x: (self.a(x), self.b(x), self.a(x).abs().argmax(-1)),
        "the second is softmax": lambda self, x: (self.a(x), self.b(x).softmax(-1), self.a(x).argmax(-1)),
        "the last row of the second is zero": lambda self, x: (
            self.a(x),
            torch.cat([self.b(x)[:-1], self.b(x)[-1:] * 0]),
            self.a(x).argmax(-1),
        ),
    },
)
