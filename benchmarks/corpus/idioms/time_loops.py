"""Loops with a state over time: neurons, filters, dynamic programs, decoders of a fixed number of steps."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from case import idiom
from torch import nn

SEQUENCE = "x: float32[batch, time, 6]"
SPAN = {"batch": (1, 4), "time": (2, 18)}


class Lif(nn.Module):
    """A spiking layer as snnTorch and spikingjelly have it: its membrane is an attribute, reset before each run."""

    def __init__(self, size, beta=0.8):
        super().__init__()
        self.fc, self.beta, self.threshold = nn.Linear(size, size), beta, 0.3
        self.reset()

    def reset(self):
        self.mem = 0.0

    def forward(self, current):
        self.mem = self.beta * self.mem + self.fc(current)
        spike = (self.mem >= self.threshold).to(current.dtype)
        self.mem = self.mem - spike * self.threshold
        return spike


@idiom(SEQUENCE, **SPAN)
class SpikingNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Lif(6), Lif(6, 0.5)])
        self.read = nn.Linear(6, 3)

    def forward(self, x):
        for layer in self.layers:
            layer.reset()
        record = []
        for step in range(x.size(1)):
            spikes = x[:, step]
            for layer in self.layers:
                spikes = layer(spikes)
            record.append(self.read(spikes))
        return torch.stack(record).mean(0)


@idiom(SEQUENCE, **SPAN)
class LayersOfHandCells(nn.Module):
    """States in a list, one pair per layer, written back in the loop."""

    def __init__(self):
        super().__init__()
        self.gates = nn.ModuleList(nn.Linear(6 + 6, 24) for _ in range(2))

    def init_states(self, x):
        return [(x.new_zeros(x.size(0), 6), x.new_zeros(x.size(0), 6)) for _ in self.gates]

    def forward(self, x, states=None):
        if states is None:
            states = self.init_states(x)
        outputs = []
        for t in range(x.size(1)):
            y = x[:, t]
            for i, gate in enumerate(self.gates):
                h, c = states[i]
                a, f, o, g = gate(torch.cat((y, h), dim=1)).chunk(4, dim=1)
                c = torch.sigmoid(f) * c + torch.sigmoid(a) * torch.tanh(g)
                h = torch.sigmoid(o) * torch.tanh(c)
                states[i] = (h, c)
                y = h
            outputs.append(y)
        return torch.stack(outputs, dim=1), states[-1][0]


@idiom(SEQUENCE, **SPAN)
class ExponentialAverage(nn.Module):
    """Per-channel energy normalisation, as LEAF and pcen-pytorch smooth it."""

    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(torch.full((6,), 0.04))

    def forward(self, x):
        energy = x.abs() + 1e-3
        smooth = torch.clamp(self.weights, 0.0, 1.0)
        state = energy[:, 0]
        means = [state]
        for t in range(1, energy.shape[1]):
            state = smooth * energy[:, t] + (1 - smooth) * state
            means.append(state)
        smoothed = torch.stack(means, 1)
        return (energy / (smoothed + 1e-2) ** 0.96 + 2) ** 0.5 - 2**0.5


@idiom("x: float32[batch, time]", batch=(1, 4), time=(3, 24))
class BiquadCascade(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("b", torch.tensor([[0.2, 0.4, 0.2], [0.3, 0.1, 0.05]]))
        self.register_buffer("a", torch.tensor([[1.0, -0.5, 0.2], [1.0, 0.3, 0.1]]))

    def filtered(self, x, b, a):
        x1 = x2 = y1 = y2 = torch.zeros(x.shape[0], device=x.device)
        y = torch.empty_like(x)
        for n in range(x.shape[-1]):
            x0 = x[:, n]
            y0 = b[0] * x0 + b[1] * x1 + b[2] * x2 - a[1] * y1 - a[2] * y2
            y[:, n] = y0
            x2, x1, y2, y1 = x1, x0, y1, y0
        return y

    def forward(self, x):
        for section in range(self.b.shape[0]):
            x = self.filtered(x, self.b[section], self.a[section])
        return x


@idiom("emissions: float32[batch, time, 5]", "mask: bool[batch, time] = keep-right-padded", batch=(1, 3), time=(2, 12))
class ViterbiDecode(nn.Module):
    """pytorch-crf's decoder on whole tensors: back pointers are kept, then followed from the end."""

    def __init__(self):
        super().__init__()
        self.start, self.end = nn.Parameter(torch.randn(5)), nn.Parameter(torch.randn(5))
        self.transitions = nn.Parameter(torch.randn(5, 5))

    def forward(self, emissions, mask):
        emissions, mask = emissions.transpose(0, 1), mask.transpose(0, 1)
        score = self.start + emissions[0]
        history = []
        for i in range(1, emissions.shape[0]):
            following = score.unsqueeze(2) + self.transitions + emissions[i].unsqueeze(1)
            following, indices = following.max(dim=1)
            score = torch.where(mask[i].unsqueeze(1), following, score)
            history.append(torch.where(mask[i].unsqueeze(1), indices, torch.arange(5).unsqueeze(0)))
        best_score, best = (score + self.end).max(dim=1)
        tags = [best]
        for pointers in reversed(history):
            best = pointers.gather(1, best.unsqueeze(1)).squeeze(1)
            tags.append(best)
        tags.reverse()
        return torch.stack(tags, dim=1), best_score


@idiom("x: float32[batch, n, 3]", "y: float32[batch, m, 3]", batch=(1, 3), n=(1, 7), m=(1, 7))
class DynamicTimeWarping(nn.Module):
    def forward(self, x, y):
        cost = torch.cdist(x, y)
        table = torch.full((x.shape[0], x.shape[1] + 1, y.shape[1] + 1), 1e6)
        table[:, 0, 0] = 0
        for i in range(1, x.shape[1] + 1):
            for j in range(1, y.shape[1] + 1):
                before = torch.stack([table[:, i - 1, j], table[:, i, j - 1], table[:, i - 1, j - 1]], -1)
                table[:, i, j] = cost[:, i - 1, j - 1] + before.min(-1).values
        return table[:, -1, -1]


@idiom("x: float32[batch, 6]", batch=(1, 4))
class BeamSearchFixed(nn.Module):
    """Four steps of three beams; the beams of a row are reordered at each."""

    def __init__(self):
        super().__init__()
        self.embed, self.cell, self.out = nn.Embedding(9, 6), nn.GRUCell(6, 6), nn.Linear(6, 9)

    def forward(self, x):
        batch, beams = x.shape[0], 3
        state = x.repeat_interleave(beams, 0)
        tokens = torch.zeros(batch * beams, 1, dtype=torch.long)
        scores = torch.full((batch, beams), -1e9)
        scores[:, 0] = 0
        offset = torch.arange(batch).unsqueeze(1) * beams
        for _ in range(4):
            state = self.cell(self.embed(tokens[:, -1]), state)
            logp = self.out(state).log_softmax(-1).view(batch, beams, -1)
            scores, index = (scores.unsqueeze(-1) + logp).flatten(1).topk(beams)
            parent = (offset + index // 9).flatten()
            tokens = torch.cat([tokens[parent], (index % 9).view(-1, 1)], 1)
            state = state[parent]
        return tokens.view(batch, beams, -1)[:, 0], scores[:, 0]


@idiom("memory: float32[batch, source, 8]", batch=(1, 3), source=(1, 9))
class GreedyTransformerFixed(nn.Module):
    """Every step runs the decoder over all tokens so far, as handwriting and captioning code does."""

    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(11, 8), nn.Linear(8, 11)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), 1)

    def forward(self, memory):
        ids = torch.ones(memory.size(0), 1, dtype=torch.long, device=memory.device)
        for _ in range(5):
            mask = nn.Transformer.generate_square_subsequent_mask(ids.size(1))
            hidden = self.decoder(self.embed(ids), memory, tgt_mask=mask)
            ids = torch.cat([ids, self.out(hidden[:, -1]).argmax(-1, keepdim=True)], dim=1)
        return ids[:, 1:]


@idiom("z: float32[batch, time, 2]", **SPAN)
class KalmanFilter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("F", torch.eye(4) + torch.diag(torch.full((2,), 0.1), 2))
        self.register_buffer("H", torch.eye(2, 4))
        self.q, self.r = nn.Parameter(torch.tensor(0.01)), nn.Parameter(torch.tensor(0.1))

    def forward(self, z):
        mean = z.new_zeros(z.size(0), 4, 1)
        cov = torch.eye(4).expand(z.size(0), 4, 4)
        track = []
        for t in range(z.size(1)):
            mean, cov = self.F @ mean, self.F @ cov @ self.F.T + self.q * torch.eye(4)
            s = self.H @ cov @ self.H.T + self.r * torch.eye(2)
            gain = torch.linalg.solve(s, self.H @ cov).transpose(1, 2)
            mean = mean + gain @ (z[:, t].unsqueeze(-1) - self.H @ mean)
            cov = (torch.eye(4) - gain @ self.H) @ cov
            track.append(mean.squeeze(-1))
        return torch.stack(track, 1), cov


@idiom("u: float32[batch, time, 3]", **SPAN)
class EchoStateReservoir(nn.Module):
    """A reservoir whose first steps are thrown away."""

    def __init__(self):
        super().__init__()
        recurrent = torch.randn(8, 8)
        self.register_buffer("w", 0.9 * recurrent / torch.linalg.eigvals(recurrent).abs().max())
        self.register_buffer("w_in", torch.rand(8, 3) - 0.5)
        self.read, self.leak = nn.Linear(8, 2), 0.3

    def forward(self, u, washout: int = 1):
        state = torch.zeros(u.shape[0], self.w.shape[0])
        states = []
        for t, inp in enumerate(u.unbind(dim=1)):
            state = (1 - self.leak) * state + self.leak * torch.tanh(inp @ self.w_in.T + state @ self.w.T)
            if t >= washout:
                states.append(state)
        return self.read(torch.stack(states, dim=1))


@idiom("k: float32[batch, time, 6]", "v: float32[batch, time, 6]", **SPAN)
class RwkvRecurrence(nn.Module):
    """RWKV's weighted average with its running maximum."""

    def __init__(self):
        super().__init__()
        self.decay, self.first = nn.Parameter(torch.randn(6)), nn.Parameter(torch.randn(6))

    def forward(self, k, v):
        num = den = torch.zeros_like(k[:, 0])
        top = torch.full_like(num, -1e38)
        w, out = -torch.exp(self.decay), torch.empty_like(v)
        for t in range(k.shape[1]):
            kk, vv = k[:, t].float(), v[:, t]
            q = torch.maximum(top, self.first + kk)
            e1, e2 = torch.exp(top - q), torch.exp(self.first + kk - q)
            out[:, t] = (e1 * num + e2 * vv) / (e1 * den + e2)
            q = torch.maximum(top + w, kk)
            e1, e2 = torch.exp(top + w - q), torch.exp(kk - q)
            num, den, top = e1 * num + e2 * vv, e1 * den + e2, q
        return out


@idiom(SEQUENCE, **SPAN)
class StreamingConvBuffer(nn.Module):
    """A causal convolution frame by frame, its last frames kept in a buffer that is shifted."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(6, 4, 3)

    def step(self, frame, buffer):
        buffer = torch.roll(buffer, -1, dims=-1)
        buffer[:, :, -1] = frame
        return self.conv(buffer).squeeze(-1), buffer

    def forward(self, x):
        buffer = torch.zeros(x.size(0), 6, 3)
        frames = []
        for t in range(x.size(1)):
            y, buffer = self.step(x[:, t], buffer)
            frames.append(F.relu(y))
        return torch.stack(frames, -1)


@idiom("y0: float32[batch, 3]", "times: float32[steps] in 0..1", batch=(1, 4), steps=(2, 9))
class RungeKuttaGiven(nn.Module):
    """The fourth-order method of torchdiffeq's fixed grid, over the times given."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))

    def field(self, t, y):
        return self.net(torch.cat([y, t.expand(y.shape[0], 1)], 1))

    def forward(self, y0, times):
        y, solution = y0, [y0]
        for t0, t1 in zip(times[:-1], times[1:]):
            dt = t1 - t0
            k1 = self.field(t0, y)
            k2 = self.field(t0 + dt / 2, y + dt * k1 / 2)
            k3 = self.field(t0 + dt / 2, y + dt * k2 / 2)
            k4 = self.field(t1, y + dt * k3)
            y = y + dt * (k1 + 2 * k2 + 2 * k3 + k4) / 6
            solution.append(y)
        return torch.stack(solution)


@idiom("source: float32[batch, n, 6]", "target: int64[batch, m] < 9", batch=(1, 3), n=(1, 9), m=(1, 7))
class AttentionDecoder(nn.Module):
    """Teacher forcing with additive attention and its coverage."""

    def __init__(self):
        super().__init__()
        self.embed, self.cell, self.out = nn.Embedding(9, 6), nn.LSTMCell(12, 6), nn.Linear(6, 9)
        self.query, self.key, self.score = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 1)

    def forward(self, source, target):
        hidden = source.mean(1)
        cell, context = torch.zeros_like(hidden), torch.zeros_like(hidden)
        coverage = torch.zeros(source.shape[:2])
        keys, logits, weights = self.key(source), [], []
        for t in range(target.size(1)):
            hidden, cell = self.cell(torch.cat([self.embed(target[:, t]), context], -1), (hidden, cell))
            energy = self.score(torch.tanh(keys + self.query(hidden).unsqueeze(1))).squeeze(-1) - coverage
            weight = energy.softmax(-1)
            context = torch.bmm(weight.unsqueeze(1), source).squeeze(1)
            coverage = coverage + weight
            logits.append(self.out(hidden))
            weights.append(weight)
        return torch.stack(logits, 1), torch.stack(weights, 1)
