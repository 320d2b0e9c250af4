"""Adds translations of operators that torch.onnx lacks or translates wrongly.

torch 2.13 ends with "No ONNX function found" for some sixty operators that ONNX can express, and translates a dozen
others wrongly for some arguments. `fairway.convert.translations` has all of them. If torch's own translation is right
for a call, it is used. Fake quantization has no shapes to be captured with, and gets them here. Functions that fix
sizes while they are captured are computed by other functions. Some operators are not translated but decomposed: they
are written in torch, and replaced by their parts in torch.export's program.

The plug-ins' translations are added too. This is the first remedy of its stage, so that entries of the others win.

Refuses under the TorchScript exporter, which takes no translations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fairway.convert.remedies.contract import (
    Applied,
    Case,
    Match,
    Refusal,
    Remedy,
    Translation,
    add_translations,
    track_use,
)
from fairway.diagnostics import Code
from fairway.torch_internals import OpOverload, Untyped, decomposition_table, read_schema

if TYPE_CHECKING:
    from fairway.convert.translations.replacements import Replacement


def detect(case: Case) -> Match | Refusal:
    if case.route.is_traced:
        return Refusal("the TorchScript exporter takes no translations")
    return Match("translations added for operators that torch.onnx lacks or translates wrongly")


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    # These import onnxscript, which is slow, so they are imported only when an export is made.
    from fairway.convert.remedies.plugin_remedies import load_plugin_translations
    from fairway.convert.translations import TRANSLATIONS
    from fairway.convert.translations.better import DEFECTS, choose_translation, find_torch_translation
    from fairway.convert.translations.decompositions import DECOMPOSITIONS
    from fairway.convert.translations.fake_quantize import register_shapes
    from fairway.convert.translations.replacements import REPLACEMENTS
    from fairway.convert.translations.substitutes import SubstituteMode, keep_causal_flags

    table: dict[object, Translation] = {}
    for operator, ours in TRANSLATIONS.items():
        theirs = find_torch_translation(operator)
        if theirs is None:
            table[operator] = ours
        elif operator in DEFECTS:
            table[operator] = choose_translation(track_use(case, ours), theirs, DEFECTS[operator].is_present)
    table |= load_plugin_translations()
    name = case.applying

    def note_use() -> None:
        case.used.add(name)

    with ExitStack() as stack:
        stack.enter_context(register_shapes())
        if case.route.capture != "strict":  # strict capture reads a mode's own code as part of the model
            stack.enter_context(keep_causal_flags(note_use))
            stack.enter_context(SubstituteMode(note_use))
        stack.enter_context(add_translations(case, table))
        stack.enter_context(_add_decompositions(case, DECOMPOSITIONS))
        stack.enter_context(_replace_wrong_calls(case, REPLACEMENTS))
        yield


@contextmanager
def _add_decompositions(case: Case, table: Mapping[OpOverload, Translation]) -> Applied:
    """Let torch decompose these operators by our functions, also where they are parts of other operators."""
    functions = {operator: track_use(case, function) for operator, function in table.items()}
    registered: Untyped = decomposition_table
    before = {operator: registered[operator] for operator in functions if operator in registered}
    registered.update(functions)
    try:
        yield
    finally:
        for operator in functions:
            registered.pop(operator)
        registered.update(before)


@contextmanager
def _replace_wrong_calls(case: Case, table: Mapping[OpOverload, Replacement]) -> Applied:
    """Replace calls that torch.onnx translates wrongly in the program, before it looks for translations."""
    from fairway.convert.translations.program_repairs import repair_program

    name = case.applying

    def repair(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
        if repair_program(program):
            case.used.add(name)
        calls = [node for node in program.graph.nodes if node.target in table]
        if not any(table[node.target].is_present(_read_arguments(node)) for node in calls):
            return program
        case.used.add(name)
        functions = {operator: _make_function(operator, replacement) for operator, replacement in table.items()}
        replaced: torch.export.ExportedProgram = program.run_decompositions(functions)
        return replaced

    case.repairs.append(repair)
    try:
        yield
    finally:
        case.repairs.remove(repair)


def _make_function(operator: OpOverload, replacement: Replacement) -> Callable[..., object]:
    """Return a function that leaves the right calls of a wrong operator as they are."""

    def replace(*args: object, **kwargs: object) -> object:
        arguments = _bind_arguments(operator, args, kwargs)
        return replacement.function(*args, **kwargs) if replacement.is_present(arguments) else NotImplemented

    return replace


def _read_arguments(node: Node) -> dict[str, object]:
    assert isinstance(node.target, OpOverload)
    return _bind_arguments(node.target, node.args, node.kwargs)


def _bind_arguments(operator: OpOverload, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
    names = [argument.name for argument in read_schema(operator).arguments]
    return {**dict(zip(names, args, strict=False)), **kwargs}


REMEDY = Remedy(
    name="missing_translation",
    cures=Code.NO_TRANSLATION,
    title="Translates operators that the exporter lacks",
    stage="translation",
    affected={"torch": "==2.13.*"},
    upstream=(),
    safety="Each translation is tested against PyTorch over sizes, types and odd values, and the file is judged.",
    detect=detect,
    apply=apply,
    order=10,
)
