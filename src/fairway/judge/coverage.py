"""Record the sides of each branch of the model's own code that samples take, and find branches that depend on inputs.

The code is followed instruction by instruction while PyTorch runs, in the user's code and in libraries other than
torch. A branch depends on the inputs if a number in its condition differs between samples, or if a tensor's values are
read for its condition. Branches on settings never change, and are left out.
"""

from __future__ import annotations

import ast
import dis
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache

import torch

from fairway.judge.branch_trace import Span, TraceSite, find_jumps, find_site_span, find_span
from fairway.judge.conditions import ConditionSource, find_condition, find_outcomes, get_span
from fairway.judge.leaves import ConditionPart, PlainValue, find_assignments, find_leaves
from fairway.judge.value_reads import Place, ReadRecorder, Stack, ValueRead
from fairway.model.call_trace import TraceFunction, trace_calls
from fairway.model.sample import Sample
from fairway.model.source import is_model_source
from fairway.torch_internals import DisableTorchFunction

MAX_OBSERVATIONS_PER_RUN = 8
"""At most this many observations of one branch are kept for each run."""


@dataclass(frozen=True)
class Observation:
    """One decision: the run, the values of its condition's parts, and the answer."""

    run: int
    values: tuple[PlainValue, ...]
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
    """The latest run, and the number of its observations that are kept."""

    @property
    def missing_answer(self) -> bool | None:
        """The answer that was never seen, or None if both were."""
        return None if len(self.answers) != 1 else not next(iter(self.answers))

    def is_input_check(self) -> bool:
        """Return whether the answer that was never seen would only raise."""
        if self.missing_answer is None or self.header.test is None:
            return False
        return find_outcomes(self.header.test, self.test, self.missing_answer) <= self.header.raises

    def has_room(self, run: int) -> bool:
        """Return whether another observation of this run would be kept."""
        latest, kept = self.kept_of_run
        return latest != run or kept < MAX_OBSERVATIONS_PER_RUN

    def keep(self, observation: Observation) -> None:
        latest, kept = self.kept_of_run
        self.kept_of_run = observation.run, kept + 1 if latest == observation.run else 1
        self.observations.append(observation)

    def is_varying(self) -> bool:
        """Return whether a part of the condition had different values in two runs, at the same place in their order.

        Values that differ only within a run, as in a loop over settings, do not depend on the inputs.
        """
        runs: dict[int, list[tuple[PlainValue, ...]]] = {}
        for observation in self.observations:
            runs.setdefault(observation.run, []).append(observation.values)
        first, *others = runs.values()
        return any(_has_different_numbers(a, b) for other in others for a, b in zip(first, other, strict=False))


class Coverage:
    """Branches that were decided in the runs so far."""

    def __init__(self) -> None:
        self.branches: dict[TraceSite, Branch] = {}
        self.reads: dict[Stack, ValueRead] = {}
        """Reads of values that depend on the inputs, by the expressions that were running."""
        self.drawing: list[Sample] = []
        """Samples at which the model drew random numbers."""
        self._left_out: set[TraceSite] = set()

    @contextmanager
    def follow(self, run: int, inputs: Sequence[torch.Tensor] | None = None) -> Iterator[None]:
        """Follow the code that runs inside. With the `inputs`, reads of values that depend on them are recorded too.

        That takes longer.
        """

        def enter(frame: types.FrameType, event: str, _: object) -> TraceFunction | None:
            if not is_model_source(frame.f_code.co_filename):
                return None
            jumps = find_jumps(frame.f_code)
            if not jumps or all(site in self._left_out for _, site in jumps.values()):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            return self._make_tracer(jumps, run)

        mode: AbstractContextManager[object] = (
            nullcontext() if inputs is None else ReadRecorder(self.reads, run, inputs)
        )
        with mode, trace_calls(enter):
            yield

    def _make_tracer(self, jumps: Mapping[int, tuple[int, TraceSite]], run: int) -> TraceFunction:
        last = -1
        values: tuple[PlainValue, ...] = ()

        def trace_instruction(frame: types.FrameType, event: str, _: object) -> TraceFunction:
            nonlocal last, values
            if event != "opcode":
                return trace_instruction
            here = frame.f_lasti
            if last in jumps and here != jumps[last][1].offset:
                straight, site = jumps[last]
                self._record_decision(site, run, values, (here == straight) == (site.kind != "true"))
            if here in jumps:
                branch = self._get_branch(jumps[here][1])
                read = branch.leaves if branch is not None and branch.has_room(run) else ()
                with DisableTorchFunction() if read else nullcontext():  # this is not the model's own reading
                    values = tuple(leaf.read(frame) for leaf in read)
            last = here
            return trace_instruction

        return trace_instruction

    def _get_branch(self, site: TraceSite) -> Branch | None:
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

    def _record_decision(self, site: TraceSite, run: int, values: tuple[PlainValue, ...], answer: bool) -> None:
        branch = self.branches.get(site)
        if branch is None:
            return
        branch.answers.add(answer)
        if branch.has_room(run) and len(values) == len(branch.leaves):
            branch.keep(Observation(run, values, answer))

    def find_open_branches(self) -> list[Branch]:
        """Return the branches that depend on the inputs and of which one side was never taken."""
        return [b for b in self.branches.values() if b.missing_answer is not None and self._is_open(b)]

    def _is_open(self, branch: Branch) -> bool:
        return not branch.is_input_check() and self.depends_on_inputs(branch)

    def depends_on_inputs(self, branch: Branch) -> bool:
        """Return whether the inputs can change the answer: its numbers vary, or values of tensors are read for it."""
        if not branch.observations or not _is_about_numbers(branch.test):
            return False
        if branch.is_varying():
            return True
        return bool(self.find_lines_read_for(branch))

    def find_lines_read_for(self, branch: Branch) -> frozenset[tuple[str, int]]:
        """Return the lines at which values are read for a condition, or nothing if its numbers vary by themselves."""
        if branch.is_varying() or not _can_read_values(branch):
            return frozenset()
        file = branch.site.code.co_filename
        question, jump = get_span(branch.test), find_site_span(branch.site)  # `if not x:` reads x in the jump itself
        assigning_lines = self._find_assigning_lines(branch)
        return frozenset(
            (file, read.span[0])
            for stack in self.reads
            for read in stack
            if read.file == file and (read.is_within(question) or read.span == jump or read.span[0] in assigning_lines)
        )

    def find_loose_reads(self) -> list[tuple[Stack, ValueRead]]:
        """Return the reads that no branch asks for, which Python may use without an `if`."""
        known: dict[str, tuple[set[int], list[Span]]] = {}
        for branch in self.branches.values():
            lines, spans = known.setdefault(branch.site.code.co_filename, (set(), []))
            lines |= self._find_assigning_lines(branch)
            spans += [branch.header.question, find_site_span(branch.site)]

        def is_asked(place: Place) -> bool:
            lines, spans = known.get(place.file, (set(), []))
            return place.span[0] in lines or any(place.is_within(span) for span in spans)

        return [
            (stack, read) for stack, read in self.reads.items() if not read.is_size and not any(map(is_asked, stack))
        ]

    def find_deciding_lines(self, branch: Branch) -> list[tuple[str, int]]:
        """Return the lines of a condition, and those that assign the names that it consists of."""
        first, last = branch.header.question[:2]
        lines = (*range(first, last + 1), *self._find_assigning_lines(branch))
        return [(branch.site.code.co_filename, line) for line in lines]

    def _find_assigning_lines(self, branch: Branch) -> set[int]:
        assigned = find_assignments(branch.site.code.co_filename, branch.site.code.co_firstlineno)
        return {line for leaf in branch.leaves for line in assigned.get(leaf.text, ())}


_STRUCTURAL_PART = re.compile(
    r"\.(dim\(\)|ndim|shape(\[[^]]*\])?|size\([^)]*\)|dtype|device|numel\(\)|training|requires_grad|is_cuda"
    r"|is_floating_point\(\)|is_complex\(\))$|^len\(|^self\.[\w.]+$"
)
"""Parts of a condition about the structure of a tensor or about settings. They depend on the inputs only if they vary
between runs."""


def _has_different_numbers(first: Sequence[PlainValue], second: Sequence[PlainValue]) -> bool:
    """Return whether two observations have different numbers in one place."""
    pairs = zip(first, second, strict=True)
    return any(isinstance(a, float | tuple) and isinstance(b, float | tuple) and a != b for a, b in pairs)


def _is_about_numbers(test: ast.expr) -> bool:
    """Return whether a condition can depend on sizes or values. Those on types and None cannot."""
    match test:
        case ast.Compare(_, [ast.Is() | ast.IsNot()], _) | ast.Constant():
            return False
        case ast.Call(ast.Name("isinstance" | "hasattr" | "callable" | "exists")):
            return False
    return True


def _can_read_values(branch: Branch) -> bool:
    """Return whether a condition can be about values. Conditions on structure are about sizes at most."""
    texts = [leaf.text for leaf in branch.leaves]
    return not texts or not all(_STRUCTURAL_PART.search(text) for text in texts)


def _make_branch(site: TraceSite) -> Branch | None:
    """Return the branch at a jump, or None if the jump belongs to no condition of the model."""
    if site.kind in ("loop", "none"):
        return None
    header = find_condition(site)
    if header is None or header.test is None or header.kind == "for":
        return None
    test = _find_decided_part(header.test, site)
    return Branch(site, header, test, find_leaves(test))


def _find_decided_part(test: ast.expr, site: TraceSite) -> ast.expr:
    """Return the part of a condition that a jump decides: the result of the instruction before the jump.

    The jumps of a chain such as `0 < x < 1` all have the place of the entire chain, and follow its order.
    """
    earlier_offsets = [offset for offset in _list_offsets(site.code) if offset < site.offset]
    spans = [find_span(site.code, earlier_offsets[-1])] if earlier_offsets else []
    spans.append(find_site_span(site))
    nodes = [node for node in ast.walk(test) if isinstance(node, ast.expr)]
    chosen = next((node for span in spans for node in nodes if get_span(node) == span), test)
    while isinstance(chosen, ast.UnaryOp) and isinstance(chosen.op, ast.Not):
        chosen = chosen.operand
    if isinstance(chosen, ast.Compare) and len(chosen.ops) > 1:
        alike = [
            s for _, s in dict.fromkeys(find_jumps(site.code).values()) if find_site_span(s) == find_site_span(site)
        ]
        number = min(alike.index(site), len(chosen.ops) - 1) if site in alike else 0
        items = [chosen.left, *chosen.comparators]
        pair = ast.Compare(items[number], [chosen.ops[number]], [items[number + 1]])
        return ast.copy_location(pair, chosen)
    return chosen


@cache
def _list_offsets(code: types.CodeType) -> tuple[int, ...]:
    """Return the offsets of a function's instructions, except those that compute nothing."""
    idle = ("EXTENDED_ARG", "CACHE", "NOP", "PRECALL", "COPY", "SWAP", "POP_TOP")
    return tuple(instruction.offset for instruction in dis.get_instructions(code) if instruction.opname not in idle)
