"""torch.export into torch.onnx, with dims declared `DYNAMIC`, named or `AUTO`.

torch.export is called here rather than through torch.onnx.export. If a named dim cannot hold, the latter fixes it and
reports success (seen in torch 2.13; see FIELD.md).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from fairway.convert.blocks.repeats import ShortenedModel
from fairway.convert.ladder.capture_guards import read_guards
from fairway.convert.ladder.decompose import decompose_by_node, reuse_captured_values
from fairway.convert.ladder.flat_model import CapturedProgram, FlatModel, TranslationError, list_dynamic_axes
from fairway.convert.ladder.size_questions import note_questions
from fairway.convert.ladder.translation_tables import use_built_tables
from fairway.convert.remedies.contract import Case
from fairway.convert.weights.gemm import gemm_translations
from fairway.convert.weights.optimizer import match_rules_quickly, optimize_graph
from fairway.convert.weights.recognize import WeightAddresses
from fairway.model.dims import Size
from fairway.model.program_model import ProgramModel, order_inputs
from fairway.model.subject import Subject
from fairway.model.weight_hash import count_held_bytes
from fairway.model.weight_storage import WeightMode, choose_mode
from fairway.torch_internals import drop_guards_code, is_available


def export_program(
    model: FlatModel, subject: Subject, case: Case, tensors: Sequence[torch.Tensor], weights: WeightMode | None
) -> CapturedProgram:
    """Return the captured program as an onnx-ir model, with its guards and the sizes at which it is limited."""
    with note_questions(subject) as questions:
        given = take_program(subject)
        program = (
            given.program
            if given is not None
            else torch.export.export(
                model,
                tuple(tensors),
                dynamic_shapes=(make_dynamic_shapes(subject, case.route.dims),),
                strict=case.route.capture == "strict",
                # With AUTO, torch may defer assertions to run time. The file is judged like any other.
                prefer_deferred_runtime_asserts_over_guards=case.route.dims == "auto",
            )
        )
    edges = find_range_edges(program, subject)
    _drop_misnamed_guards(program)
    for repair in case.repairs:
        program = repair(program)
    outside = choose_mode(weights, _count_weight_bytes(model.model, case.cut)) != "embed"
    table = {**(gemm_translations() if outside else {}), **case.translations}
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with use_built_tables(), decompose_by_node(), reuse_captured_values(), match_rules_quickly():
            exported = torch.onnx.export(
                program,
                dynamo=True,
                opset_version=case.route.opset,
                custom_translation_table=table or None,
                verbose=False,
                optimize=not (outside or case.cut),
            )
    except Exception as error:
        raise TranslationError("\n".join((str(error), *_find_model_frames(error, program)))) from error
    assert exported is not None
    if given is not None:
        _sort_inputs(exported.model.graph, order_inputs(given, subject.shape))
    if outside or case.cut:
        with match_rules_quickly():
            optimize_graph(exported.model, WeightAddresses(model.model))
    # The guards are read last, because decomposing operators adds some.
    return CapturedProgram(exported.model, edges, read_guards(program, subject), tuple(questions))


def take_program(subject: Subject) -> ProgramModel | None:
    """Return the program that the user captured, if all its inputs and outputs are tensors."""
    model = subject.model
    return model if isinstance(model, ProgramModel) and order_inputs(model, subject.shape) is not None else None


def _sort_inputs(graph: ir.Graph, order: Sequence[int] | None) -> None:
    """Bring the inputs of a program into the order of the spec. `order` has the place in the spec of each."""
    inputs = list(graph.inputs)
    if order is not None and len(order) == len(inputs):
        graph.inputs.clear()
        graph.inputs.extend(value for _, value in sorted(zip(order, inputs, strict=True), key=lambda pair: pair[0]))


def _count_weight_bytes(model: torch.nn.Module, cut: ShortenedModel | None) -> int:
    """Count the bytes of all weights, including those of blocks that were taken out."""
    return count_held_bytes(model, *(cut.removed.values() if cut else ()))


def _find_model_frames(error: BaseException, program: torch.export.ExportedProgram) -> list[str]:
    """Return the model's frames behind the node that could not be translated; the error itself does not hold them.

    Their source text is left out, because it may contain the words by which errors are recognized.
    """
    while error.__cause__ is not None and "translating node" not in str(error):
        error = error.__cause__
    match = re.search(r"translating node %(\w+)", str(error))
    nodes = [node for node in program.graph.nodes if match is not None and node.name == match[1]]
    lines = nodes[0].meta.get("stack_trace", "").splitlines() if nodes else []
    return [line for line in lines if line.lstrip().startswith('File "')]


def _drop_misnamed_guards(program: torch.export.ExportedProgram) -> None:
    """Let torch 2.9 decompose the program that it captured.

    It checks guards meanwhile, and they name inputs as `forward` does. Behind `*tensors` it cannot find guards that two
    inputs share, and stops at "name 'L' is not defined" (no known upstream issue; seen in 2.9.1, not in 2.13, which has
    the function tested for here). Nothing of these guards reaches a file. This can go with support for 2.9.
    """
    if not is_available("force_signature_match"):
        drop_guards_code(program)


def make_dynamic_shapes(subject: Subject, how: str) -> tuple[object, ...]:
    """Return the spec in the form that torch.export takes."""
    if how == "named":
        dims = _NamedDims(subject)
        return tuple({axis: dims.at(size) for axis, size in axes.items()} for axes in list_dynamic_axes(subject))
    hint = torch.export.Dim.DYNAMIC if how == "dynamic" else torch.export.Dim.AUTO
    return tuple(dict.fromkeys(axes, hint) for axes in list_dynamic_axes(subject))


class _NamedDims:
    """torch.export Dims by name. A multiple becomes a derived dim, a relation beyond torch's own becomes AUTO."""

    def __init__(self, subject: Subject) -> None:
        self._dims: dict[str, Any] = {}
        for dim in subject.domain.dims:
            sizes = dim.sizes
            if dim.multiple > 1:
                base = torch.export.Dim(
                    f"{dim.name}_by_{dim.multiple}", min=sizes[0] // dim.multiple, max=sizes[-1] // dim.multiple
                )
                self._dims[dim.name] = dim.multiple * base
            else:
                self._dims[dim.name] = torch.export.Dim(dim.name, min=sizes[0], max=sizes[-1])

    def at(self, size: Size) -> Any:
        if size.affine is None:
            return torch.export.Dim.AUTO
        name, slope, offset = size.affine
        dim = self._dims[name]
        if slope != 1:
            dim = slope * dim
        return dim + offset if offset else dim


def find_range_edges(program: torch.export.ExportedProgram, subject: Subject) -> dict[str, tuple[int, ...]]:
    """Return the sizes at which the program's range constraints end inside the declared domain.

    torch narrows a range silently when a branch on a size suggests it, and the file shows no trace of that.
    """
    edges: dict[str, set[int]] = {}
    inputs = set(program.graph_signature.user_inputs)
    placeholders = [n for n in program.graph.nodes if n.op == "placeholder" and n.name in inputs]
    for node, spec in zip(placeholders, subject.spec, strict=False):
        shape = getattr(node.meta.get("val"), "shape", ())
        for size, symbol in zip(spec.shape, shape, strict=False):
            expression = getattr(getattr(symbol, "node", None), "expr", None)
            bounds = program.range_constraints.get(expression)
            if bounds is None or size.affine is None:
                continue
            name, slope, offset = size.affine
            dim = subject.domain[name]
            for end, step in ((bounds.lower, -1), (bounds.upper, 1)):
                if not getattr(end, "is_Integer", False):
                    continue  # open-ended
                value = (int(end) - offset) // slope
                near = [n for n in (value, value + step * dim.multiple) if n in dim.sizes]
                edges.setdefault(name, set()).update(near)
    return {name: tuple(sorted(values)) for name, values in edges.items() if values}
