"""Test a model with its canary after it was loaded, before it gets requests.

The inputs are drawn with the seed and sizes of the record, and the answers must be those that the file gave when it was
judged. For an older record without answers they must have the names, dtypes and sizes that the file declares. Requests
of several clients share a batch only if the record shows that rows are independent. Even then this is tested here: a
sample is sent alone, before another one and after it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

import numpy as np

from fairway.deploy.serve.batcher import Batching
from fairway.deploy.serve.merge_rules import plan_batching
from fairway.deploy.serve.signature import ModelSignature
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.model.batch_dim import find_smallest_batch
from fairway.model.canary import CANARY_SEED, RELATIVE_TOLERANCES, Array, Feeds, describe_mismatch, draw_canary_inputs
from fairway.model.dims import Point, describe_point
from fairway.model.onnx_file import OnnxValue
from fairway.record.schema import Record
from fairway.record.schema_evidence import CanaryRecord

FAR_VALUE = 30.0
"""The size of floats without a declared range in the other sample of a batch, which must not change the first."""

Ask = Callable[[Feeds], Awaitable[Feeds]]


async def check_canary(ask: Ask, signature: ModelSignature, stored: Record | None, cap: int | None) -> Batching:
    """Test a model, and return how its requests may be batched. Raises FW815 if an answer is wrong."""
    point, kept = choose_canary_point(signature, stored), _find_canary(stored)
    if kept is not None and kept.none is not None:
        return Batching(1, {}, f"its record holds no canary: {kept.none:.200}")
    answers = await _ask_and_check(
        ask, signature, draw_canary_inputs(signature.inputs, point, _choose_seed(kept)), point
    )
    for name, output in ({} if kept is None else kept.outputs).items():
        why = describe_mismatch(output, answers[name]) if name in answers else "is not an output of the file"
        if why is not None:
            raise complain(
                Code.NOT_FIT_TO_SERVE, f"at {describe_point(point)} the answer to the canary is wrong: {name} {why}"
            )
    batching = plan_batching(signature, stored, cap)
    if batching.why_not is not None:
        return batching
    assert signature.batch is not None
    unit = find_smallest_batch(signature.domain[signature.batch])
    return await _confirm_batching(ask, signature, {**point, signature.batch: unit}, batching)


async def _confirm_batching(ask: Ask, signature: ModelSignature, point: Point, batching: Batching) -> Batching:
    """Send a sample alone, then before and after a very different one. Return each output's axis of samples."""
    assert signature.batch is not None
    unit = point[signature.batch]
    pair = [
        draw_canary_inputs(signature.inputs, point, CANARY_SEED + 1),
        draw_canary_inputs(signature.inputs, point, CANARY_SEED + 2, FAR_VALUE),
    ]
    alone = await _ask_and_check(ask, signature, pair[0], point)
    for order in ((0, 1), (1, 0)):
        parts = [pair[number] for number in order]
        both = {name: np.concatenate([p[name] for p in parts], axis) for name, axis in signature.axes.items()}
        large = await _ask_and_check(ask, signature, both, {**point, signature.batch: 2 * unit})
        axes = {}
        for value in signature.outputs:
            name = value.name
            grown = _find_batch_axis(alone[name], large[name], unit)
            if grown is None:
                return Batching(batching.limit, {}, f"the output {name} does not have one row for each sample")
            axes[name] = grown
            why = _find_change(alone[name], np.split(large[name], 2, grown)[order.index(0)])
            if why is not None:
                return Batching(batching.limit, {}, f"rows depend on each other: the output {name}: {why}")
    return replace(batching, axes=axes)


def _find_batch_axis(small: Array, large: Array, unit: int) -> int | None:
    """Return the axis that is twice as long in the larger answer, or None if that is not the only difference."""
    if small.ndim != large.ndim:
        return None
    grown = [axis for axis in range(small.ndim) if small.shape[axis] != large.shape[axis]]
    sizes = [(small.shape[axis], large.shape[axis]) for axis in grown]
    return grown[0] if sizes == [(unit, 2 * unit)] else None


def choose_canary_point(signature: ModelSignature, stored: Record | None) -> dict[str, int]:
    """Return the sizes of the record's canary or example, or the smallest verified ones, or 1."""
    kept = _find_canary(stored)
    sizes = {} if stored is None else stored.subject.example
    if kept is not None and kept.point:
        sizes = kept.point
    point = {}
    for name in dict.fromkeys(name for spec in signature.inputs for name in spec.dims):
        dim = signature.domain.get(name)
        size = sizes.get(name)
        if size is not None and (dim is None or size in dim.sizes):
            point[name] = size
        else:
            point[name] = 1 if dim is None else (next(s for s in dim.sizes if s or s == dim.sizes[-1]))
    return point


def _find_canary(record: Record | None) -> CanaryRecord | None:
    return None if record is None or record.evidence is None else record.evidence.canary


def _choose_seed(kept: CanaryRecord | None) -> int:
    return CANARY_SEED if kept is None or kept.seed is None else kept.seed


async def _ask_and_check(ask: Ask, signature: ModelSignature, feeds: Feeds, point: Point) -> Feeds:
    answers = await ask(feeds)
    for value in signature.outputs:
        why = _find_mismatch(answers.get(value.name), value)
        if why is not None:
            raise complain(
                Code.NOT_FIT_TO_SERVE,
                f"at {describe_point(point)} the answer to the canary is wrong: {value.name} {why}",
            )
    return answers


def _find_mismatch(array: Array | None, value: OnnxValue) -> str | None:
    if array is None:
        return "is missing"
    if array.dtype.name != value.dtype:
        return f"is {array.dtype.name}; the file declares {value}"
    if value.shape is not None:
        fits = len(value.shape) == array.ndim and all(
            size == got for size, got in zip(value.shape, array.shape, strict=True) if isinstance(size, int)
        )
        if not fits:
            return f"has the shape {list(array.shape)}; the file declares {value}"
    if array.dtype.kind == "f" and array.size and np.isnan(array).all():
        return "is NaN throughout"
    return None


def _find_change(alone: Array, among: Array) -> str | None:
    """Describe how a sample's answer changed in a batch, or return None if it did not."""
    if alone.dtype.kind != "f":
        return None if np.array_equal(alone, among) else "whole numbers differ"
    if not np.array_equal(np.isfinite(alone), np.isfinite(among)):
        return "NaN or infinity are in other places"
    finite = np.isfinite(alone)
    if not finite.any():
        return None
    first, second = alone[finite].astype(np.float64), among[finite].astype(np.float64)
    off, largest = float(np.abs(first - second).max()), float(np.abs(first).max())
    allowed = RELATIVE_TOLERANCES[alone.dtype.name] * largest
    return None if off <= allowed else f"it changed by {off:.2g}; {allowed:.2g} is allowed"


def describe_check(batching: Batching, signature: ModelSignature, point: Mapping[str, int]) -> str:
    """Return the line that is printed when the server starts."""
    if batching.why_not is not None:
        return f"answers at {describe_point(point)}; requests are run one by one: {batching.why_not}"
    return f"answers at {describe_point(point)}; batches of up to {batching.limit} along {signature.batch}"
