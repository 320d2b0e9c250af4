"""Decide from a record whether requests may share a batch: only if the judge has shown that rows are independent.

A record without such a statement, such as that of a quantized file, does not allow it.
"""

from __future__ import annotations

from fairway.deploy.serve.batcher import Batching
from fairway.deploy.serve.signature import ModelSignature
from fairway.model.batch_dim import find_smallest_batch
from fairway.record.schema import Record


def plan_batching(signature: ModelSignature, stored: Record | None, cap: int | None) -> Batching:
    """Return how many rows the record allows in a batch, or why none. The axes of the outputs are not known yet."""
    dim = signature.domain.get(signature.batch or "")
    if stored is None or dim is None:
        return Batching(1, {}, "no largest batch was verified")
    high = dim.high // dim.multiple * dim.multiple
    sizes, doubt = _read_rows(signature, stored)
    if doubt is not None:
        return Batching(high, {}, doubt)
    limit = min(dim.high, max(sizes), cap or dim.high) // dim.multiple * dim.multiple
    if 2 * find_smallest_batch(dim) > limit:
        return Batching(limit, {}, f"it was verified for {dim} only" if cap is None else "batches are capped")
    return Batching(limit, {})


def _read_rows(signature: ModelSignature, record: Record) -> tuple[tuple[int, ...], str | None]:
    """Return the batch sizes at which rows were shown to be independent, or the reason why there are none."""
    if not signature.strict:
        return (), "with --unverified it also accepts what was not verified"
    if not record.is_verified:
        return (), f"it is {record.verdict}, not verified"
    rows = None if record.evidence is None else record.evidence.rows
    if rows is None:
        return (), "its record does not say whether rows depend on each other; export it again to find out"
    if not rows.independent:
        reason = f"{rows.reason:.200}"
        return (), f"rows depend on each other: {reason}" if rows.compared else f"rows were not compared: {reason}"
    if rows.dim != signature.batch:
        return (), f"its record compared rows of {rows.dim!s:.80}, not of {signature.batch}"
    return rows.sizes, None if rows.sizes else "its record does not say at which sizes rows were compared"
