"""Recurrent modules in every configuration people use."""

from __future__ import annotations

import torch
from case import idiom
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

SEQUENCE = "x: float32[batch, time, 8]"
SPAN = {"batch": (1, 4), "time": (1, 24)}


@idiom(SEQUENCE, **SPAN)
class GruBatchFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(8, 6, batch_first=True)

    def forward(self, x):
        return self.rnn(x)[0]


@idiom("x: float32[time, batch, 8]", **SPAN)
class GruTimeFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(8, 6)

    def forward(self, x):
        y, h = self.rnn(x)
        return y, h


@idiom(SEQUENCE, **SPAN)
class GruBidirectionalStacked(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(8, 6, num_layers=2, bidirectional=True, batch_first=True, dropout=0.1)

    def forward(self, x):
        y, h = self.rnn(x)
        return y[:, -1], h.transpose(0, 1).flatten(1)


@idiom(SEQUENCE, "h0: float32[1, batch, 6]", **SPAN)
class GruStateGiven(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(8, 6, batch_first=True)

    def forward(self, x, h0):
        return self.rnn(x, h0)


@idiom(SEQUENCE, **SPAN)
class LstmBatchFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(8, 6, batch_first=True)

    def forward(self, x):
        y, (h, c) = self.rnn(x)
        return y, h, c


@idiom(SEQUENCE, **SPAN)
class LstmBidirectional(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(8, 6, bidirectional=True, batch_first=True)
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        return self.head(self.rnn(x)[0].mean(1))


@idiom(SEQUENCE, **SPAN)
class LstmProjected(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(8, 6, proj_size=4, batch_first=True)

    def forward(self, x):
        return self.rnn(x)[0]


@idiom(SEQUENCE, "h: float32[2, batch, 6]", "c: float32[2, batch, 6]", **SPAN)
class LstmStateGiven(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(8, 6, num_layers=2, batch_first=True)

    def forward(self, x, h, c):
        y, (h, c) = self.rnn(x, (h, c))
        return {"y": y, "h": h, "c": c}


@idiom(SEQUENCE, **SPAN)
class LstmNoBias(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(8, 6, bias=False, batch_first=True)

    def forward(self, x):
        return self.rnn(x)[0]


@idiom(SEQUENCE, **SPAN)
class RnnTanh(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(8, 6, batch_first=True)

    def forward(self, x):
        return self.rnn(x)[0]


@idiom(SEQUENCE, **SPAN)
class RnnRelu(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(8, 6, nonlinearity="relu", num_layers=2, batch_first=True)

    def forward(self, x):
        return self.rnn(x)[1]


@idiom("x: float32[time, 8]", time=(1, 24))
class GruUnbatched(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(8, 6)

    def forward(self, x):
        return self.rnn(x)[0]


@idiom(SEQUENCE, "lengths: int64[batch] = lengths(time)", **SPAN)
class GruPacked(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(8, 6, batch_first=True)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        _, h = self.rnn(packed)
        return h[-1]


@idiom(SEQUENCE, "lengths: int64[batch] = lengths(time)", **SPAN)
class LstmPackedBidirectional(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(8, 6, bidirectional=True, batch_first=True)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        y, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=x.shape[1])
        return y


@idiom(SEQUENCE, **SPAN)
class GruZeroStateByHand(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(8, 6, num_layers=2, batch_first=True)

    def forward(self, x):
        h0 = torch.zeros(2, x.size(0), 6, device=x.device, dtype=x.dtype)
        return self.rnn(x, h0)[0]


@idiom(SEQUENCE, **SPAN)
class LstmLearntState(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(8, 6, batch_first=True)
        self.h0 = nn.Parameter(torch.randn(1, 1, 6))
        self.c0 = nn.Parameter(torch.randn(1, 1, 6))

    def forward(self, x):
        batch = x.shape[0]
        return self.rnn(x, (self.h0.repeat(1, batch, 1), self.c0.expand(-1, batch, -1).contiguous()))[0]


@idiom(SEQUENCE, **SPAN)
class GruCellLoop(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, 6)

    def forward(self, x):
        h = x.new_zeros(x.size(0), 6)
        out = []
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
            out.append(h)
        return torch.stack(out, dim=1)


@idiom(SEQUENCE, **SPAN)
class LstmCellLoopLastOnly(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(8, 6)

    def forward(self, x):
        h = torch.zeros(x.shape[0], 6)
        c = torch.zeros(x.shape[0], 6)
        for step in x.unbind(1):
            h, c = self.cell(step, (h, c))
        return h


@idiom(SEQUENCE, **SPAN)
class RnnCellEnumerate(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.RNNCell(8, 6)

    def forward(self, x):
        h = torch.zeros(x.shape[0], 6)
        y = torch.zeros(x.shape[0], x.shape[1], 6)
        for i, step in enumerate(x.transpose(0, 1)):
            h = self.cell(step, h)
            y[:, i] = h
        return y


@idiom(SEQUENCE, **SPAN)
class ManualGatesLoop(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Linear(14, 12)

    def forward(self, x):
        h = x.new_zeros((x.size(0), 6))
        outputs = []
        for t in range(x.size(1)):
            gate, new = self.w(torch.cat([x[:, t, :], h], dim=-1)).chunk(2, -1)
            gate = torch.sigmoid(gate)
            h = gate * h + (1 - gate) * torch.tanh(new)
            outputs.append(h.unsqueeze(1))
        return torch.cat(outputs, 1)


@idiom(SEQUENCE, **SPAN)
class ReversedLoop(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, 6)

    def forward(self, x):
        h = torch.zeros(x.size(0), 6)
        for t in reversed(range(x.size(1))):
            h = self.cell(x[:, t], h)
        return h


@idiom(SEQUENCE, **SPAN)
class TwoDirectionsByFlip(nn.Module):
    def __init__(self):
        super().__init__()
        self.ahead = nn.GRU(8, 6, batch_first=True)
        self.back = nn.GRU(8, 6, batch_first=True)

    def forward(self, x):
        back, _ = self.back(x.flip(1))
        return torch.cat([self.ahead(x)[0], back.flip(1)], -1)


@idiom(SEQUENCE, **SPAN)
class ConvThenGru(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(8, 10, 3, padding=1, stride=2)
        self.rnn = nn.GRU(10, 6, batch_first=True)

    def forward(self, x):
        return self.rnn(torch.relu(self.conv(x.transpose(1, 2))).transpose(1, 2))[0]


@idiom("x: float32[batch, time, 3, 10, 10]", batch=(1, 3), time=(1, 6))
class ConvLstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.gates = nn.Conv2d(3 + 4, 16, 3, padding=1)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], 4, 10, 10)
        c = torch.zeros_like(h)
        for t in range(x.shape[1]):
            i, f, g, o = self.gates(torch.cat([x[:, t], h], 1)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return h


@idiom(SEQUENCE, **SPAN)
class GruHalf(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(8, 6, batch_first=True).half()

    def forward(self, x):
        return self.rnn(x.half())[0].float()
