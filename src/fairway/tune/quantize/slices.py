"""The prepared graph in slices with one unit each. Every slice exists twice: in float and quantized.

A trial is a path through the slices, so nothing is quantized, saved or loaded for it. The values at each cut are kept,
so trials that agree up to a cut continue from there. The quantized slices are made by the function that makes the whole
file, so a path gives the same numbers as the file would.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx

from fairway.tune.quantize.accuracy import OrtFile
from fairway.tune.quantize.error_metrics import Array, Feeds
from fairway.tune.quantize.graph_cuts import collect_value_infos, find_cuts, list_inputs
from fairway.tune.quantize.prepare import Unit
from fairway.tune.quantize.schemes import QuantizeContext, quantize_static

Values = Mapping[str, Array]


@dataclass(frozen=True)
class Slice:
    """A part of the graph: its inputs, the outputs that others read, and sessions to run it in float or quantized."""

    unit: Unit | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    in_float: OrtFile
    quantized: OrtFile

    def run(self, values: Values, quantized: bool) -> dict[str, Array]:
        session = self.quantized if quantized else self.in_float
        return dict(zip(session.names, session({name: values[name] for name in self.inputs}), strict=True))


class SlicedModel:
    """Runs every mix of quantized and float units without making a file."""

    def __init__(self, context: QuantizeContext, threads: int = 1) -> None:
        model = context.prepared.load()
        self.outputs = [o.name for o in model.graph.output]
        self.slices = [*_make_slices(model, context, threads)]
        self.units = tuple(slice_.unit for slice_ in self.slices if slice_.unit is not None)

    def compute_cuts(self, feeds: Feeds, quantized: bool) -> list[Values]:
        """Return the values before every slice and after the last, with all units in float or all quantized."""
        values: list[Values] = [dict(feeds)]
        for slice_ in self.slices:
            values.append({**values[-1], **slice_.run(values[-1], quantized and slice_.unit is not None)})
        return values

    def run_toggled(self, cuts: Sequence[Values], places: Collection[int], quantized: bool) -> list[Array]:
        """Return the outputs with the slices at `places` computed the opposite way from the rest."""
        start = min(places)
        values = dict(cuts[start])
        for number, slice_ in enumerate(self.slices[start:], start):
            values.update(slice_.run(values, slice_.unit is not None and quantized != (number in places)))
        return self.select_outputs(values)

    def run_mix(self, feeds: Feeds, keep: Collection[str]) -> list[Array]:
        """Return the outputs with every unit quantized except those named."""
        values = dict(feeds)
        for slice_ in self.slices:
            values.update(slice_.run(values, slice_.unit is not None and slice_.unit.name not in keep))
        return self.select_outputs(values)

    def select_outputs(self, values: Values) -> list[Array]:
        return [values[name] for name in self.outputs]


def _make_slices(model: onnx.ModelProto, context: QuantizeContext, threads: int) -> Iterator[Slice]:
    nodes = list(model.graph.node)
    ends = [*find_cuts(model, [unit.nodes for unit in context.prepared.units]).values(), len(nodes)]
    unit_by_node = {name: unit for unit in context.prepared.units for name in unit.nodes}
    known = collect_value_infos(model)
    outputs = {o.name for o in model.graph.output}
    start = 0
    for end in ends:
        inside = nodes[start:end]
        written = {out for node in inside for out in node.output}
        read = {name for node in inside for name in list_inputs(node)}
        read_later = {name for node in nodes[end:] for name in list_inputs(node)} | outputs
        inputs = sorted(name for name in read - written if name in known)
        outputs_read_later = sorted(name for name in written & read_later if name)
        float_model = _extract_model(
            model, inside, [known[n] for n in inputs], [known[n] for n in outputs_read_later], read
        )
        unit = next((unit_by_node[node.name] for node in inside if node.name in unit_by_node), None)
        quantized_model = float_model
        if unit is not None:
            copied = onnx.ModelProto()
            copied.CopyFrom(float_model)
            quantized_model = quantize_static(copied, [unit], context)
        in_float = OrtFile(float_model.SerializeToString(), threads)
        quantized_session = in_float if unit is None else OrtFile(quantized_model.SerializeToString(), threads)
        yield Slice(unit, tuple(inputs), tuple(outputs_read_later), in_float, quantized_session)
        start = end


def _extract_model(
    model: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    used: set[str],
) -> onnx.ModelProto:
    """Return a model of these nodes alone. Sizes are left open: a part may not prove what is static in the whole."""
    part = onnx.ModelProto()
    part.CopyFrom(
        onnx.helper.make_model(
            onnx.helper.make_graph(
                nodes, "slice", inputs, outputs, [i for i in model.graph.initializer if i.name in used]
            ),
            opset_imports=model.opset_import,
            ir_version=model.ir_version,
        )
    )
    names = {name for node in nodes for name in (*node.input, *node.output)}
    part.graph.value_info.extend(v for v in model.graph.value_info if v.name in names)
    part.metadata_props.extend(model.metadata_props)
    return part
