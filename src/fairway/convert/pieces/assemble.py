"""The captures' files as one file: loaded, joined, saved, with what is known of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from fairway.convert.ladder.capture import Captured
from fairway.convert.pieces.arithmetic import CannotRead
from fairway.convert.pieces.join import CannotJoin, join
from fairway.convert.pieces.piece_outputs import Fixed
from fairway.convert.pieces.separate import Region
from fairway.diagnostics.errors import complain
from fairway.model.spec import TensorSpec
from fairway.model.weight_storage import WeightStorage, write_data


def assemble(
    captured: Sequence[Captured],
    regions: Sequence[Region],
    spec: Sequence[TensorSpec],
    fixed: Sequence[Fixed],
    path: Path,
) -> Captured:
    """Join the captures' files in the order of their regions; one alone is taken as it is."""
    if len(captured) == 1:
        return captured[0]
    models = [ir.load(one.path) for one in captured]
    links = {place: file for one in captured for place, file in one.stored.links.items()}
    try:
        joined = join(models, regions, spec, fixed, links)
    except (CannotJoin, CannotRead) as error:
        raise complain("FW330", str(error)) from error
    stored = _save(joined, path, captured, links)
    return replace(
        captured[0],
        path=str(path),
        opset=int(joined.opset_imports[""]),
        remedies=tuple(dict(pair for one in reversed(captured) for pair in one.remedies).items()),
        warned=tuple(dict.fromkeys(pair for one in captured for pair in one.warned)),
        decided=tuple(dict.fromkeys(line for one in captured for line in one.decided)),
        edges={},
        stored=stored,
        rewritten=tuple({one["functions"]: one for c in captured for one in c.rewritten}.values()),
    )


def _save(model: ir.Model, path: Path, captured: Sequence[Captured], links: dict[str, str]) -> WeightStorage:
    """Save the joined model: weights that lie in a checkpoint stay there, others go into one file beside it."""
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
        any(one.stored.wide for one in captured),
    )
