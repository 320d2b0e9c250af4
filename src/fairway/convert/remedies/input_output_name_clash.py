"""An output never bears an input's name, nor is it one.

ONNX names are unique in a graph. Asked for an output named like an input, torch 2.13's dynamo exporter
writes a file that no runtime loads, and the TorchScript exporter renames the input without a word. So the
output is called `<name>_out`, counted up until it is unique, and an output that is an input, a weight or
another output gets an Identity node of its own.

The new names stay in the case after the capture, as the file bears them; the note lists them. Refuses where
all names differ. No upstream issue is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from fairway.convert.remedies.contract import Case, Match, Refusal, Remedy, passing

if TYPE_CHECKING:
    import onnx_ir as ir


def unique_names(inputs: Iterable[str], outputs: Iterable[str]) -> tuple[str, ...]:
    """The outputs' names, those taken by an input or by an earlier output replaced."""
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


def separate(names: tuple[str, ...]) -> Callable[[ir.Model], bool]:
    """A pass that gives every output a value of its own, and one of these names if it bears an input's."""

    def run(model: ir.Model) -> bool:
        graph = model.graph
        changed = own_values(graph)
        inputs = {value.name for value in graph.inputs}
        for value, name in zip(graph.outputs, names, strict=True):
            if value.name in inputs:
                value.name = name
                changed = True
        return changed

    return run


def own_values(graph: ir.Graph) -> bool:
    """Gives an output that is an input, a weight or another output an Identity of its own."""
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
    names = unique_names(case.input_names, case.output_names)
    renamed = [f"{old} → {new}" for old, new in zip(case.output_names, names, strict=True) if old != new]
    if not renamed:
        return Refusal("inputs and outputs have different names")
    return Match(f"outputs renamed: {', '.join(renamed)}", data=names)


def apply(case: Case, match: Match) -> AbstractContextManager[None]:
    case.output_names = match.data
    return passing(case, separate(match.data))


REMEDY = Remedy(
    name="input_output_name_clash",
    cures="FW210",
    title="Names an output apart from the input of the same name",
    stage="graph",
    affected={"torch": ">=2.9"},
    upstream=(),
    safety="Only names change, and an Identity node copies a value as it is.",
    detect=detect,
    apply=apply,
)
