"""Loops that end on a value: stop tokens, tolerances, halting, a return from within."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from case import idiom
from torch import nn

ROWS = "x: float32[batch, 6]"
FEW = {"batch": (1, 4)}


@idiom("x: float32[1, 6]")
class GreedyUntilStop(nn.Module):
    """One sentence, token after token, until the stop token."""

    def __init__(self):
        super().__init__()
        self.embed, self.cell, self.out = nn.Embedding(7, 6), nn.GRUCell(6, 6), nn.Linear(6, 7)

    def forward(self, x, max_len: int = 12):
        token, state, tokens = torch.zeros(1, dtype=torch.long), x, []
        for _ in range(max_len):
            state = self.cell(self.embed(token), state)
            token = self.out(state * 4).argmax(dim=-1)
            tokens.append(token)
            if token.item() == 3:
                break
        return torch.stack(tokens, dim=1)


@idiom(ROWS, **FEW)
class GreedyUntilAllFinished(nn.Module):
    """A batch: finished rows get padding, and the loop ends with the last of them."""

    def __init__(self):
        super().__init__()
        self.embed, self.cell, self.out = nn.Embedding(7, 6), nn.GRUCell(6, 6), nn.Linear(6, 7)

    def forward(self, x):
        token = torch.zeros(x.size(0), dtype=torch.long)
        finished = torch.zeros(x.size(0), dtype=torch.bool)
        state, out = x, token.unsqueeze(1)
        for _ in range(10):
            state = self.cell(self.embed(token), state)
            token = self.out(state * 4).argmax(-1).masked_fill(finished, 0)
            out = torch.cat([out, token.unsqueeze(1)], dim=1)
            finished = finished | (token == 3)
            if finished.all():
                break
        return out


@idiom("a: float32[n, n]", n=(2, 7))
class PowerIteration(nn.Module):
    """`while` the vector still moves, at most fifty times."""

    def forward(self, a):
        a = a @ a.T + torch.eye(a.shape[0])
        v = torch.ones(a.shape[0]) / a.shape[0] ** 0.5
        change, steps = torch.tensor(1.0), 0
        while change > 1e-2 and steps < 50:
            new = F.normalize(a @ v, dim=0)
            change = (new - v).norm()
            v, steps = new, steps + 1
        return v @ a @ v, v


@idiom(ROWS, **FEW)
class AdaptiveComputation(nn.Module):
    """Graves' adaptive computation time: rows halt one by one, and the remainder weighs the last step."""

    def __init__(self):
        super().__init__()
        self.step, self.halt = nn.Linear(6, 6), nn.Linear(6, 1)

    def forward(self, x):
        halted, output = torch.zeros(x.shape[0]), torch.zeros_like(x)
        updates, n = torch.zeros(x.shape[0]), 0
        while (halted < 1 - 0.1).any() and n < 8:
            x = torch.tanh(self.step(x)) + x
            p = torch.sigmoid(self.halt(x)).squeeze(-1)
            running = (halted < 1 - 0.1).float()
            stops = (halted + p * running > 1 - 0.1).float() * running
            weight = p * running * (1 - stops) + (1 - halted) * stops
            output = output + weight.unsqueeze(-1) * x
            halted, updates, n = halted + weight, updates + running, n + 1
        return output, updates


@idiom(ROWS, **FEW)
class DeepEquilibrium(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.u = nn.Linear(6, 6, bias=False), nn.Linear(6, 6)
        with torch.no_grad():
            self.w.weight.mul_(0.5)

    def forward(self, x):
        z, injected = torch.zeros_like(x), self.u(x)
        for i in range(30):
            following = torch.tanh(self.w(z) + injected)
            residual = (following - z).norm() / (following.norm() + 1e-5)
            z = following
            if residual < 1e-2:
                break
        return z


@idiom("x: float32[time]", time=(1, 16))
class FirstOnsetReturned(nn.Module):
    """A return from within the loop, another behind it."""

    def forward(self, x):
        level = torch.zeros(())
        for i in range(x.shape[0]):
            level = 0.5 * level + x[i].abs()
            if level > 1.5:
                return level, torch.tensor(i)
        return level, torch.tensor(-1)


@idiom("encoded: float32[time, 6]", time=(1, 8))
class TransducerGreedy(nn.Module):
    """RNN-T: at each frame symbols are emitted until blank, at most three."""

    def __init__(self):
        super().__init__()
        self.embed, self.cell = nn.Embedding(5, 6), nn.GRUCell(6, 6)
        self.joint = nn.Linear(6, 5)

    def forward(self, encoded):
        state = self.cell(self.embed(torch.zeros(1, dtype=torch.long)), torch.zeros(1, 6))
        hypothesis = [torch.zeros(1, dtype=torch.long)]
        for t in range(encoded.size(0)):
            for _ in range(3):
                token = self.joint(torch.tanh(encoded[t : t + 1] * 2 + state)).argmax(-1)
                if token == 0:
                    break
                hypothesis.append(token)
                state = self.cell(self.embed(token), state)
        return torch.cat(hypothesis)


@idiom("cost: float32[batch, n, m] in 0..1", batch=(1, 3), n=(2, 6), m=(2, 6))
class SinkhornUntilStill(nn.Module):
    """Optimal transport in logarithms, its iterations ended by the change of a potential."""

    def forward(self, cost):
        b, n, m = cost.shape
        log_mu = torch.full((b, n), 1.0 / n).log()
        log_nu = torch.full((b, m), 1.0 / m).log()
        u, v = torch.zeros_like(log_mu), torch.zeros_like(log_nu)
        for _ in range(40):
            before = u
            u = 0.2 * (log_mu - torch.logsumexp((v.unsqueeze(1) - cost) / 0.2, dim=-1))
            v = 0.2 * (log_nu - torch.logsumexp((u.unsqueeze(2) - cost) / 0.2, dim=-2))
            if (u - before).abs().sum(-1).mean() < 1e-1:
                break
        return torch.exp((u.unsqueeze(2) + v.unsqueeze(1) - cost) / 0.2)


@idiom(ROWS, **FEW)
class PatienceExit(nn.Module):
    """PABEE: layers are left once three heads in a row agree."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(5))
        self.heads = nn.ModuleList(nn.Linear(6, 3) for _ in range(5))

    def forward(self, x):
        patience, previous, logits = 0, None, None
        for layer, head in zip(self.layers, self.heads):
            x = torch.tanh(layer(x)) + x
            logits = head(x)
            label = logits.argmax(-1)
            patience = patience + 1 if previous is not None and torch.all(label.eq(previous)) else 0
            previous = label
            if patience == 2:
                break
        return logits


@idiom("start: float32[batch, 3]", "direction: float32[batch, 3]", batch=(1, 4))
class SphereTracing(nn.Module):
    """Rays marched until all have hit the surface or left."""

    def forward(self, start, direction):
        direction = F.normalize(direction + 1e-3, dim=-1)
        depth = torch.zeros(start.shape[0])
        active = torch.ones(start.shape[0], dtype=torch.bool)
        step = 0
        while active.any():
            distance = (start + depth.unsqueeze(-1) * direction).norm(dim=-1) - 0.5
            depth = torch.where(active, depth + distance, depth)
            active = active & (distance.abs() > 1e-2) & (depth < 4.0)
            step += 1
            if step >= 12:
                break
        return depth, active
