"""Joins the files of several captures into one file, with the knowledge about all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from fairway.convert.pieces.arithmetic import CannotRead
from fairway.convert.pieces.join import CannotJoin, join_models
from fairway.convert.pieces.piece_outputs import FixedDims
from fairway.convert.pieces.separate import Region
from fairway.convert.types import Candidate
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.model.spec import TensorSpec
from fairway.model.weight_storage import WeightStorage, write_data


def assemble_pieces(
    captured: Sequence[Candidate],
    regions: Sequence[Region],
    spec: Sequence[TensorSpec],
    fixed: Sequence[FixedDims],
    path: Path,
) -> Candidate:
    """Join the captures' files in the order of their regions. A single capture is returned unchanged."""
    if len(captured) == 1:
        return captured[0]
    models = [ir.load(capture.path) for capture in captured]
    links = {place: file for capture in captured for place, file in capture.stored.links.items()}
    try:
        joined = join_models(models, regions, spec, fixed, links)
    except (CannotJoin, CannotRead) as error:
        raise complain(Code.REGIONS_DIFFER, str(error)) from error
    stored = _save(joined, path, captured, links)
    return replace(
        captured[0],
        path=str(path),
        opset=int(joined.opset_imports[""]),
        remedies=tuple(dict(pair for capture in reversed(captured) for pair in capture.remedies).items()),
        warnings=tuple(dict.fromkeys(pair for capture in captured for pair in capture.warnings)),
        decided=tuple(dict.fromkeys(line for capture in captured for line in capture.decided)),
        edges={},
        stored=stored,
        rewritten=tuple({entry["functions"]: entry for capture in captured for entry in capture.rewritten}.values()),
    )


def _save(model: ir.Model, path: Path, captured: Sequence[Candidate], links: dict[str, str]) -> WeightStorage:
    """Save the joined model. Weights in a checkpoint stay there; others go into one file beside the model."""
    first = captured[0].stored
    outside = [v for v in model.graph.initializers.values() if isinstance(v.const_value, ir.ExternalTensor)]
    rest = [v for v in outside if isinstance(v.const_value, ir.ExternalTensor) and v.const_value.location not in links]
    linked = [v.const_value for v in outside if v not in rest and v.const_value is not None]
    beside = tuple(value.name or "?" for value in rest)
    size = sum(value.const_value.nbytes for value in rest if value.const_value is not None)
    if rest:
        write_data(rest, path.with_name(path.name + ".data"))
    ir.save(model, path)
    return WeightStorage(
        first.mode,
        links,
        len(linked),
        sum(tensor.nbytes for tensor in linked),
        beside,
        size,
        any(capture.stored.wide for capture in captured),
    )
