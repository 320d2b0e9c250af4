"""A program of torch.export as a model: its capture exists already, with the dims that it keeps dynamic."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from fairway.diagnostics import Code, Finding
from fairway.diagnostics.errors import complain
from fairway.model.dims import Domain, Size
from fairway.model.signatures import read_forward_signature
from fairway.model.spec import TensorSpec
from fairway.model.tree import Slot, Tree, flatten, make_template
from fairway.model.user_types import UserModel
from fairway.torch_internals import tree_flatten

UNBOUNDED_SIZE = 2**40
"""A program without an upper bound for a size states one near the largest integer."""


class ProgramModel(torch.nn.Module):
    """Runs a program. It has one mode, that of its capture."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        super().__init__()
        self.program: torch.export.ExportedProgram = program
        self.code = program.module()
        for part in self.modules():
            part.training = False
        self.forward = self.code.forward

    def train(self, mode: bool = True) -> ProgramModel:
        return self


def load_program(path: Path) -> torch.export.ExportedProgram:
    """Load a .pt2 file."""
    try:
        return torch.export.load(path)
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        seen = f"{path.name} is not a program that torch.export.load can read: {type(error).__name__}: {first:.200}"
        raise complain(Code.CHECKPOINT_UNREADABLE, seen) from error


def list_input_shapes(program: torch.export.ExportedProgram) -> list[tuple[UserModel, ...] | None]:
    """Return the shape of each of the program's inputs, and None for an input that is not a tensor."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    inputs = [values.get(name) if isinstance(name, str) else None for name in program.graph_signature.user_inputs]
    return [tuple(value.shape) if isinstance(value, torch.Tensor) else None for value in inputs]


def match_call(model: ProgramModel, call: tuple[Tree, Tree]) -> list[Tree] | None:
    """Return the leaves of a call in the order of the program's inputs, or None if the call has another structure."""
    structure: UserModel = model.program.call_spec.in_spec
    args, kwargs = call
    try:
        given = read_forward_signature(model).bind(*args, **kwargs).arguments
    except TypeError:
        return None
    values = list(given.values())
    count = structure.child(0).num_children
    names = tuple(structure.child(1).context or ())
    if len(values) < count or set(list(given)[count:]) != set(names):
        return None
    leaves, own = tree_flatten((tuple(values[:count]), {name: given[name] for name in names}))
    return list(leaves) if own == structure else None


def order_inputs(model: ProgramModel, call: tuple[Tree, Tree]) -> list[int] | None:
    """Return the place in the spec of each of the program's inputs, or None if some inputs or outputs are not tensors.

    Such a program is captured again, behind a signature of tensors alone.
    """
    leaves = match_call(model, call)
    if leaves is None or not all(isinstance(leaf, Slot) for leaf in leaves):
        return None
    is_plain = all(isinstance(name, str) for name in model.program.graph_signature.user_outputs)
    return [leaf.index for leaf in leaves] if is_plain else None


def describe_program(model: ProgramModel, call: tuple[Tree, Tree]) -> Finding:
    """Return the finding that says whether the program was translated as it is."""
    taken = order_inputs(model, call) is not None
    again = "it was captured again, because some inputs or outputs are not tensors"
    how = "it was translated as it is" if taken else again
    return Finding(Code.PROGRAM_GIVEN, f"the model is an ExportedProgram; {how}")


@dataclass(frozen=True)
class OwnInputs:
    """The inputs that a program was captured with: the call, the sizes by input, and the bounds of the dims."""

    call: Tree
    dims: dict[str, list[str]]
    bounds: dict[str, tuple[int, int]]


def read_own_inputs(model: ProgramModel) -> OwnInputs:
    """Return the example call that a program carries, with the dims that it keeps dynamic."""
    program = model.program
    if program.example_inputs is None:
        raise complain(Code.NO_INPUTS, "the program carries no example inputs")
    args, kwargs = program.example_inputs
    template = make_template((tuple(args), dict(kwargs)))
    named = read_forward_signature(model).bind(*args, **kwargs).arguments
    names = [leaf.name for leaf in flatten(dict(named)) if isinstance(leaf.value, torch.Tensor)]
    symbols: dict[str, str] = {}
    bounds: dict[str, tuple[int, int]] = {}
    dims: dict[str, list[str]] = {}
    for leaf, shape in zip(match_call(model, template) or (), list_input_shapes(program), strict=False):
        if isinstance(leaf, Slot) and shape is not None:
            name = names[leaf.index]
            dims[name] = [
                _name_size(program, f"{name}_{axis}", size, symbols, bounds) for axis, size in enumerate(shape)
            ]
    return OwnInputs((tuple(args), dict(kwargs)), dims, bounds)


def _name_size(
    program: torch.export.ExportedProgram,
    place: str,
    size: UserModel,
    symbols: dict[str, str],
    bounds: dict[str, tuple[int, int]],
) -> str:
    """Return a size of a program as a spec writes it. A symbol is named after the first place it is seen at."""
    if isinstance(size, int):
        return str(size)
    expression = size.node.expr
    for symbol in sorted(expression.free_symbols, key=str):
        name = symbols.setdefault(str(symbol), re.sub(r"\W", "_", place))
        limits = program.range_constraints.get(symbol)
        low: UserModel = getattr(limits, "lower", None)
        high: UserModel = getattr(limits, "upper", None)
        if getattr(high, "is_Integer", False) and int(high) < UNBOUNDED_SIZE:
            bounds[name] = (max(1, int(low)), int(high))
    return re.sub(r"[A-Za-z_]\w*", lambda match: symbols.get(match[0], match[0]), str(expression))


def check_program_sizes(
    model: ProgramModel, call: tuple[Tree, Tree], spec: Sequence[TensorSpec], domain: Domain
) -> None:
    """Refuse declared sizes that the program does not accept."""
    leaves = match_call(model, call)
    if leaves is None:
        return
    for leaf, shape in zip(leaves, list_input_shapes(model.program), strict=True):
        if not isinstance(leaf, Slot) or shape is None:
            continue
        item = spec[leaf.index]
        if len(item.shape) != len(shape):
            seen = f"{item.name} is declared with {len(item.shape)} axes; the program takes {len(shape)}"
            raise complain(Code.BEYOND_THE_PROGRAM, seen)
        for axis, (size, known) in enumerate(zip(item.shape, shape, strict=True)):
            _check_size(model.program, f"{item.name} axis {axis}", size, known, domain)


def _check_size(
    program: torch.export.ExportedProgram, place: str, size: Size, known: UserModel, domain: Domain
) -> None:
    least, most = (size.at({name: end(domain[name].sizes) for name in size.names}) for end in (min, max))
    low, high = _read_limits(program, known)
    if least < low or most > high:
        accepted = str(low) if low == high else f"{low} and more" if high >= UNBOUNDED_SIZE else f"{low}..{high}"
        declared = str(size) if size.constant_value is not None else f"{size} {least}..{most}"
        raise complain(Code.BEYOND_THE_PROGRAM, f"{place} is declared {declared}; the program accepts {accepted}")


def _read_limits(program: torch.export.ExportedProgram, size: UserModel) -> tuple[int, int]:
    """Return the smallest and largest size that the program accepts on an axis, as far as it states them."""
    if isinstance(size, int):
        return size, size
    bounds = program.range_constraints.get(size.node.expr)
    low: UserModel = getattr(bounds, "lower", None)
    high: UserModel = getattr(bounds, "upper", None)
    return (
        int(low) if getattr(low, "is_Integer", False) else 0,
        int(high) if getattr(high, "is_Integer", False) else UNBOUNDED_SIZE,
    )
