"""Search and decoding as libraries write it: tags, beams, transducers, boxes, halting, solvers with their own steps."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from case import idiom
from torch import nn

ROWS = "x: float32[batch, 6]"
FEW = {"batch": (1, 4)}


@idiom("emissions: float32[time, batch, 4]", "mask: bool[batch, time] = keep-right-padded", batch=(1, 3), time=(2, 9))
class CrfBestPaths(nn.Module):
    """torchcrf's `_viterbi_decode`: a path is followed back for each sentence, as long as that sentence is."""

    def __init__(self):
        super().__init__()
        self.start_transitions, self.end_transitions = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4))
        self.transitions = nn.Parameter(torch.randn(4, 4))

    def forward(self, emissions, mask):
        mask = mask.transpose(0, 1)
        seq_length, batch_size = mask.shape
        score = self.start_transitions + emissions[0]
        history = []
        for i in range(1, seq_length):
            broadcast_score = score.unsqueeze(2)
            broadcast_emission = emissions[i].unsqueeze(1)
            next_score = broadcast_score + self.transitions + broadcast_emission
            next_score, indices = next_score.max(dim=1)
            score = torch.where(mask[i].unsqueeze(1), next_score, score)
            history.append(indices)
        score = score + self.end_transitions
        seq_ends = mask.long().sum(dim=0) - 1
        best_tags_list = []
        for idx in range(batch_size):
            _, best_last_tag = score[idx].max(dim=0)
            best_tags = [best_last_tag]
            for hist in reversed(history[: seq_ends[idx]]):
                best_last_tag = hist[idx][best_tags[-1]]
                best_tags.append(best_last_tag)
            best_tags.reverse()
            best_tags_list.append(torch.stack(best_tags))
        return nn.utils.rnn.pad_sequence(best_tags_list, batch_first=True, padding_value=-1)


@idiom(
    "emissions: float32[time, batch, 4]",
    "tags: int64[time, batch] < 4",
    "mask: bool[batch, time] = keep-right-padded",
    batch=(1, 3),
    time=(2, 9),
)
class CrfLikelihood(nn.Module):
    """torchcrf's numerator and normalizer."""

    def __init__(self):
        super().__init__()
        self.start_transitions, self.end_transitions = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4))
        self.transitions = nn.Parameter(torch.randn(4, 4))

    def _compute_score(self, emissions, tags, mask):
        seq_length, batch_size = tags.shape
        score = self.start_transitions[tags[0]]
        score += emissions[0, torch.arange(batch_size), tags[0]]
        for i in range(1, seq_length):
            score += self.transitions[tags[i - 1], tags[i]] * mask[i]
            score += emissions[i, torch.arange(batch_size), tags[i]] * mask[i]
        seq_ends = mask.long().sum(dim=0) - 1
        last_tags = tags[seq_ends, torch.arange(batch_size)]
        return score + self.end_transitions[last_tags]

    def _compute_normalizer(self, emissions, mask):
        seq_length = emissions.size(0)
        score = self.start_transitions + emissions[0]
        for i in range(1, seq_length):
            next_score = score.unsqueeze(2) + self.transitions + emissions[i].unsqueeze(1)
            next_score = torch.logsumexp(next_score, dim=1)
            score = torch.where(mask[i].unsqueeze(1), next_score, score)
        return torch.logsumexp(score + self.end_transitions, dim=1)

    def forward(self, emissions, tags, mask):
        mask = mask.transpose(0, 1).float().bool()
        return self._compute_score(emissions, tags, mask.float()) - self._compute_normalizer(emissions, mask)


@idiom("logits: float32[time, 5]", time=(1, 14))
class CtcByHand(nn.Module):
    """The loop of many tutorials: a token is kept if it is neither a blank nor the token before."""

    def forward(self, logits):
        previous = 0
        tokens = []
        for step in logits.argmax(-1):
            token = int(step)
            if token != previous and token != 0:
                tokens.append(step)
            previous = token
        return torch.stack(tokens) if tokens else torch.zeros(0, dtype=torch.long)


@idiom(ROWS, **FEW)
class BeamsUntilFinished(nn.Module):
    """Beam search that ends when every beam has its end token."""

    def __init__(self):
        super().__init__()
        self.embed, self.cell, self.out = nn.Embedding(7, 6), nn.GRUCell(6, 6), nn.Linear(6, 7)

    def forward(self, x, beam_size: int = 3, max_len: int = 6):
        batch, vocab = x.size(0), 7
        hidden = x.unsqueeze(1).repeat(1, beam_size, 1).view(batch * beam_size, -1)
        seqs = torch.ones(batch * beam_size, 1, dtype=torch.long)
        scores = torch.full((batch, beam_size), float("-inf"))
        scores[:, 0] = 0.0
        finished = torch.zeros(batch, beam_size, dtype=torch.bool)
        offsets = (torch.arange(batch) * beam_size).unsqueeze(1)
        for _ in range(max_len):
            hidden = self.cell(self.embed(seqs[:, -1]), hidden)
            logp = F.log_softmax(self.out(hidden) * 3, dim=-1).view(batch, beam_size, vocab)
            only_pad = torch.full((vocab,), float("-inf"))
            only_pad[0] = 0.0
            logp = torch.where(finished.unsqueeze(-1), only_pad, logp)
            total = (scores.unsqueeze(-1) + logp).view(batch, -1)
            scores, flat = torch.topk(total, beam_size, dim=-1)
            beams, tokens = torch.div(flat, vocab, rounding_mode="floor"), flat % vocab
            picked = (offsets + beams).view(-1)
            seqs = torch.cat([seqs[picked], tokens.view(-1, 1)], dim=1)
            hidden = hidden[picked]
            finished = finished.gather(1, beams) | (tokens == 2)
            if finished.all():
                break
        return seqs.view(batch, beam_size, -1)[:, 0], scores[:, 0]


def box_iou(a, b):
    top, bottom = torch.max(a[:, None, :2], b[:, :2]), torch.min(a[:, None, 2:], b[:, 2:])
    inter = (bottom - top).clamp(min=0).prod(2)
    area_a, area_b = (a[:, 2:] - a[:, :2]).prod(1), (b[:, 2:] - b[:, :2]).prod(1)
    return inter / (area_a[:, None] + area_b - inter)


@idiom("corner: float32[n, 2] in 0..1", "size: float32[n, 2] in 0.2..1", "scores: float32[n]", n=(2, 10))
class SuppressedWhileLeft(nn.Module):
    """Non-maximum suppression in Python: the best box is kept, and those that overlap are dropped."""

    def forward(self, corner, size, scores):
        boxes = torch.cat([corner, corner + size], 1)
        order = scores.argsort(descending=True)
        keep = []
        while order.numel() > 0:
            i = order[0]
            keep.append(i)
            if order.numel() == 1:
                break
            ious = box_iou(boxes[i].unsqueeze(0), boxes[order[1:]]).squeeze(0)
            order = order[1:][ious <= 0.3]
        return torch.stack(keep)


@idiom("corner: float32[n, 2] in 0..1", "size: float32[n, 2] in 0.2..1", "scores: float32[n]", n=(2, 10))
class SuppressedByFlags(nn.Module):
    """The same with a flag for each box, over the table of overlaps."""

    def forward(self, corner, size, scores):
        boxes = torch.cat([corner, corner + size], 1)
        boxes = boxes[scores.argsort(descending=True)]
        overlap = box_iou(boxes, boxes)
        keep = torch.ones(boxes.size(0), dtype=torch.bool)
        for i in range(boxes.size(0)):
            if not keep[i]:
                continue
            keep[i + 1 :] &= overlap[i, i + 1 :] <= 0.3
        return boxes[keep], keep


@idiom("state: float32[batch, time, 6]", batch=(1, 3), time=(1, 6))
class UniversalHalting(nn.Module):
    """Universal Transformer's adaptive time: positions halt one by one, and every remainder is kept."""

    def __init__(self):
        super().__init__()
        self.p, self.layer = nn.Linear(6, 1), nn.Linear(6, 6)
        self.threshold = 1 - 0.1

    def forward(self, state, max_hop: int = 5):
        halting_probability = torch.zeros(state.shape[0], state.shape[1])
        remainders = torch.zeros(state.shape[0], state.shape[1])
        n_updates = torch.zeros(state.shape[0], state.shape[1])
        previous_state = torch.zeros_like(state)
        step = 0
        while ((halting_probability < self.threshold) & (n_updates < max_hop)).byte().any():
            p = torch.sigmoid(self.p(state)).squeeze(-1)
            still_running = (halting_probability < 1.0).float()
            new_halted = (halting_probability + p * still_running > self.threshold).float() * still_running
            still_running = (halting_probability + p * still_running <= self.threshold).float() * still_running
            halting_probability = halting_probability + p * still_running
            remainders = remainders + new_halted * (1 - halting_probability)
            halting_probability = halting_probability + new_halted * remainders
            n_updates = n_updates + still_running + new_halted
            update_weights = p * still_running + new_halted * remainders
            state = torch.tanh(self.layer(state)) + state
            weights = update_weights.unsqueeze(-1)
            previous_state = (state * weights) + (previous_state * (1 - weights))
            step += 1
        return previous_state, remainders, n_updates


@idiom(ROWS, **FEW)
class PonderedSteps(nn.Module):
    """PonderNet at inference: the probabilities of each step are collected, and it ends when all rows have halted."""

    def __init__(self):
        super().__init__()
        self.cell, self.lambda_layer, self.out = nn.GRUCell(6, 6), nn.Linear(6, 1), nn.Linear(6, 2)

    def forward(self, x, max_steps: int = 6):
        h = self.cell(x, x.new_zeros(x.shape))
        un_halted_prob, halted = h.new_ones((x.shape[0],)), h.new_zeros((x.shape[0],))
        p_m, y_m = h.new_zeros((x.shape[0],)), h.new_zeros((x.shape[0], 2))
        for n in range(1, max_steps + 1):
            if n == max_steps:
                lambda_n = h.new_ones(h.shape[0])
            else:
                lambda_n = torch.sigmoid(self.lambda_layer(h))[:, 0]
            p_n = un_halted_prob * lambda_n
            halt = (lambda_n > 0.5).float() * (1 - halted)
            un_halted_prob = un_halted_prob * (1 - lambda_n)
            p_m = p_m * (1 - halt) + p_n * halt
            y_m = y_m * (1 - halt).unsqueeze(-1) + self.out(h) * halt.unsqueeze(-1)
            halted = halted + halt
            h = self.cell(x, h)
            if halted.sum() == x.shape[0]:
                break
        return p_m, y_m


@idiom("y0: float32[batch, 3]", batch=(1, 4))
class AdaptiveSolver(nn.Module):
    """An embedded pair with steps accepted or tried again, until the end of the interval."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 3))

    def forward(self, y0):
        t, dt, y = torch.tensor(0.0), torch.tensor(0.4), y0
        while t < 1.0:
            dt = torch.minimum(dt, 1.0 - t)
            k1 = self.net(y)
            k2 = self.net(y + dt * k1)
            low, high = y + dt * k1, y + dt * (k1 + k2) / 2
            error = ((high - low) / (0.05 + 0.05 * high.abs())).pow(2).mean().sqrt()
            accept = error <= 1.0
            if accept:
                t, y = t + dt, high
            factor = torch.clamp(0.9 * (error + 1e-6) ** -0.5, 0.3, 3.0)
            dt = (dt * factor).clamp(min=0.05)
        return y


@idiom("x: float32[batch, 3]", **FEW)
class RootFound(nn.Module):
    """Newton's method with a tolerance, returned from within the loop."""

    def solve(self, target, tol=1e-3, max_iter=20):
        guess = target.clone()
        for _ in range(max_iter):
            value = guess**3 + guess - target
            step = value / (3 * guess**2 + 1)
            guess = guess - step
            if step.abs().max() < tol:
                return guess
        return guess

    def forward(self, x):
        return self.solve(x) * 2


@idiom("encoded: float32[batch, time, 6]", "lengths: int64[batch] = lengths(time)", batch=(1, 3), time=(1, 6))
class TransducerBatched(nn.Module):
    """NeMo's batched greedy transducer: rows that gave blank wait for the others, at most three symbols a frame."""

    def __init__(self):
        super().__init__()
        self.embed, self.cell, self.joint = nn.Embedding(5, 6), nn.GRUCell(6, 6), nn.Linear(6, 5)

    def forward(self, encoded, lengths):
        batch = encoded.size(0)
        hidden = torch.zeros(batch, 6)
        last = torch.zeros(batch, dtype=torch.long)
        counts = torch.zeros(batch, 5, dtype=torch.long)
        score = torch.zeros(batch)
        for time_idx in range(encoded.size(1)):
            f = encoded[:, time_idx]
            blank_mask = time_idx >= lengths
            symbols_added = 0
            while not blank_mask.all() and symbols_added < 3:
                h_prime = self.cell(self.embed(last), hidden)
                logp = self.joint(torch.tanh(2 * f + h_prime)).log_softmax(-1)
                v, k = logp.max(1)
                blank_mask = blank_mask | (k == 0)
                hidden = torch.where(blank_mask.unsqueeze(1), hidden, h_prime)
                last = torch.where(blank_mask, last, k)
                score = score + torch.where(blank_mask, torch.zeros_like(v), v)
                counts = counts + F.one_hot(k, 5) * (~blank_mask).long().unsqueeze(1)
                symbols_added += 1
        return counts, score


@idiom("x: float32[n, 3]", n=(4, 12))
class MeansUntilStable(nn.Module):
    """k-means from the first rows, until the centers no longer move."""

    def forward(self, x, k: int = 3):
        centers = x[:k]
        for _ in range(12):
            labels = torch.cdist(x, centers).argmin(dim=1)
            hot = F.one_hot(labels, k).to(x.dtype)
            new = (hot.t() @ x) / hot.sum(0).clamp(min=1).unsqueeze(1)
            if torch.allclose(new, centers, atol=1e-4):
                break
            centers = new
        return centers, labels


@idiom("a: int64[n] < 4", "b: int64[m] < 4", n=(1, 7), m=(1, 7))
class EditDistance(nn.Module):
    """Levenshtein's table, cell by cell."""

    def forward(self, a, b):
        n, m = a.size(0), b.size(0)
        d = torch.zeros(n + 1, m + 1)
        d[:, 0] = torch.arange(n + 1)
        d[0, :] = torch.arange(m + 1)
        for i in range(1, n + 1):
            for j in range(1, m + 1):
                cost = 0 if a[i - 1] == b[j - 1] else 1
                d[i, j] = torch.min(torch.stack([d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + cost]))
        return d[n, m]
