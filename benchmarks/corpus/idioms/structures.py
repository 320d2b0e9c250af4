"""Modules inside modules, functions of functions, outputs of many kinds, arguments in many ways."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.nn.functional as F
from case import idiom
from torch import nn
from torch.nn.utils import parametrizations, parametrize

ROWS = "x: float32[batch, 6]"
FEW = {"batch": (1, 5)}
SEQUENCE = "x: float32[batch, time, 8]"
SPAN = {"batch": (1, 4), "time": (1, 14)}


class Gate(nn.Module):
    """Compiled by TorchScript with a loop and a branch of its own."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, steps: int) -> torch.Tensor:
        for i in range(steps):
            y = torch.tanh(self.fc(x))
            if i % 2 == 0:
                x = x + y
            else:
                x = x - 0.5 * y
        return x


@idiom(SEQUENCE, **SPAN)
class ScriptedWithControlFlow(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.head = torch.jit.script(Gate()), nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.gate(x, 3))


class RoundStraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, levels):
        ctx.levels = levels
        low, high = -(levels // 2), levels // 2 - 1
        q = torch.clamp(torch.round(x / scale), low, high)
        ctx.save_for_backward((x / scale >= low) & (x / scale <= high))
        return q * scale, q.to(torch.int8)

    @staticmethod
    def backward(ctx, grad, _):
        (inside,) = ctx.saved_tensors
        return grad * inside, None, None


@idiom(ROWS, **FEW)
class QuantiserByFunction(nn.Module):
    """A function with two outputs and a number among its arguments."""

    def __init__(self):
        super().__init__()
        self.fc, self.scale = nn.Linear(6, 6), nn.Parameter(torch.tensor(0.05))

    def forward(self, x):
        y, codes = RoundStraightThrough.apply(self.fc(x), self.scale.abs(), 16)
        return y, codes


@torch.jit.ignore
def checked(x: torch.Tensor) -> torch.Tensor:
    if x.dim() != 3:
        raise ValueError(f"three dims, not {x.dim()}")
    return x


@idiom(SEQUENCE, **SPAN)
class IgnoredByScript(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)

    @torch.jit.unused
    def statistics(self, x):
        return {"mean": x.mean().item(), "max": float(x.max())}

    def forward(self, x):
        if self.training and not torch.jit.is_scripting():
            self.last = self.statistics(x)
        return F.silu(self.fc(checked(x)))


@idiom(SEQUENCE, **SPAN)
class CausalIfLonger(nn.Module):
    """`is_causal` from the size, as transformers' attention decides it."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x, mask=None):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, 2, 4).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        is_causal = t > 1 and mask is None
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.0, is_causal=is_causal)
        return self.out(y.transpose(1, 2).reshape(b, t, -1))


@dataclass
class Box:
    corners: torch.Tensor
    score: torch.Tensor


@dataclass
class Detections:
    boxes: Box
    logits: torch.Tensor
    hidden: tuple[torch.Tensor, ...] = ()
    extra: dict[str, torch.Tensor] = field(default_factory=dict)


@idiom(SEQUENCE, **SPAN)
class NestedDataclasses(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.box = nn.ModuleList(nn.Linear(8, 8) for _ in range(3)), nn.Linear(8, 5)

    def forward(self, x, output_hidden_states: bool = True):
        hidden = ()
        for layer in self.layers:
            hidden = hidden + (x,) if output_hidden_states else hidden
            x = F.gelu(layer(x))
        box = self.box(x)
        return Detections(Box(box[..., :4].sigmoid(), box[..., 4]), x.mean(1), hidden, {"norm": x.norm(dim=-1)})


class State(NamedTuple):
    h: torch.Tensor
    steps: torch.Tensor


@idiom(ROWS, "state.0: float32[batch, 6]", "state.1: int64[batch] in 0..5", **FEW)
class StateInAndOut(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(6, 6)

    def forward(self, x, state):
        state = State(*state)
        h = torch.where((state.steps < 3).unsqueeze(1), self.cell(x, state.h), state.h)
        return h.sum(1), state._replace(h=h, steps=state.steps + 1)


@idiom("image: float32[batch, 6]", "text: float32[batch, 4]", **FEW)
class TowersByName(nn.Module):
    """Keyword arguments only, each sent to the module of its name."""

    def __init__(self):
        super().__init__()
        self.towers = nn.ModuleDict({"text": nn.Linear(4, 3), "image": nn.Linear(6, 3), "audio": nn.Linear(5, 3)})
        self.fuse = {"sum": lambda xs: sum(xs), "max": lambda xs: torch.stack(xs).amax(0)}

    def forward(self, *, image=None, text=None, audio=None, how="sum"):
        given = {"image": image, "text": text, "audio": audio}
        features = {name: self.towers[name](x) for name, x in given.items() if x is not None}
        fused = self.fuse[how](list(features.values()))
        return {**{f"{name}_features": F.normalize(y, dim=-1) for name, y in features.items()}, "fused": fused}


@idiom(SEQUENCE, "bias: float32[batch, time]", **SPAN)
class GeneratorsAndZip(nn.Module):
    """A generator of layers, zip, enumerate and reversed over tensors and modules."""

    def __init__(self):
        super().__init__()
        self.down, self.up = (
            nn.ModuleList([nn.Linear(8, 4), nn.Linear(4, 2)]),
            nn.ModuleList([nn.Linear(2, 4), nn.Linear(4, 8)]),
        )

    def features(self, x) -> Iterator[torch.Tensor]:
        for i, layer in enumerate(self.down):
            yield x
            x = torch.relu(layer(x)) * (i + 1)
        yield x

    def forward(self, x, bias):
        *skips, y = self.features(x)
        for layer, skip in zip(self.up, reversed(skips), strict=True):
            y = layer(y) + skip
        first, second = torch.chunk(y, 2, dim=-1)
        return torch.cat([t * w for t, w in zip((first, second), (bias.unsqueeze(-1), 1 - bias.unsqueeze(-1)))], -1)


@idiom("x: float32[batch, 5, 6]", batch=(1, 4))
class ModulePerStep(nn.Module):
    """Each of five fields has its own layers, in list comprehensions."""

    def __init__(self):
        super().__init__()
        self.embed = nn.ModuleList([nn.Linear(6, 3 + i % 2) for i in range(5)])
        self.gates = nn.ParameterList([nn.Parameter(torch.randn(())) for _ in range(5)])

    def forward(self, x):
        fields = [layer(x[:, i]) * gate for i, (layer, gate) in enumerate(zip(self.embed, self.gates))]
        pairs = [(fields[i][:, :3] * fields[j][:, :3]).sum(-1) for i in range(5) for j in range(i + 1, 5)]
        return torch.cat(fields, dim=-1), torch.stack(pairs, dim=1)


@idiom("x: float32[batch, 4, h, w]", batch=(1, 3), h=(3, 9), w=(3, 9))
class SlicesInPlace(nn.Module):
    """TSM's shift of channels and a frame drawn around, all by writes into slices."""

    def forward(self, x):
        out = torch.zeros_like(x)
        out[:, :1, :-1] = x[:, :1, 1:]
        out[:, 1:2, 1:] = x[:, 1:2, :-1]
        out[:, 2:] = x[:, 2:]
        out[..., 0, :] = out[..., -1, :] = 0.5
        out[:, 3, 1:-1, 1:-1] *= 2.0
        out[:, [0, 2], :, 0] -= x[:, [0, 2], :, -1]
        return out


@idiom("x: float32[batch, time, 3]", batch=(1, 3), time=(1, 8))
class VmapOverRows(nn.Module):
    """A function of one row and one frame, mapped over both, a parameter shared."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))

    def forward(self, x):
        def one(frame):
            return torch.tanh(self.weight @ frame) + frame.max()

        return torch.vmap(torch.vmap(one))(x), torch.vmap(lambda row: row.T @ row)(x)


@idiom(ROWS, **FEW)
class EnsembleByFunctionalCall(nn.Module):
    """Three networks' weights stacked, and one call of their skeleton for all."""

    def __init__(self):
        super().__init__()
        nets = [nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2)) for _ in range(3)]
        params, _ = torch.func.stack_module_state(nets)
        self.stacked = nn.ParameterDict({k.replace(".", "_"): nn.Parameter(v.detach()) for k, v in params.items()})
        self.skeleton = [nets[0].to("meta")]

    def forward(self, x):
        params = {key.replace("_", "."): value for key, value in self.stacked.items()}
        return torch.vmap(lambda p: torch.func.functional_call(self.skeleton[0], p, (x,)))(params).mean(0)


@idiom("position: float32[batch, n, 3]", batch=(1, 3), n=(2, 6))
class ForcesByGradient(nn.Module):
    """Interatomic potentials: forces are the energy's gradient, taken within forward."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 6), nn.SiLU(), nn.Linear(6, 1))

    def forward(self, position):
        with torch.enable_grad():
            position = position.detach().requires_grad_(True)
            offset = position.unsqueeze(1) - position.unsqueeze(2)
            distance = (offset.pow(2).sum(-1) + 1e-2).sqrt()
            energy = self.net(torch.exp(-distance).unsqueeze(-1)).sum((1, 2, 3))
            (gradient,) = torch.autograd.grad(energy.sum(), position)
        return energy.detach(), -gradient.detach()


class Positive(nn.Module):
    def forward(self, weight):
        return F.softplus(weight)

    def right_inverse(self, weight):
        return torch.log(torch.expm1(weight.abs() + 1e-3))


@idiom("x: float32[batch, 4, time]", batch=(1, 3), time=(4, 14))
class ParametrizedConvs(nn.Module):
    """Convolutions kept positive, of weight norm, and of spectral norm, in one stack."""

    def __init__(self):
        super().__init__()
        self.positive = parametrize.register_parametrization(nn.Conv1d(4, 4, 3), "weight", Positive())
        self.normed = parametrizations.weight_norm(nn.ConvTranspose1d(4, 4, 3), dim=1)
        self.spectral = parametrizations.spectral_norm(nn.Conv1d(4, 2, 1))

    def forward(self, x):
        with parametrize.cached():
            y = F.leaky_relu(self.normed(F.leaky_relu(self.positive(x), 0.1)), 0.1)
            return self.spectral(y) + self.spectral(x)


@idiom(SEQUENCE, "image: float32[batch, 3, 4, 4]", batch=(1, 3), time=(1, 6))
class OptionalParts(nn.Module):
    """Arguments that may be missing, forwarded by `**kwargs` through two levels."""

    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.see = nn.Linear(8, 8), nn.Conv2d(3, 8, 4)

        def forward(self, x, *, mask=None, image=None, past=None, **unused):
            y = self.fc(x)
            y = y if mask is None else y * mask
            y = y if image is None else torch.cat([self.see(image).flatten(2).transpose(1, 2), y], dim=1)
            return y, None if past is None else past + 1

    def __init__(self):
        super().__init__()
        self.inner = self.Inner()

    def forward(self, x, image=None, mask=None, **kwargs):
        y, past = self.inner(x, **{"image": image, "mask": mask, "return_dict": True, **kwargs})
        return {"last_hidden_state": y, "past": past} if past is not None else {"last_hidden_state": y}
