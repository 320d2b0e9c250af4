"""The loss of output quality: sums over samples, and one number computed from them.

Every metric is turned into a *drop*, 0 for equal outputs and larger for worse ones:
  sqnr    the error's share of the output's power: 1% is 20 dB
  cosine  1 − cosine of the angle between the two outputs
  kl      nats between the softmaxes over the last axis
  top1    share of rows with a different largest element
  recipe  the loss of the recipe's own `metric`, as a share of the float model's value
The worst output counts. Elements for which the float model itself is not finite are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]
ModelFunction = Callable[[Feeds], dict[str, Array]]

METRICS = ("sqnr", "cosine", "kl", "top1", "recipe")
SUM_COUNT = 8
"""signal, error, dot, candidate, kl, agreeing rows, rows, elements that differ but must be equal."""

_MIN_CHANGE_SHARE = 1e-9


@dataclass(frozen=True)
class Score:
    """Sums over samples, by output."""

    outputs: Mapping[str, tuple[float, ...]]

    def __add__(self, other: Score) -> Score:
        names = {**self.outputs, **other.outputs}
        zero = (0.0,) * SUM_COUNT
        pairs = {n: zip(self.outputs.get(n, zero), other.outputs.get(n, zero), strict=True) for n in names}
        return Score({n: tuple(a + b for a, b in both) for n, both in pairs.items()})

    def compute_drop(self, metric: str) -> float:
        """Return the worst output's drop, or NaN if the metric applies to none of them."""
        drops = [_DROPS[metric](sums) for sums in self.outputs.values()]
        known = [d for d in drops if not math.isnan(d)]
        return max(known) if known else math.nan

    @property
    def sqnr(self) -> float:
        """The worst output's signal-to-noise ratio in decibels."""
        share = self.compute_drop("sqnr")
        return math.inf if share == 0 else -10 * math.log10(share) if share < math.inf else -math.inf

    def as_dict(self) -> dict[str, float | None]:
        values = {"sqnr_db": self.sqnr, **{m: self.compute_drop(m) for m in METRICS[:-1]}}
        return {k: None if math.isnan(v) or math.isinf(v) else v for k, v in values.items()}


def score_outputs(names: Sequence[str], expected: Sequence[Array], candidate: Sequence[Array]) -> Score:
    """Return the sums of one sample: the float model's outputs against a candidate's."""
    return Score({n: _sum_differences(r, c) for n, r, c in zip(names, expected, candidate, strict=True)})


def add_scores(scores: Iterable[Score]) -> Score:
    total = Score({})
    for score in scores:
        total = total + score
    return total


def _sum_differences(expected: Array, candidate: Array) -> tuple[float, ...]:
    if expected.shape != candidate.shape:
        return (1.0, math.inf, 0.0, 1.0, math.inf, 0.0, 1.0, float(expected.size or 1))
    if not np.issubdtype(expected.dtype, np.floating):
        return (0.0,) * (SUM_COUNT - 1) + (float(np.count_nonzero(expected != candidate)),)
    a, b = expected.astype(np.float64), candidate.astype(np.float64)
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


def _compute_sqnr_drop(sums: tuple[float, ...]) -> float:
    signal, error = sums[:2]
    if sums[7]:
        return math.inf
    return math.nan if signal == 0 and error == 0 else error / signal if signal else math.inf


def _compute_cosine_drop(sums: tuple[float, ...]) -> float:
    signal, error, dot, candidate = sums[:4]
    if sums[7] or math.isinf(error):
        return math.inf
    if signal == 0 and candidate == 0:
        return math.nan
    return max(0.0, 1 - dot / math.sqrt(signal * candidate)) if signal and candidate else 1.0


def _compute_kl_drop(sums: tuple[float, ...]) -> float:
    return max(0.0, sums[4] / sums[6]) if sums[6] else math.nan


def _compute_top1_drop(sums: tuple[float, ...]) -> float:
    return 1 - sums[5] / sums[6] if sums[6] else math.nan


_DROPS: dict[str, Callable[[tuple[float, ...]], float]] = {
    "sqnr": _compute_sqnr_drop,
    "cosine": _compute_cosine_drop,
    "kl": _compute_kl_drop,
    "top1": _compute_top1_drop,
}


class RecipeMetric:
    """The recipe's `metric(model_fn) -> float`, larger for better; fails if it does not depend on the model."""

    def __init__(self, function: Callable[[ModelFunction], float], model: ModelFunction) -> None:
        self._function = function
        self.float_value = self._evaluate(model)

        def scrambled_model(feeds: Feeds) -> dict[str, Array]:
            return {name: _scramble(value) for name, value in model(feeds).items()}

        change = abs(self._evaluate(scrambled_model) - self.float_value)
        if change <= _MIN_CHANGE_SHARE * max(abs(self.float_value), _MIN_CHANGE_SHARE):
            seen = f"metric() gave {self.float_value:g} for the model, and the same for scrambled outputs"
            raise complain(Code.METRIC_USELESS, seen)

    def compute_drop(self, model: ModelFunction) -> float:
        loss = self.float_value - self._evaluate(model)
        return max(0.0, loss / abs(self.float_value)) if self.float_value else max(0.0, loss)

    def _evaluate(self, model: ModelFunction) -> float:
        try:
            value = float(self._function(model))
        except Exception as error:
            raise complain(Code.METRIC_USELESS, f"metric() raised {type(error).__name__}: {error}") from error
        if not math.isfinite(value):
            raise complain(Code.METRIC_USELESS, f"metric(): expected a finite number, got {value}")
        return value


def _scramble(value: Array) -> Array:
    """Return different numbers of the same shape: negated and in reverse order."""
    flat = value.reshape(-1)[::-1].reshape(value.shape)
    return np.asarray(~flat if flat.dtype == bool else -flat - 1)
