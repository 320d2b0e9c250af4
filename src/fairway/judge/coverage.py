"""Which sides of each branch of the model's own code the samples take, and which branches depend on the inputs.

Followed instruction by instruction while PyTorch runs, in the user's code and in libraries other than torch. A branch
depends on the inputs if a number in its condition differs between samples, or if a tensor's values are read while it is
decided. Branches on settings never change, and are left out.
"""

from __future__ import annotations

import ast
import dis
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from fairway.judge.branch_trace import Span, TraceSite, jumps_of, position, span_at
from fairway.judge.conditions import ConditionSource, header_of, span_of
from fairway.judge.leaves import ConditionPart, Seen, leaves_of, names_assigned
from fairway.model.sample import Sample
from fairway.model.source import is_models

OBSERVATIONS_PER_RUN = 8
"""Observations of one branch that are kept for each run."""

_READS = (
    torch.Tensor.__bool__,
    torch.Tensor.__int__,
    torch.Tensor.__float__,
    torch.Tensor.__index__,
    torch.Tensor.item,
    torch.Tensor.tolist,
    torch.Tensor.numpy,
    torch.equal,
    torch.Tensor.equal,
    torch.allclose,
    torch.Tensor.allclose,
)
"""Functions that hand a tensor's values to Python."""


@dataclass(frozen=True)
class Place:
    """An expression in a file."""

    file: str
    span: Span

    def is_within(self, outer: Span) -> bool:
        inner = self.span
        return (outer[0], outer[2]) <= (inner[0], inner[2]) and (inner[1], inner[3]) <= (outer[1], outer[3])


@dataclass(frozen=True)
class Observation:
    """One decision: in which run, what its condition's parts were, and how it went."""

    run: int
    values: tuple[Seen, ...]
    answer: bool


@dataclass
class Branch:
    """A jump that a run decided."""

    site: TraceSite
    header: ConditionSource
    test: ast.expr
    """The part of the condition that this jump decides."""
    leaves: tuple[ConditionPart, ...]
    answers: set[bool] = field(default_factory=set)
    observations: list[Observation] = field(default_factory=list)
    kept_of_run: tuple[int, int] = (-1, 0)
    """The latest run, and how many of its observations are kept."""

    @property
    def missing(self) -> bool | None:
        """The answer that was never given, or None if both were."""
        return None if len(self.answers) != 1 else not next(iter(self.answers))

    def wants_more(self, run: int) -> bool:
        """Whether another observation of this run would be kept."""
        latest, kept = self.kept_of_run
        return latest != run or kept < OBSERVATIONS_PER_RUN

    def keep(self, observation: Observation) -> None:
        latest, kept = self.kept_of_run
        self.kept_of_run = observation.run, kept + 1 if latest == observation.run else 1
        self.observations.append(observation)

    def varies(self) -> bool:
        """Whether a part of the condition had different values in two runs, at the same place of their order.

        What differs within a run alone, as in a loop over settings, does not depend on the inputs.
        """
        runs: dict[int, list[tuple[Seen, ...]]] = {}
        for observation in self.observations:
            runs.setdefault(observation.run, []).append(observation.values)
        first, *others = runs.values()
        return any(_differ(a, b) for other in others for a, b in zip(first, other, strict=False))


class Coverage:
    """Branches that were decided in the runs so far."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.branches: dict[TraceSite, Branch] = {}
        self.reads: set[Place] = set()
        """Expressions of the model's own code during which a tensor's values were read."""
        self.drawing: list[Sample] = []
        """Samples at which the model drew random numbers."""
        self._left_out: set[TraceSite] = set()
        self._constants = {id(t) for t in (*model.parameters(), *model.buffers())}

    @contextmanager
    def following(self, run: int, reads: bool = False) -> Iterator[None]:
        """Follow what runs inside; `reads` also notes where values of tensors are read, which takes longer."""

        def enter(frame: types.FrameType, event: str, _: Any) -> Any:
            if not is_models(frame.f_code.co_filename):
                return None
            jumps = jumps_of(frame.f_code)
            if not jumps or all(site in self._left_out for _, site in jumps.values()):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            return self._tracer(jumps, run)

        before = sys.gettrace()
        mode: AbstractContextManager[object] = _Reads(self.reads, self._constants) if reads else nullcontext()
        with mode:
            sys.settrace(enter)
            try:
                yield
            finally:
                sys.settrace(before)

    def _tracer(self, jumps: Mapping[int, tuple[int, TraceSite]], run: int) -> Callable[..., Any]:
        last = -1
        values: tuple[Seen, ...] = ()

        def at(frame: types.FrameType, event: str, _: Any) -> Any:
            nonlocal last, values
            if event != "opcode":
                return at
            here = frame.f_lasti
            if last in jumps and here != jumps[last][1].offset:
                straight, site = jumps[last]
                self._decided(site, run, values, (here == straight) == (site.kind != "true"))
            if here in jumps:
                branch = self._branch(jumps[here][1])
                read = branch.leaves if branch is not None and branch.wants_more(run) else ()
                values = tuple(leaf.read(frame) for leaf in read)
            last = here
            return at

        return at

    def _branch(self, site: TraceSite) -> Branch | None:
        if site in self._left_out:
            return None
        branch = self.branches.get(site)
        if branch is None:
            branch = _make_branch(site)
            if branch is None:
                self._left_out.add(site)
                return None
            self.branches[site] = branch
        return branch

    def _decided(self, site: TraceSite, run: int, values: tuple[Seen, ...], answer: bool) -> None:
        branch = self.branches.get(site)
        if branch is None:
            return
        branch.answers.add(answer)
        if branch.wants_more(run) and len(values) == len(branch.leaves):
            branch.keep(Observation(run, values, answer))

    def open_branches(self) -> list[Branch]:
        """Return the branches that depend on the inputs and of which one side was never taken."""
        return [b for b in self.branches.values() if b.missing is not None and self._is_open(b)]

    def _is_open(self, branch: Branch) -> bool:
        return branch.missing not in branch.header.raises and self.depends_on_inputs(branch)

    def depends_on_inputs(self, branch: Branch) -> bool:
        """Whether the inputs can change the answer: its numbers vary, or values of tensors are read for it."""
        if not branch.observations or not _is_about_numbers(branch.test):
            return False
        if branch.varies():
            return True
        return bool(self.lines_read_for(branch))

    def lines_read_for(self, branch: Branch) -> frozenset[tuple[str, int]]:
        """Return the lines at which values are read for a condition; none if its numbers vary by themselves."""
        if branch.varies() or not _can_read_values(branch):
            return frozenset()
        file = branch.site.code.co_filename
        asked, jump = span_of(branch.test), position(branch.site)  # `if not x:` reads x in the jump itself
        before = self._lines_assigning(branch)
        return frozenset(
            (file, read.span[0])
            for read in self.reads
            if read.file == file and (read.is_within(asked) or read.span == jump or read.span[0] in before)
        )

    def lines_deciding(self, branch: Branch) -> list[tuple[str, int]]:
        """Return the lines of a condition, and those that assign the names that it consists of."""
        first, last = branch.header.asked[:2]
        lines = (*range(first, last + 1), *self._lines_assigning(branch))
        return [(branch.site.code.co_filename, line) for line in lines]

    def _lines_assigning(self, branch: Branch) -> set[int]:
        assigned = names_assigned(branch.site.code.co_filename, branch.site.code.co_firstlineno)
        return {line for leaf in branch.leaves for line in assigned.get(leaf.text, ())}


_STRUCTURAL = re.compile(
    r"\.(dim\(\)|ndim|shape(\[[^]]*\])?|size\([^)]*\)|dtype|device|numel\(\)|training|requires_grad|is_cuda"
    r"|is_floating_point\(\)|is_complex\(\))$|^len\(|^self\.[\w.]+$"
)
"""Parts of a condition that are about the structure of a tensor or about settings. They depend on the inputs only if
they were seen to vary."""


def _differ(one: Sequence[Seen], other: Sequence[Seen]) -> bool:
    """Whether two observations have different numbers in one place."""
    return any(isinstance(a, float) and isinstance(b, float) and a != b for a, b in zip(one, other, strict=True))


def _is_about_numbers(test: ast.expr) -> bool:
    """Whether a condition can depend on sizes or values; questions about types, None and membership can not."""
    match test:
        case ast.Compare(_, [ast.Is() | ast.IsNot() | ast.In() | ast.NotIn()], _) | ast.Constant():
            return False
        case ast.Call(ast.Name("isinstance" | "hasattr" | "callable" | "exists")):
            return False
    return True


def _can_read_values(branch: Branch) -> bool:
    """Whether a condition can be about values; questions about structure are about sizes at most."""
    texts = [leaf.text for leaf in branch.leaves]
    return not texts or not all(_STRUCTURAL.search(text) for text in texts)


def _make_branch(site: TraceSite) -> Branch | None:
    """Return the branch at a jump, or None if the jump is not a question of the model's."""
    if site.kind in ("loop", "none"):
        return None
    header = header_of(site)
    if header is None or header.test is None or header.kind == "for":
        return None
    test = _part(header.test, site)
    return Branch(site, header, test, leaves_of(test))


def _part(test: ast.expr, site: TraceSite) -> ast.expr:
    """Return the part of a condition that a jump decides: what the instruction before the jump computes.

    The jumps of a chain such as `0 < x < 1` all have the place of the whole; they follow each other in its order.
    """
    before = [offset for offset in _offsets(site.code) if offset < site.offset]
    spans = [span_at(site.code, before[-1])] if before else []
    spans.append(position(site))
    nodes = [node for node in ast.walk(test) if isinstance(node, ast.expr)]
    chosen = next((node for span in spans for node in nodes if span_of(node) == span), test)
    while isinstance(chosen, ast.UnaryOp) and isinstance(chosen.op, ast.Not):
        chosen = chosen.operand
    if isinstance(chosen, ast.Compare) and len(chosen.ops) > 1:
        alike = [s for _, s in dict.fromkeys(jumps_of(site.code).values()) if position(s) == position(site)]
        number = min(alike.index(site), len(chosen.ops) - 1) if site in alike else 0
        items = [chosen.left, *chosen.comparators]
        pair = ast.Compare(items[number], [chosen.ops[number]], [items[number + 1]])
        return ast.copy_location(pair, chosen)
    return chosen


@cache
def _offsets(code: types.CodeType) -> tuple[int, ...]:
    """Return where a function's instructions are, without those that compute nothing."""
    idle = ("EXTENDED_ARG", "CACHE", "NOP", "PRECALL", "COPY", "SWAP", "POP_TOP")
    return tuple(one.offset for one in dis.get_instructions(code) if one.opname not in idle)


class _Reads(TorchFunctionMode):
    """Notes the expressions of the model's own code during which a tensor's values are read, callers included."""

    def __init__(self, places: set[Place], constants: set[int]) -> None:
        super().__init__()
        self._places, self._constants = places, constants

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        if func in _READS and id(args[0]) not in self._constants:
            frame: Any = sys._getframe(1)
            while frame is not None:
                if is_models(frame.f_code.co_filename):
                    self._places.add(Place(frame.f_code.co_filename, span_at(frame.f_code, frame.f_lasti)))
                frame = frame.f_back
        return func(*args, **(kwargs or {}))
