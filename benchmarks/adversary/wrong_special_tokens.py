"""Wrong files of models with special tokens whose numbers are attributes, globals or buffers, in a large vocabulary."""

from __future__ import annotations

import torch
from case import wrong
from torch import nn

IDS = "ids: int64[batch, seq] < 32000"
BATCH = {"batch": (1, 3), "seq": (2, 10)}
END_OF_TEXT = 31337


def tokens(token, *others):
    return lambda: [
        {"ids": torch.randint(100, 30000, (2, 6))},
        {"ids": torch.tensor([[5, token, 9, 12]])},
        {"ids": torch.tensor([[token, token, 4, 7], [8, 3, 2, token]])},
        *({"ids": torch.tensor([[5, other, 9]])} for other in others),
    ]


class Segments(nn.Module):
    """A separator from an attribute starts a new segment."""

    def __init__(self):
        super().__init__()
        self.separator = 28123
        self.words, self.segments = nn.Embedding(32000, 4), nn.Embedding(16, 4)

    def forward(self, ids):
        segment = (ids == self.separator).long().cumsum(1)
        return self.words(ids) + self.segments(segment)


wrong(
    Segments,
    "special tokens",
    IDS,
    bounds=BATCH,
    probes=tokens(28123),
    forwards={
        "one segment": lambda self, ids: self.words(ids) + self.segments(torch.zeros_like(ids)),
        "the next token": lambda self, ids: (
            self.words(ids) + self.segments((ids == self.separator + 1).long().cumsum(1))
        ),
        "from the next place on": lambda self, ids: (
            self.words(ids) + self.segments((ids == self.separator).long().cumsum(1) - (ids == self.separator).long())
        ),
        "at most one": lambda self, ids: (
            self.words(ids) + self.segments((ids == self.separator).long().cumsum(1).clamp(max=1))
        ),
    },
)


class StopsAtEnd(nn.Module):
    """Everything behind the end of the text is ignored; its number is a global."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(32000, 4)

    def forward(self, ids):
        ended = (ids == END_OF_TEXT).long().cumsum(1) > 0
        return (self.words(ids) * ~ended[..., None]).sum(1)


wrong(
    StopsAtEnd,
    "special tokens",
    IDS,
    bounds=BATCH,
    probes=tokens(END_OF_TEXT),
    forwards={
        "never ends": lambda self, ids: self.words(ids).sum(1),
        "only the token itself": lambda self, ids: (self.words(ids) * (ids != END_OF_TEXT)[..., None]).sum(1),
        "the end counts": lambda self, ids: (
            self.words(ids) * ((ids == END_OF_TEXT).long().cumsum(1) - (ids == END_OF_TEXT).long() == 0)[..., None]
        ).sum(1),
    },
)


class Banned(nn.Module):
    """Tokens of a buffer are masked."""

    def __init__(self):
        super().__init__()
        self.register_buffer("banned", torch.tensor([17, 9001, 31999]))
        self.words = nn.Embedding(32000, 4)

    def forward(self, ids):
        return self.words(ids).masked_fill(torch.isin(ids, self.banned)[..., None], 0.0)


wrong(
    Banned,
    "special tokens",
    IDS,
    bounds=BATCH,
    probes=tokens(9001, 31999, 17),
    route="dynamo",
    forwards={
        "none": lambda self, ids: self.words(ids),
        "the first only": lambda self, ids: self.words(ids) * (ids != 17)[..., None],
        "one is left out": lambda self, ids: self.words(ids) * ((ids != 17) & (ids != 31999))[..., None],
    },
)


class ImageTokens(nn.Module):
    """Image features replace placeholder tokens, as in LLaVA; the number is in a settings object."""

    class settings:
        image_token = 29871

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(32000, 4)
        self.feature = nn.Parameter(torch.randn(4))

    def forward(self, ids):
        is_image = (ids == self.settings.image_token)[..., None]
        return torch.where(is_image, self.feature, self.words(ids))


wrong(
    ImageTokens,
    "special tokens",
    IDS,
    bounds=BATCH,
    probes=tokens(29871),
    forwards={
        "no image": lambda self, ids: self.words(ids),
        "added": lambda self, ids: self.words(ids) + self.feature * (ids == 29871)[..., None],
    },
)


class LanguageCode(nn.Module):
    """The first token is a language from a range of numbers; others have no language."""

    def __init__(self):
        super().__init__()
        self.first_code, self.last_code = 25000, 25099
        self.words, self.languages = nn.Embedding(32000, 4), nn.Embedding(101, 4)

    def forward(self, ids):
        code = ids[:, 0]
        known = (code >= self.first_code) & (code <= self.last_code)
        place = torch.where(known, code - self.first_code, 100)
        return self.words(ids).mean(1) + self.languages(place)


def language(limit, first=25000):
    def forward(self, ids):
        code = ids[:, 0]
        known = (code >= first) & (code <= limit)
        return self.words(ids).mean(1) + self.languages(torch.where(known, code - 25000, 100))

    return forward


wrong(
    LanguageCode,
    "special tokens",
    IDS,
    bounds=BATCH,
    probes=lambda: [
        {"ids": torch.randint(100, 24000, (2, 6))},
        {"ids": torch.tensor([[25000, 5, 6], [25099, 7, 8], [25050, 1, 2]])},
        {"ids": torch.tensor([[24999, 5, 6], [25100, 7, 8]])},
    ],
    forwards={
        "no language": lambda self, ids: self.words(ids).mean(1) + self.languages.weight[100],
        "the last one is left out": language(25098),
        "the first one is left out": language(25099, 25001),
    },
)


class UnusedBytes(nn.Module):
    """Numbers from 30000 on are bytes and share one embedding."""

    def __init__(self):
        super().__init__()
        self.words_end = 30000
        self.words = nn.Embedding(30001, 4)

    def forward(self, ids):
        return self.words(ids.clamp(max=self.words_end))


wrong(
    UnusedBytes,
    "special tokens",
    "ids: int64[batch, seq] in 0..40000",
    bounds=BATCH,
    probes=lambda: [{"ids": torch.randint(0, 9000, (2, 6))}, {"ids": torch.tensor([[29999, 30000, 30001, 40000]])}],
    forwards={"29999": lambda self, ids: self.words(ids.clamp(max=29999))},
)
