"""The canary: what a model must answer after it was loaded, before anybody else may ask.

The inputs are drawn by the record's seed, at its sizes, and the answers must be those that the file gave when it was
judged. A record without them, an older one, has its inputs drawn too, and the answers must have the names, dtypes and
sizes that the file declares. Requests of several clients go into one batch only if the record shows that rows are
independent; on this machine too, a sample is then sent alone, before and after another one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fairway.deploy.serve.batcher import Batching
from fairway.deploy.serve.merge_rules import plan_batching
from fairway.deploy.serve.signature import ModelSignature
from fairway.diagnostics.errors import complain
from fairway.model.batch_dim import smallest_batch
from fairway.model.canary import APART, SEED, Array, Feeds, draw, unlike
from fairway.model.dims import Point, show
from fairway.model.onnx_file import OnnxValue
from fairway.record.reader import StoredRecord

FAR = 30.0
"""Floats without declared ends, in the neighbour that must change nothing."""

Ask = Callable[[Feeds], Awaitable[Feeds]]


async def examine(ask: Ask, signature: ModelSignature, stored: StoredRecord | None, cap: int | None) -> Batching:
    """Lets the model answer; FW815 where it does not. How it may be batched comes back."""
    point, kept = example(signature, stored), _kept(stored)
    if kept is not None and "none" in kept:
        return Batching(1, {}, f"its record holds no canary: {kept['none']!s:.200}")
    answers = await _answers(ask, signature, draw(signature.inputs, point, _seed(kept)), point)
    for name, one in (kept or {}).get("outputs", {}).items():
        why = unlike(one, answers[name]) if name in answers else "is no output of the file"
        if why is not None:
            raise complain("FW815", f"at {show(point)} the canary was answered wrongly: {name} {why}")
    batching = plan_batching(signature, stored, cap)
    if batching.why_not is not None:
        return batching
    assert signature.batch is not None
    unit = smallest_batch(signature.domain[signature.batch])
    return await _confirm(ask, signature, {**point, signature.batch: unit}, batching)


async def _confirm(ask: Ask, signature: ModelSignature, point: Point, batching: Batching) -> Batching:
    """Sends a sample alone, before and after a far neighbor; where the outputs have the samples comes back."""
    assert signature.batch is not None
    unit = point[signature.batch]
    pair = [draw(signature.inputs, point, SEED + 1), draw(signature.inputs, point, SEED + 2, FAR)]
    alone = await _answers(ask, signature, pair[0], point)
    for order in ((0, 1), (1, 0)):
        parts = [pair[number] for number in order]
        both = {name: np.concatenate([p[name] for p in parts], axis) for name, axis in signature.axes.items()}
        large = await _answers(ask, signature, both, {**point, signature.batch: 2 * unit})
        axes = {}
        for value in signature.outputs:
            name = value.name
            grown = _grown(alone[name], large[name], unit)
            if grown is None:
                return Batching(batching.limit, {}, f"the output {name} does not have one row for each sample")
            axes[name] = grown
            why = _moved(alone[name], np.split(large[name], 2, grown)[order.index(0)])
            if why is not None:
                return Batching(batching.limit, {}, f"rows depend on each other: the output {name}: {why}")
    return replace(batching, axes=axes)


def _grown(small: Array, large: Array, unit: int) -> int | None:
    """The axis that has twice as many entries in the larger answer; None where it is not the only difference."""
    if small.ndim != large.ndim:
        return None
    grown = [axis for axis in range(small.ndim) if small.shape[axis] != large.shape[axis]]
    sizes = [(small.shape[axis], large.shape[axis]) for axis in grown]
    return grown[0] if sizes == [(unit, 2 * unit)] else None


def example(signature: ModelSignature, stored: StoredRecord | None) -> dict[str, int]:
    """The sizes of the record's canary or example; the smallest verified ones, or 1, where it says none."""
    subject = {} if stored is None else stored.whole.get("subject", {})
    told = (_kept(stored) or {}).get("point") or (subject.get("example") if isinstance(subject, dict) else None)
    point = {}
    for name in dict.fromkeys(name for spec in signature.inputs for name in spec.dims):
        dim = signature.domain.get(name)
        size = told.get(name) if isinstance(told, dict) else None
        if isinstance(size, int) and (dim is None or size in dim.sizes):
            point[name] = size
        else:
            point[name] = 1 if dim is None else (next(s for s in dim.sizes if s or s == dim.sizes[-1]))
    return point


def _kept(stored: StoredRecord | None) -> dict[str, Any] | None:
    evidence = None if stored is None else stored.whole.get("evidence")
    kept = evidence.get("canary") if isinstance(evidence, dict) else None
    return kept if isinstance(kept, dict) and isinstance(kept.get("outputs", {}), dict) else None


def _seed(kept: dict[str, Any] | None) -> int:
    told = (kept or {}).get("seed", SEED)
    return told if isinstance(told, int) and 0 <= told < 2**32 else SEED


async def _answers(ask: Ask, signature: ModelSignature, feeds: Feeds, point: Point) -> Feeds:
    answers = await ask(feeds)
    for value in signature.outputs:
        why = _unlike(answers.get(value.name), value)
        if why is not None:
            raise complain("FW815", f"at {show(point)} the canary was answered wrongly: {value.name} {why}")
    return answers


def _unlike(array: Array | None, value: OnnxValue) -> str | None:
    if array is None:
        return "is missing"
    if array.dtype.name != value.dtype:
        return f"is {array.dtype.name}, declared is {value}"
    if value.shape is not None:
        fits = len(value.shape) == array.ndim and all(
            said == got for said, got in zip(value.shape, array.shape, strict=True) if isinstance(said, int)
        )
        if not fits:
            return f"has the shape {list(array.shape)}, declared is {value}"
    if array.dtype.kind == "f" and array.size and np.isnan(array).all():
        return "is NaN throughout"
    return None


def _moved(alone: Array, among: Array) -> str | None:
    """How an answer changed in company; None where it did not."""
    if alone.dtype.kind != "f":
        return None if np.array_equal(alone, among) else "whole numbers differ"
    if not np.array_equal(np.isfinite(alone), np.isfinite(among)):
        return "NaN or infinity stand in other places"
    finite = np.isfinite(alone)
    if not finite.any():
        return None
    first, second = alone[finite].astype(np.float64), among[finite].astype(np.float64)
    off, largest = float(np.abs(first - second).max()), float(np.abs(first).max())
    allowed = APART[alone.dtype.name] * largest
    return None if off <= allowed else f"it moved by {off:.2g}, where {allowed:.2g} is allowed"


def describe(batching: Batching, signature: ModelSignature, point: Mapping[str, int]) -> str:
    """One line for whoever starts the server."""
    if batching.why_not is not None:
        return f"answers at {show(point)}; requests run one by one: {batching.why_not}"
    return f"answers at {show(point)}; batches of up to {batching.limit} along {signature.batch}"
