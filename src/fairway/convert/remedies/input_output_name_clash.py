"""No output has the name of an input, and no output is an input.

ONNX names are unique in a graph. For an output with the name of an input, torch 2.13's dynamo exporter writes a file
that no runtime loads, and the TorchScript exporter renames the input without a warning. So the output is called
`<name>_out`, with a number if that is taken. An output that is an input, a weight or another output gets an Identity
node.

The file has the new names, and the note lists them. Refuses if all names differ. No upstream issue is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from fairway.convert.remedies.contract import Case, Match, Refusal, Remedy, add_pass
from fairway.diagnostics import Code

if TYPE_CHECKING:
    import onnx_ir as ir


def make_unique_names(inputs: Iterable[str], outputs: Iterable[str]) -> tuple[str, ...]:
    """Return the outputs' names, with a new one for each that an input or an earlier output has."""
    outputs = tuple(outputs)
    taken = set(inputs)
    names: list[str] = []
    for name in outputs:
        free, count = name, 1
        while free in taken or (free != name and free in outputs):
            free = f"{name}_out" if count == 1 else f"{name}_out{count}"
            count += 1
        taken.add(free)
        names.append(free)
    return tuple(names)


def make_separating_pass(names: tuple[str, ...]) -> Callable[[ir.Model], bool]:
    """Return a pass that makes every output a separate value, with its name from `names` if an input has its own."""

    def run(model: ir.Model) -> bool:
        graph = model.graph
        changed = separate_outputs(graph)
        inputs = {value.name for value in graph.inputs}
        for value, name in zip(graph.outputs, names, strict=True):
            if value.name in inputs:
                value.name = name
                changed = True
        return changed

    return run


def separate_outputs(graph: ir.Graph) -> bool:
    """Add an Identity for each output that is an input, a weight or another output."""
    import onnx_ir as ir

    seen = {id(v) for v in (*graph.inputs, *graph.initializers.values())}
    changed = False
    for index, value in enumerate(graph.outputs):
        if id(value) in seen:
            node = ir.node("Identity", [value])
            copy = node.outputs[0]
            copy.name, copy.shape, copy.type = value.name, value.shape, value.type
            graph.append(node)
            graph.outputs[index] = value = copy
            changed = True
        seen.add(id(value))
    return changed


def detect(case: Case) -> Match | Refusal:
    if not case.output_names:
        return Refusal("the outputs have no names yet")
    names = make_unique_names(case.input_names, case.output_names)
    renamed = [f"{old} → {new}" for old, new in zip(case.output_names, names, strict=True) if old != new]
    if not renamed:
        return Refusal("inputs and outputs have different names")
    return Match(f"outputs renamed: {', '.join(renamed)}", data=names)


def apply(case: Case, match: Match) -> AbstractContextManager[None]:
    case.output_names = match.data
    return add_pass(case, make_separating_pass(match.data))


REMEDY = Remedy(
    name="input_output_name_clash",
    cures=Code.NAME_CLASH,
    title="Gives an output another name than the input of the same name",
    stage="graph",
    affected={"torch": ">=2.9"},
    upstream=(),
    safety="Only names change, and an Identity node copies a value as it is.",
    detect=detect,
    apply=apply,
    order=10,
)
