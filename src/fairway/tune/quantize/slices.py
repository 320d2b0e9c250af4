"""The prepared graph in slices, one unit each, and each slice twice: in float and quantised.

A trial is a path through the slices, so nothing is quantised, saved or loaded for it. The values at a cut are kept:
trials that agree up to a cut go on from there. The quantised slices are made by the same function that makes the whole
file, so a path gives the numbers of the file that it stands for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from fairway.tune.quantize.accuracy import Session
from fairway.tune.quantize.error_metrics import Array, Feeds
from fairway.tune.quantize.graph_cuts import cuts, reads, value_infos
from fairway.tune.quantize.prepare import Unit
from fairway.tune.quantize.schemes import Making, quantise_static

Values = Mapping[str, Array]


@dataclass(frozen=True)
class Slice:
    """A piece of the graph: what it takes, what it leaves for others, and both ways to compute it."""

    unit: Unit | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    in_float: Session
    quantised: Session

    def run(self, values: Values, quantised: bool) -> dict[str, Array]:
        session = self.quantised if quantised else self.in_float
        return dict(zip(session.names, session({name: values[name] for name in self.inputs}), strict=True))


class Sliced:
    """Every mix of quantised and float units as a function, without making its file."""

    def __init__(self, making: Making, threads: int = 1) -> None:
        model = making.prepared.load()
        self.outputs = [o.name for o in model.graph.output]
        self.slices = [*_slices(model, making, threads)]
        self.units = tuple(one.unit for one in self.slices if one.unit is not None)

    def cuts(self, feeds: Feeds, quantised: bool) -> list[Values]:
        """The values before every slice and after the last, with all units in float, or all quantised."""
        found: list[Values] = [dict(feeds)]
        for one in self.slices:
            found.append({**found[-1], **one.run(found[-1], quantised and one.unit is not None)})
        return found

    def toggled(self, cuts: Sequence[Values], places: Collection[int], quantised: bool) -> list[Array]:
        """The outputs with the slices at `places` computed the other way than the rest."""
        start = min(places)
        values = dict(cuts[start])
        for number, one in enumerate(self.slices[start:], start):
            values.update(one.run(values, one.unit is not None and quantised != (number in places)))
        return self.answers(values)

    def mixed(self, feeds: Feeds, keep: Collection[str]) -> list[Array]:
        """The outputs with every unit quantised but those named."""
        values = dict(feeds)
        for one in self.slices:
            values.update(one.run(values, one.unit is not None and one.unit.name not in keep))
        return self.answers(values)

    def answers(self, values: Values) -> list[Array]:
        return [values[name] for name in self.outputs]


def _slices(model: onnx.ModelProto, making: Making, threads: int) -> Iterator[Slice]:
    nodes = list(model.graph.node)
    ends = [*cuts(model, [unit.nodes for unit in making.prepared.units]).values(), len(nodes)]
    own = {name: unit for unit in making.prepared.units for name in unit.nodes}
    known = value_infos(model)
    outputs = {o.name for o in model.graph.output}
    start = 0
    for end in ends:
        inside = nodes[start:end]
        made = {out for node in inside for out in node.output}
        used = {name for node in inside for name in reads(node)}
        later = {name for node in nodes[end:] for name in reads(node)} | outputs
        takes = sorted(name for name in used - made if name in known)
        leaves = sorted(name for name in made & later if name)
        piece = _piece(model, inside, [known[n] for n in takes], [known[n] for n in leaves], used)
        unit = next((own[node.name] for node in inside if node.name in own), None)
        narrow = piece
        if unit is not None:
            copied = onnx.ModelProto()
            copied.CopyFrom(piece)
            narrow = quantise_static(copied, [unit], making)
        in_float = Session(piece.SerializeToString(), threads)
        quantised = in_float if unit is None else Session(narrow.SerializeToString(), threads)
        yield Slice(unit, tuple(takes), tuple(leaves), in_float, quantised)
        start = end


def _piece(
    model: onnx.ModelProto, nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], used: set[str]
) -> onnx.ModelProto:
    """A model of these nodes alone. Sizes are left open: what is static for the whole may not be told from a part."""
    piece = onnx.ModelProto()
    piece.CopyFrom(
        onnx.helper.make_model(
            onnx.helper.make_graph(
                nodes, "slice", inputs, outputs, [i for i in model.graph.initializer if i.name in used]
            ),
            opset_imports=model.opset_import,
            ir_version=model.ir_version,
        )
    )
    names = {name for node in nodes for name in (*node.input, *node.output)}
    piece.graph.value_info.extend(v for v in model.graph.value_info if v.name in names)
    piece.metadata_props.extend(model.metadata_props)
    return piece
