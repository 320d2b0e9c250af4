"""How models are called and put together: containers, keywords, hooks, buffers, parametrisations, modes."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

import torch
from case import idiom
from torch import nn
from torch.nn.utils import parametrizations, parametrize

X = "x: float32[batch, 6]"
SPAN = {"batch": (1, 5)}


@idiom(X, "y: float32[batch, 6]", **SPAN)
class DictOut(nn.Module):
    def forward(self, x, y):
        return {"sum": x + y, "parts": {"x": x * 2, "y": [y, y.mean(1)]}}


@idiom("inputs.a: float32[batch, 6]", "inputs.b: float32[batch, 3]", **SPAN)
class DictIn(nn.Module):
    def forward(self, inputs):
        return inputs["a"].sum(1) + inputs["b"].prod(1)


@idiom("pair.0: float32[batch, 6]", "pair.1: float32[batch, 6]", **SPAN)
class TupleIn(nn.Module):
    def forward(self, pair):
        a, b = pair
        return a * b, (a, [b, a + b])


@dataclass
class Output:
    logits: torch.Tensor
    loss: torch.Tensor | None = None


@idiom(X, **SPAN)
class DataclassOut(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 2)

    def forward(self, x):
        return Output(self.fc(x))


class Pair(NamedTuple):
    mean: torch.Tensor
    spread: torch.Tensor


@idiom(X, **SPAN)
class NamedTupleOut(nn.Module):
    def forward(self, x):
        return Pair(x.mean(1), x.std(1))


@idiom(X, **SPAN)
class OrderedDictOut(nn.Module):
    def forward(self, x):
        return OrderedDict(first=x, second=x.t())


@idiom(X, "scale: float32[batch, 1]", **SPAN)
class KeywordOnly(nn.Module):
    def forward(self, x, *, scale=None):
        return x if scale is None else x * scale


@idiom(X, **SPAN)
class OptionalLeftOut(nn.Module):
    def forward(self, x, mask=None, flag: bool = True):
        if mask is not None:
            x = x * mask
        return x.relu() if flag else x


@idiom(X, "extra: float32[batch, 6]", **SPAN)
class KwargsForward(nn.Module):
    def forward(self, x, **kwargs):
        return x + kwargs["extra"]


@idiom(X, **SPAN)
class InputReturned(nn.Module):
    def forward(self, x):
        return x, x * 2, x


@idiom(X, "unused: float32[batch, 3]", **SPAN)
class UnusedInput(nn.Module):
    def forward(self, x, unused):
        return x + 1


@idiom(X, **SPAN)
class ConstantOut(nn.Module):
    def forward(self, x):
        return x.sum(1), torch.tensor([1.0, 2.0]), x.shape[0] * torch.ones(2)


@idiom(X, **SPAN)
class NoneAmongOutputs(nn.Module):
    def forward(self, x):
        return x + 1, None, [x * 2, None]


@idiom(X, **SPAN)
class TiedWeights(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


@idiom("ids: int64[batch, time] < 11", batch=(1, 4), time=(1, 8))
class TiedEmbedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 6)

    def forward(self, ids):
        return self.embed(ids) @ self.embed.weight.t()


@idiom(X, **SPAN)
class BufferUpdated(nn.Module):
    """A counter that is written during forward and does not reach the output."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += 1
        return x * 2


@idiom(X, **SPAN)
class AttributeLeftBehind(nn.Module):
    def forward(self, x):
        self.last = x.detach()
        return x.tanh()


@idiom("x: float32[batch, 4, 6]", training=True, **SPAN)
class DropoutInTraining(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop, self.norm = nn.Dropout(0.5), nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(self.drop(x))


@idiom(X, **SPAN)
class FunctionalDropoutOff(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.5, self.training) + 1


@idiom(X, **SPAN)
class WeightNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = parametrizations.weight_norm(nn.Linear(6, 4))

    def forward(self, x):
        return self.fc(x)


@idiom("x: float32[batch, 3, time]", batch=(1, 3), time=(3, 12))
class WeightNormConvOld(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.utils.weight_norm(nn.Conv1d(3, 4, 3))

    def forward(self, x):
        return self.conv(x)


@idiom(X, **SPAN)
class SpectralNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = parametrizations.spectral_norm(nn.Linear(6, 4))

    def forward(self, x):
        return self.fc(x)


@idiom(X, **SPAN)
class Orthogonal(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = parametrizations.orthogonal(nn.Linear(6, 6))

    def forward(self, x):
        return self.fc(x)


class Symmetric(nn.Module):
    def forward(self, weight):
        return weight.triu() + weight.triu(1).transpose(-1, -2)


@idiom(X, **SPAN)
class OwnParametrization(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)
        parametrize.register_parametrization(self.fc, "weight", Symmetric())

    def forward(self, x):
        return self.fc(x)


@idiom(X, **SPAN)
class ForwardHooks(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.fc.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
        self.fc.register_forward_hook(lambda module, args, output: output + args[0].mean())

    def forward(self, x):
        return self.fc(x)


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s + x * s * (1 - s))


@idiom(X, **SPAN)
class CustomAutograd(nn.Module):
    def forward(self, x):
        return Swish.apply(x)


@torch.library.custom_op("corpus::twice_plus", mutates_args=())
def twice_plus(x: torch.Tensor, shift: float) -> torch.Tensor:
    return x * 2 + shift


@twice_plus.register_fake
def _(x, shift):
    return torch.empty_like(x)


@idiom(X, impossible="an operator of the user's own has no translation; the user has to give one", **SPAN)
class CustomOperator(nn.Module):
    def forward(self, x):
        return twice_plus(x, 1.5)


@idiom(X, impossible="the answer is random: there is nothing to agree on", **SPAN)
class RandomNoise(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)


@idiom(X, **SPAN)
class GumbelAtZeroNoise(nn.Module):
    """Noise is drawn in training only."""

    def forward(self, x):
        noise = torch.rand_like(x) if self.training else torch.zeros_like(x)
        return (x + noise).softmax(-1)


@idiom("x: float32[batch, 5]", **SPAN)
class SparseMadeDense(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.eye(5).to_sparse()

    def forward(self, x):
        return x @ self.weight.to_dense()


@idiom(X, **SPAN)
class ScriptedInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.jit.script(nn.Sequential(nn.Linear(6, 6), nn.ReLU()))

    def forward(self, x):
        return self.inner(x)


@idiom(X, **SPAN)
class CheckpointedBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(self.fc, x, use_reentrant=False)


@idiom(X, **SPAN)
class NoGradAndDetach(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)

    @torch.no_grad()
    def forward(self, x):
        with torch.inference_mode(False):
            return self.fc(x).detach().clone()


@idiom(X, **SPAN)
class LambdaAttribute(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = lambda x: x * torch.sigmoid(1.7 * x)
        self.layers = nn.ModuleDict({"a": nn.Linear(6, 6), "b": nn.Linear(6, 6)})

    def forward(self, x):
        for name in ("a", "b"):
            x = self.act(self.layers[name](x))
        return x


@idiom("x: float32[batch, 3, 8, 8]", batch=(1, 4))
class LazyAndFlatten(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.LazyConv2d(4, 3), nn.Flatten(), nn.LazyLinear(5))
        self.net(torch.zeros(1, 3, 8, 8))

    def forward(self, x):
        return self.net(x)


@idiom("x: float32[batch, 4, time]", batch=(1, 3), time=(2, 12))
class NormsOfAllKinds(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([nn.BatchNorm1d(4), nn.InstanceNorm1d(4, affine=True), nn.GroupNorm(2, 4)])

    def forward(self, x):
        for norm in self.norms:
            x = norm(x)
        return nn.functional.local_response_norm(x, 3)


@idiom("x: float32[batch, 6]", batch=(1, 5))
class Activations(nn.Module):
    def __init__(self):
        super().__init__()
        self.prelu = nn.PReLU(6)

    def forward(self, x):
        f = nn.functional
        each = [
            f.gelu(x),
            f.gelu(x, approximate="tanh"),
            f.silu(x),
            f.mish(x),
            f.hardswish(x),
            f.softplus(x, 2.0),
            f.celu(x),
            f.selu(x),
            f.glu(x, -1),
            f.softsign(x),
            f.logsigmoid(x),
            f.hardtanh(x),
            self.prelu(x),
            f.softmin(x, -1),
            f.threshold(x, 0.1, 20.0),
            f.rrelu(x),
        ]
        return torch.cat(each, -1)


@idiom("positions: float32[batch, 6]", **SPAN)
class NameClash(nn.Module):
    """The output is called what an input is called."""

    def forward(self, positions):
        return {"positions": positions * 2}


@idiom("x: float32[batch, time, 4]", batch=(1, 3), time=(2, 9))
class NestedTensorMadeDense(nn.Module):
    def forward(self, x):
        rows = torch.nested.as_nested_tensor([x[0], x[0, :1]])
        return torch.nested.to_padded_tensor(rows, 0.0) + x[:1]


@idiom("x: float32[batch, 6]", **SPAN)
class StringlyTyped(nn.Module):
    def __init__(self):
        super().__init__()
        self.kind = "mean"

    def forward(self, x):
        return getattr(torch, self.kind)(x, dim=1)
