"""How much of the output's quality is lost: sums that add up over samples, and one number made of them.

Every metric is turned into a *drop*, 0 for the same answers and larger for worse ones:
  sqnr    the error's share of the output's power: 1% is 20 dB
  cosine  1 − cosine of the angle between the two outputs
  kl      nats between the softmaxes over the last axis
  top1    share of places whose largest element is another one
  recipe  the loss of the recipe's own `metric`, as a share of what the float model reaches
Of several outputs the worst counts. Places where the float model itself is not finite are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairway.diagnostics.errors import complain

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]
ModelFunction = Callable[[Feeds], dict[str, Array]]

METRICS = ("sqnr", "cosine", "kl", "top1", "recipe")
SUMS = 8
"""signal, error, dot, candidate, kl, agreeing, rows, elements that differ where they must not."""

_CHANGED = 1e-9


@dataclass(frozen=True)
class Score:
    """What was summed over samples, by output."""

    outputs: Mapping[str, tuple[float, ...]]

    def __add__(self, other: Score) -> Score:
        names = {**self.outputs, **other.outputs}
        zero = (0.0,) * SUMS
        pairs = {n: zip(self.outputs.get(n, zero), other.outputs.get(n, zero), strict=True) for n in names}
        return Score({n: tuple(a + b for a, b in both) for n, both in pairs.items()})

    def drop(self, metric: str) -> float:
        """The worst output's drop; NaN where the metric says nothing about any of them."""
        drops = [_DROPS[metric](sums) for sums in self.outputs.values()]
        known = [d for d in drops if not math.isnan(d)]
        return max(known) if known else math.nan

    @property
    def sqnr(self) -> float:
        """Decibels, of the worst output."""
        share = self.drop("sqnr")
        return math.inf if share == 0 else -10 * math.log10(share) if share < math.inf else -math.inf

    def as_dict(self) -> dict[str, float | None]:
        found = {"sqnr_db": self.sqnr, **{m: self.drop(m) for m in METRICS[:-1]}}
        return {k: None if math.isnan(v) or math.isinf(v) else v for k, v in found.items()}


def compare(names: Sequence[str], right: Sequence[Array], candidate: Sequence[Array]) -> Score:
    """The sums of one sample: the float model's outputs against a candidate's."""
    return Score({n: _sums(r, c) for n, r, c in zip(names, right, candidate, strict=True)})


def add_up(scores: Iterable[Score]) -> Score:
    total = Score({})
    for one in scores:
        total = total + one
    return total


def _sums(right: Array, candidate: Array) -> tuple[float, ...]:
    if right.shape != candidate.shape:
        return (1.0, math.inf, 0.0, 1.0, math.inf, 0.0, 1.0, float(right.size or 1))
    if not np.issubdtype(right.dtype, np.floating):
        return (0.0,) * (SUMS - 1) + (float(np.count_nonzero(right != candidate)),)
    a, b = right.astype(np.float64), candidate.astype(np.float64)
    finite = np.isfinite(a)
    if np.any(finite & ~np.isfinite(b)):
        return (1.0, math.inf, 0.0, 1.0, math.inf, 0.0, 1.0, 0.0)
    a, b = np.where(finite, a, 0.0), np.where(finite, b, 0.0)
    sums = (float((a * a).sum()), float(((a - b) ** 2).sum()), float((a * b).sum()), float((b * b).sum()))
    kl = agreeing = rows = 0.0
    if a.ndim > 1 and a.shape[-1] > 1 and a.size:
        agreeing = float(np.count_nonzero(a.argmax(-1) == b.argmax(-1)))
        rows = float(a.size // a.shape[-1])
        p, q = _log_softmax(a), _log_softmax(b)
        kl = float((np.exp(p) * (p - q)).sum())
    return (*sums, kl, agreeing, rows, 0.0)


def _log_softmax(values: Array) -> Array:
    moved = values - values.max(-1, keepdims=True)
    return np.asarray(moved - np.log(np.exp(moved).sum(-1, keepdims=True)))


def _sqnr_drop(sums: tuple[float, ...]) -> float:
    signal, error = sums[:2]
    if sums[7]:
        return math.inf
    return math.nan if signal == 0 and error == 0 else error / signal if signal else math.inf


def _cosine_drop(sums: tuple[float, ...]) -> float:
    signal, error, dot, candidate = sums[:4]
    if sums[7] or math.isinf(error):
        return math.inf
    if signal == 0 and candidate == 0:
        return math.nan
    return max(0.0, 1 - dot / math.sqrt(signal * candidate)) if signal and candidate else 1.0


def _kl_drop(sums: tuple[float, ...]) -> float:
    return max(0.0, sums[4] / sums[6]) if sums[6] else math.nan


def _top1_drop(sums: tuple[float, ...]) -> float:
    return 1 - sums[5] / sums[6] if sums[6] else math.nan


_DROPS: dict[str, Callable[[tuple[float, ...]], float]] = {
    "sqnr": _sqnr_drop,
    "cosine": _cosine_drop,
    "kl": _kl_drop,
    "top1": _top1_drop,
}


class OwnMetric:
    """The recipe's `metric(model_fn) -> float`, larger for better; refused where it says nothing about the model."""

    def __init__(self, function: Callable[[ModelFunction], float], model: ModelFunction) -> None:
        self._function = function
        self.reached = self._ask(model)

        def wrecked(feeds: Feeds) -> dict[str, Array]:
            return {name: _wreck(value) for name, value in model(feeds).items()}

        if abs(self._ask(wrecked) - self.reached) <= _CHANGED * max(abs(self.reached), _CHANGED):
            seen = f"metric() gave {self.reached:g} for the model, and the same with its outputs spoilt"
            raise complain("FW711", seen)

    def drop(self, model: ModelFunction) -> float:
        loss = self.reached - self._ask(model)
        return max(0.0, loss / abs(self.reached)) if self.reached else max(0.0, loss)

    def _ask(self, model: ModelFunction) -> float:
        try:
            value = float(self._function(model))
        except Exception as error:
            raise complain("FW711", f"metric() raised {type(error).__name__}: {error}") from error
        if not math.isfinite(value):
            raise complain("FW711", f"metric() returned {value}")
        return value


def _wreck(value: Array) -> Array:
    """Other numbers of the same shape: negated and turned round."""
    flat = value.reshape(-1)[::-1].reshape(value.shape)
    return np.asarray(~flat if flat.dtype == bool else -flat - 1)
