"""torch.export into torch.onnx, with dims declared `DYNAMIC`, named or `AUTO`.

torch.export is called here rather than through torch.onnx.export, because the latter answers a named dim that cannot
hold by fixing it and ticking every step (seen in torch 2.13; see FIELD.md).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

import torch

from fairway.convert.blocks.repeats import ShortenedModel
from fairway.convert.ladder.capture import Flat, Program, TranslationError, dynamic_axes
from fairway.convert.ladder.capture_guards import read_guards
from fairway.convert.ladder.decompose import by_node, noted_values
from fairway.convert.ladder.questions import noted_questions
from fairway.convert.ladder.tables import built_tables
from fairway.convert.remedies.contract import Case
from fairway.convert.weights.gemm import gemm_translations
from fairway.convert.weights.optimizer import optimise, quick_matching
from fairway.convert.weights.recognize import WeightAddresses
from fairway.model.dims import Size
from fairway.model.subject import Subject
from fairway.model.weight_hash import bytes_held
from fairway.model.weight_storage import Mode, choose


def export_program(
    flat: Flat, subject: Subject, case: Case, tensors: Sequence[torch.Tensor], cut: ShortenedModel, weights: Mode | None
) -> Program:
    """Return the captured program as an onnx-ir model, with what is known of the sizes it holds for."""
    with noted_questions(subject) as questions:
        program = torch.export.export(
            flat,
            tuple(tensors),
            dynamic_shapes=(dynamic_shapes(subject, case.route.dims),),
            strict=case.route.capture == "strict",
            # AUTO is the rung that lets torch have its way; what it defers to run time is judged like everything else.
            prefer_deferred_runtime_asserts_over_guards=case.route.dims == "auto",
        )
    edges = range_edges(program, subject)
    _drop_misnamed_guards(program)
    for repair in case.repairs:
        repair(program)
    outside = choose(weights, _bytes(flat.model, cut)) != "embed"
    table = {**(gemm_translations() if outside else {}), **case.translations}
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with built_tables(), by_node(), noted_values(), quick_matching():
            exported = torch.onnx.export(
                program,
                dynamo=True,
                opset_version=case.route.opset,
                custom_translation_table=table or None,
                verbose=False,
                optimize=not (outside or cut),
            )
    except Exception as error:
        raise TranslationError("\n".join((str(error), *_frames_behind(error, program)))) from error
    assert exported is not None
    if outside or cut:
        with quick_matching():
            optimise(exported.model, WeightAddresses(flat.model))
    # Read last: taking operators apart asks about sizes too.
    return exported.model, edges, read_guards(program, subject), tuple(questions)


def _bytes(model: torch.nn.Module, cut: ShortenedModel) -> int:
    """Of all weights, those of blocks that were taken out too."""
    return bytes_held(model, *cut.removed.values())


def _frames_behind(error: BaseException, program: torch.export.ExportedProgram) -> list[str]:
    """The model's frames behind the node that could not be translated: the capture noted them, the error does not.

    Without their text, which may hold the very words by which errors are known.
    """
    while error.__cause__ is not None and "translating node" not in str(error):
        error = error.__cause__
    found = re.search(r"translating node %(\w+)", str(error))
    nodes = [node for node in program.graph.nodes if found is not None and node.name == found[1]]
    lines = nodes[0].meta.get("stack_trace", "").splitlines() if nodes else []
    return [line for line in lines if line.lstrip().startswith('File "')]


def _drop_misnamed_guards(program: torch.export.ExportedProgram) -> None:
    """Lets torch 2.9 decompose what it captured.

    It checks guards while it does so, which name inputs as `forward` does; behind `*tensors` it cannot find those that
    two inputs share, and stops at "name 'L' is not defined" (no known upstream issue; seen in 2.9.1, not in 2.13, which
    has the function asked for here). The guards say nothing that ends up in a file. Can go with support for 2.9.
    """
    from torch.export import _unlift

    if not hasattr(_unlift, "_force_ep_signature_match"):
        program._guards_code = []


def dynamic_shapes(subject: Subject, how: str) -> tuple[Any, ...]:
    """The spec as torch.export wants it."""
    if how == "named":
        dims = _NamedDims(subject)
        return tuple({axis: dims.at(size) for axis, size in axes.items()} for axes in dynamic_axes(subject))
    hint = torch.export.Dim.DYNAMIC if how == "dynamic" else torch.export.Dim.AUTO
    return tuple(dict.fromkeys(axes, hint) for axes in dynamic_axes(subject))


class _NamedDims:
    """torch.export Dims by name; a multiple becomes a derived dim, a relation that torch cannot say becomes AUTO."""

    def __init__(self, subject: Subject) -> None:
        self._dims = {}
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
        dim: Any = self._dims[name]
        if slope != 1:
            dim = slope * dim
        return dim + offset if offset else dim


def range_edges(program: torch.export.ExportedProgram, subject: Subject) -> dict[str, tuple[int, ...]]:
    """Where the program's range constraints end inside the declared domain.

    torch narrows a range without a word when a branch on a size suggests it, and the file carries no trace of that.
    """
    edges: dict[str, set[int]] = {}
    inputs = set(program.graph_signature.user_inputs)
    places = [n for n in program.graph.nodes if n.op == "placeholder" and n.name in inputs]
    for node, spec in zip(places, subject.spec, strict=False):
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
