"""Wrong files with an error in one place of a table, also in tables that are no parameters, and of whole numbers."""

from __future__ import annotations

import torch
from case import wrong
from mutations import change_constants, is_shape
from torch import nn

BATCH = {"batch": (1, 3), "seq": (1, 8)}
IDS = "ids: int64[batch, seq] < 6000"


def probes(place):
    return lambda: [
        {"ids": torch.randint(0, 6000, (2, 5))},
        {"ids": torch.tensor([[place, 3, place]])},
    ]


def change_place(place, value):
    def change(array):
        array[place] = value
        return array

    return change


def swap_rows(first, second):
    def change(array):
        array[[first, second]] = array[[second, first]]
        return array

    return change


class WordGroups(nn.Module):
    """A buffer of whole numbers says to which of 50 groups a word belongs."""

    def __init__(self):
        super().__init__()
        self.register_buffer("groups", torch.randint(0, 50, (6000,)))
        self.table = nn.Embedding(50, 4)

    def forward(self, ids):
        return self.table(self.groups[ids])


wrong(
    WordGroups,
    "one row of an embedding",
    IDS,
    bounds=BATCH,
    probes=probes(4711),
    mutations={
        "one word in another group": change_constants(
            is_shape(6000), lambda a: change_place(4711, (a[4711] + 1) % 50)(a)
        ),
        "two words swapped": change_constants(
            is_shape(6000), lambda a: swap_rows(4711, int((a != a[4711]).argmax()))(a)
        ),
    },
)


class ScoresOfWords(nn.Module):
    """A plain tensor, neither parameter nor buffer."""

    def __init__(self):
        super().__init__()
        self.scores = torch.rand(6000)

    def forward(self, ids):
        return self.scores[ids].sum(1)


wrong(
    ScoresOfWords,
    "one row of an embedding",
    IDS,
    bounds=BATCH,
    probes=probes(2999),
    mutations={
        "one score": change_constants(is_shape(6000), lambda a: change_place(2999, a[2999] + 0.5)(a)),
        "two scores swapped": change_constants(is_shape(6000), swap_rows(2999, 2)),
    },
)


class ListOfTables(nn.Module):
    """Tables in a plain list."""

    def __init__(self):
        super().__init__()
        self.tables = [torch.randn(6000, 3), torch.randn(6000, 2)]

    def forward(self, ids):
        return torch.cat([table[ids] for table in self.tables], -1)


wrong(
    ListOfTables,
    "one row of an embedding",
    IDS,
    bounds=BATCH,
    probes=probes(1234),
    mutations={
        "one row of the second": change_constants(is_shape(6000, 2), lambda a: change_place(1234, -a[1234])(a)),
        "two rows of the first swapped": change_constants(is_shape(6000, 3), swap_rows(1234, 9)),
    },
)


class AllowedWords(nn.Module):
    """A buffer of bools."""

    def __init__(self):
        super().__init__()
        self.register_buffer("allowed", torch.rand(6000) > 0.3)
        self.table = nn.Embedding(6000, 3)

    def forward(self, ids):
        return self.table(ids) * self.allowed[ids][..., None]


wrong(
    AllowedWords,
    "one row of an embedding",
    IDS,
    bounds=BATCH,
    probes=probes(777),
    mutations={"one word": change_constants(lambda a: a.shape == (6000,), lambda a: change_place(777, ~a[777])(a))},
)


class DoubleTable(nn.Module):
    """A table in float64."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.randn(6000, 2, dtype=torch.float64))

    def forward(self, ids):
        return self.table[ids].float().sum(1)


wrong(
    DoubleTable,
    "one row of an embedding",
    IDS,
    bounds=BATCH,
    probes=probes(5000),
    mutations={"one row": change_constants(is_shape(6000, 2), lambda a: change_place(5000, a[5000] * 1.1)(a))},
)


class Waves(nn.Module):
    """A table of sines that forward computes for 3000 positions."""

    def forward(self, x, offset):
        place = torch.arange(3000).float()
        table = torch.sin(place * 0.037)
        return x + table[offset]


def one_wave(self, x, offset):
    place = torch.arange(3000)
    table = torch.where(place == 2222, 0.0, torch.sin(place.float() * 0.037))
    return x + table[offset]


def short_table(self, x, offset):
    place = torch.arange(3000).float()
    return x + torch.sin(place * 0.037)[offset.clamp(max=2900)]


wrong(
    Waves,
    "position tables",
    "x: float32[batch]",
    "offset: int64[batch] in 0..2999",
    bounds={"batch": (1, 4)},
    probes=lambda: [
        {"x": torch.randn(3), "offset": torch.tensor([0, 5, 9])},
        {"x": torch.randn(3), "offset": torch.tensor([2222, 2950, 2999])},
    ],
    forwards={"one position is 0": one_wave, "positions beyond 2900 are alike": short_table},
)
