"""Modules that keep a state over time in their attributes: spiking layers, memories, streaming caches."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from case import idiom
from torch import nn

SEQUENCE = "x: float32[batch, time, 6]"
SPAN = {"batch": (1, 4), "time": (2, 14)}


class Leaky(nn.Module):
    """snnTorch's neuron with `init_hidden`: the reset is taken from the membrane of the step before."""

    def __init__(self, beta=0.9, threshold=0.5, reset_mechanism="subtract"):
        super().__init__()
        self.register_buffer("beta", torch.as_tensor(beta))
        self.register_buffer("threshold", torch.as_tensor(threshold))
        self.reset_mechanism = reset_mechanism
        self.init_leaky()

    def init_leaky(self):
        self.mem = torch.zeros(0)

    def mem_reset(self, mem):
        return (mem - self.threshold > 0).float().detach()

    def fire(self, mem):
        return (mem - self.threshold > 0).float()

    def forward(self, input_):
        if not self.mem.shape == input_.shape:
            self.mem = torch.zeros_like(input_)
        reset = self.mem_reset(self.mem)
        base = self.beta.clamp(0, 1) * self.mem + input_
        if self.reset_mechanism == "subtract":
            self.mem = base - reset * self.threshold
        else:
            self.mem = base - reset * base
        return self.fire(self.mem)


@idiom("x: float32[steps, batch, 6]", batch=(1, 4), steps=(2, 12))
class LeakyWithHiddenInside(nn.Module):
    """A network of snnTorch: `Sequential` with neurons that hold their membranes."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), Leaky(0.8), nn.Linear(8, 3), Leaky(0.7, 0.2, "zero"))

    def forward(self, x):
        for layer in self.net:
            if isinstance(layer, Leaky):
                layer.init_leaky()
        spk_rec = []
        for step in range(x.size(0)):
            spk_rec.append(self.net(x[step]))
        return torch.stack(spk_rec)


class IFNode(nn.Module):
    """spikingjelly's node in multi-step mode: charge, fire and reset are methods, and the potential is `self.v`."""

    def __init__(self, v_threshold=1.0, v_reset=0.0):
        super().__init__()
        self.v_threshold, self.v_reset = v_threshold, v_reset
        self.v = 0.0

    def v_float_to_tensor(self, x):
        if isinstance(self.v, float):
            v_init = self.v
            self.v = torch.full_like(x.data, v_init)

    def neuronal_charge(self, x):
        self.v = self.v + x

    def neuronal_fire(self):
        return (self.v - self.v_threshold >= 0).to(self.v)

    def neuronal_reset(self, spike):
        self.v = (1.0 - spike) * self.v + spike * self.v_reset

    def single_step_forward(self, x):
        self.v_float_to_tensor(x)
        self.neuronal_charge(x)
        spike = self.neuronal_fire()
        self.neuronal_reset(spike)
        return spike

    def forward(self, x_seq):
        self.v = 0.0
        y_seq = []
        for t in range(x_seq.shape[0]):
            y_seq.append(self.single_step_forward(x_seq[t]))
        return torch.stack(y_seq)


@idiom("x: float32[steps, batch, 6]", batch=(1, 4), steps=(2, 12))
class MultiStepNode(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.node, self.out = nn.Linear(6, 8), IFNode(), nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.node(self.fc(x))).mean(0)


@idiom("x: float32[batch, time, 6]", **SPAN)
class SynapticPair(nn.Module):
    """Two currents of each neuron handed on as plain values, with an adaptive threshold."""

    def __init__(self):
        super().__init__()
        self.fc, self.alpha, self.beta = nn.Linear(6, 5), 0.7, 0.9

    def step(self, current, syn, mem, thr):
        syn = self.alpha * syn + current
        mem = self.beta * mem + syn
        spk = (mem > thr).float()
        return spk, syn, mem - spk * thr, thr + 0.1 * (spk - 0.2)

    def forward(self, x):
        cur = self.fc(x)
        syn = mem = torch.zeros_like(cur[:, 0])
        thr = torch.ones_like(mem) * 0.3
        spikes = 0
        for t in range(cur.shape[1]):
            spk, syn, mem, thr = self.step(cur[:, t], syn, mem, thr)
            spikes = spikes + spk
        return spikes / cur.shape[1], mem


@idiom(SEQUENCE, **SPAN)
class HiddenAsAttribute(nn.Module):
    """Recurrent policies of reinforcement learning keep `self.hidden` and reset it at the start."""

    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.GRUCell(6, 8), nn.Linear(8, 2)
        self.hidden = None

    def reset_hidden(self, batch):
        self.hidden = torch.zeros(batch, 8)

    def forward(self, x):
        self.reset_hidden(x.size(0))
        logits = []
        for t in range(x.size(1)):
            self.hidden = self.cell(x[:, t], self.hidden)
            logits.append(self.head(self.hidden))
        return torch.stack(logits, dim=1), self.hidden


@idiom("x: float32[batch, time, 3]", **SPAN)
class DelayLine(nn.Module):
    """A buffer that is rolled and written into at each step."""

    def __init__(self):
        super().__init__()
        self.taps = nn.Parameter(torch.randn(4))

    def push(self, value):
        self.buffer = torch.roll(self.buffer, 1, dims=1)
        self.buffer[:, 0] = value

    def forward(self, x):
        self.buffer = x.new_zeros(x.size(0), 4, 3)
        out = []
        for t in range(x.size(1)):
            self.push(x[:, t])
            out.append((self.buffer * self.taps[None, :, None]).sum(1))
        return torch.stack(out, 1)


class Memory(nn.Module):
    """The memory of a neural Turing machine, addressed by content."""

    def __init__(self, n, m):
        super().__init__()
        self.n, self.m = n, m
        self.register_buffer("mem_bias", torch.linspace(-1, 1, n * m).view(n, m))

    def reset(self, batch_size):
        self.memory = self.mem_bias.clone().repeat(batch_size, 1, 1)

    def read(self, w):
        return torch.matmul(w.unsqueeze(1), self.memory).squeeze(1)

    def write(self, w, e, a):
        self.prev_mem = self.memory
        erase = torch.matmul(w.unsqueeze(-1), e.unsqueeze(1))
        add = torch.matmul(w.unsqueeze(-1), a.unsqueeze(1))
        self.memory = self.prev_mem * (1 - erase) + add

    def address(self, k, beta):
        return F.softmax(beta * F.cosine_similarity(self.memory + 1e-16, k.unsqueeze(1) + 1e-16, dim=-1), dim=1)


@idiom(SEQUENCE, **SPAN)
class TuringMemory(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory, self.controller = Memory(5, 4), nn.LSTMCell(6 + 4, 8)
        self.fc = nn.Linear(8, 4 + 1 + 4 + 4)

    def forward(self, x):
        batch = x.size(0)
        self.memory.reset(batch)
        h, c, r = x.new_zeros(batch, 8), x.new_zeros(batch, 8), x.new_zeros(batch, 4)
        outputs = []
        for i in range(x.size(1)):
            h, c = self.controller(torch.cat([x[:, i], r], dim=1), (h, c))
            k, beta, e, a = torch.split(self.fc(h), [4, 1, 4, 4], dim=1)
            w = self.memory.address(torch.tanh(k), F.softplus(beta))
            self.memory.write(w, torch.sigmoid(e), torch.tanh(a))
            r = self.memory.read(w)
            outputs.append(r)
        return torch.stack(outputs, dim=1)


class CachedConv(nn.Module):
    """A causal convolution that keeps its last frames between calls, as streaming encoders do."""

    def __init__(self, size, kernel):
        super().__init__()
        self.conv, self.kernel = nn.Conv1d(size, size, kernel), kernel

    def reset(self, x):
        self.cache = x.new_zeros(x.size(0), x.size(1), self.kernel - 1)

    def forward(self, x):
        x = torch.cat([self.cache, x], dim=-1)
        self.cache = x[..., 1:]
        return self.conv(x)


@idiom(SEQUENCE, **SPAN)
class StreamedFrames(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([CachedConv(6, 3), CachedConv(6, 2)])

    def forward(self, x):
        x = x.transpose(1, 2)
        for block in self.blocks:
            block.reset(x)
        frames = []
        for frame in x.split(1, dim=-1):
            for block in self.blocks:
                frame = F.relu(block(frame)) + frame
            frames.append(frame)
        return torch.cat(frames, dim=-1)


@idiom(SEQUENCE, **SPAN)
class RunningStatistics(nn.Module):
    """Welford's mean and variance in attributes; each frame is normalized by those so far."""

    def update(self, value):
        self.count += 1
        delta = value - self.mean
        self.mean = self.mean + delta / self.count
        self.m2 = self.m2 + delta * (value - self.mean)

    def forward(self, x):
        self.count, self.mean, self.m2 = 0, torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
        out = torch.empty_like(x)
        for t in range(x.size(1)):
            self.update(x[:, t])
            out[:, t] = (x[:, t] - self.mean) / torch.sqrt(self.m2 / self.count + 1e-2)
        return out


@idiom(SEQUENCE, **SPAN)
class FastWeights(nn.Module):
    """Ba's fast weights, in an attribute that decays and grows by outer products."""

    def __init__(self):
        super().__init__()
        self.inp, self.rec, self.norm = nn.Linear(6, 5), nn.Linear(5, 5), nn.LayerNorm(5)
        self.lam, self.eta = 0.9, 0.5

    def forward(self, x):
        self.A = torch.zeros(x.size(0), 5, 5)
        h = torch.zeros(x.size(0), 5)
        for t in range(x.size(1)):
            self.A = self.lam * self.A + self.eta * torch.einsum("bi,bj->bij", h, h)
            slow = self.inp(x[:, t]) + self.rec(h)
            h = torch.relu(self.norm(slow + torch.bmm(self.A, torch.tanh(slow).unsqueeze(-1)).squeeze(-1)))
        return h


@idiom(SEQUENCE, **SPAN)
class StateInDict(nn.Module):
    """A module-wide dict of incremental states, as fairseq's decoders have it."""

    def __init__(self):
        super().__init__()
        self.fc = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))

    def forward(self, x):
        state = {}
        out = []
        for t in range(x.size(1)):
            y = x[:, t]
            for i, fc in enumerate(self.fc):
                key = f"layer{i}"
                if key not in state:
                    state[key] = torch.zeros_like(y)
                state[key] = 0.5 * state[key] + fc(y)
                y = torch.tanh(state[key])
            out.append(y)
        return torch.stack(out, dim=1)


@idiom("x: float32[batch, time]", batch=(1, 4), time=(4, 20))
class EnvelopeFollower(nn.Module):
    """A compressor's detector: attack or release by comparison, sample by sample, in an attribute."""

    def __init__(self):
        super().__init__()
        self.attack, self.release = nn.Parameter(torch.tensor(0.3)), nn.Parameter(torch.tensor(0.9))

    def tick(self, level):
        coefficient = torch.where(level > self.env, self.attack, self.release)
        self.env = coefficient * self.env + (1 - coefficient) * level
        return self.env

    def forward(self, x):
        self.env = torch.zeros(x.shape[0])
        gains = [self.tick(x[:, n].abs()) for n in range(x.shape[1])]
        return x / (torch.stack(gains, dim=1) + 0.1)
