"""What a record allows a server to merge: only rows that the judge has shown to be independent of each other.

A record comes from elsewhere, so each field is checked before it is used. A record that says nothing about rows (an
older one, or that of a quantized file) allows nothing.
"""

from __future__ import annotations

from typing import Any

from fairway.deploy.serve.batcher import Batching
from fairway.deploy.serve.signature import ModelSignature
from fairway.model.batch_dim import smallest_batch
from fairway.record.reader import StoredRecord


def plan_batching(signature: ModelSignature, stored: StoredRecord | None, cap: int | None) -> Batching:
    """Return how many rows may be merged by the record, or why none. Where outputs have them is not known yet."""
    dim = signature.domain.get(signature.batch or "")
    if stored is None or dim is None:
        return Batching(1, {}, "no verified bound says how many samples it takes")
    high = dim.high // dim.multiple * dim.multiple
    sizes, doubt = _read_rows(signature, stored)
    if doubt is not None:
        return Batching(high, {}, doubt)
    limit = min(dim.high, max(sizes), cap or dim.high) // dim.multiple * dim.multiple
    if 2 * smallest_batch(dim) > limit:
        return Batching(limit, {}, f"it was verified for {dim} only" if cap is None else "batches are capped")
    return Batching(limit, {})


def _read_rows(signature: ModelSignature, stored: StoredRecord) -> tuple[list[int], str | None]:
    """Return the batch sizes at which rows were shown to be independent; else why they were not."""
    if not signature.strict:
        return [], "with --unverified it also takes what was not verified"
    if stored.proven.verdict != "verified":
        return [], f"it is {stored.proven.verdict}, not verified"
    evidence = stored.whole.get("evidence")
    rows = evidence.get("rows") if isinstance(evidence, dict) else None
    if not isinstance(rows, dict):
        return [], "its record does not say whether rows depend on each other; export it again to find out"
    if rows.get("independent") is not True:
        reason = f"{rows.get('reason', '')!s:.200}"
        measured = bool(rows.get("compared"))
        return [], f"rows depend on each other: {reason}" if measured else f"rows were not compared: {reason}"
    if rows.get("dim") != signature.batch:
        return [], f"its record compared rows of {rows.get('dim')!s:.80}, not of {signature.batch}"
    sizes = _read_sizes(rows.get("sizes"))
    return sizes, None if sizes else "its record does not say at which sizes rows were compared"


def _read_sizes(value: Any) -> list[int]:
    sizes = value if isinstance(value, list) else []
    return sizes if all(isinstance(size, int) and not isinstance(size, bool) for size in sizes) else []
