"""Find the first wrong node of a file, by comparing its values with PyTorch's and going back from a wrong output.

A value of the file that is also one of PyTorch's is right. Another value may be a step that only the exporter takes. It
is vouched for if something right was computed from it. The remaining values lead from a wrong output back to nodes with
only right inputs, and there the error begins. The other nodes only pass it on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from fairway.judge.locate.digest import Digest
from fairway.judge.locate.value_recorder import RecordedValue

LOSSY_OPERATORS = frozenset(
    (
        "And",
        "ArgMax",
        "ArgMin",
        "Ceil",
        "Clip",
        "Compress",
        "Equal",
        "Floor",
        "Gather",
        "GatherElements",
        "GatherND",
        "Greater",
        "GreaterOrEqual",
        "If",
        "Less",
        "LessOrEqual",
        "Loop",
        "Max",
        "MaxPool",
        "Min",
        "NonZero",
        "Not",
        "Or",
        "ReduceMax",
        "ReduceMin",
        "Relu",
        "Round",
        "Scan",
        "Shape",
        "Sign",
        "Size",
        "Slice",
        "Split",
        "TopK",
        "Trilu",
        "Where",
        "Xor",
    )
)
"""Operators whose result can be right although some of their inputs are wrong."""

LAYOUT_OPERATORS = frozenset(("Cast", "Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"))
"""Operators that keep all elements, possibly in another order, shape or dtype."""

MAX_DESCENT_STEPS = 8

NEAR_ERROR = 0.05
"""A value of the same shape with a smaller error than this is PyTorch's value with an error."""

MAX_SIZE_ELEMENTS = 16
"""Whole numbers with no more elements than this are sizes and positions, which PyTorch keeps outside tensors."""

SWALLOWING_SPACING = 16.0
"""If a value's largest elements are this far from the next number of their dtype, additions do not change them."""

ValueState = Literal["same", "reshaped", "shuffled", "unclear", "other"]
"""`same`: PyTorch has the value. `reshaped`: PyTorch has its elements in that order. `shuffled`: PyTorch has them in
another order. `unclear`: no statement is possible. `other`: PyTorch does not have it."""


@dataclass
class ObservedValue:
    """One value of the file."""

    name: str
    producer: int
    """The number of the node that computes it. -1 for inputs."""
    digest: Digest | None
    integers: tuple[int, ...] | None = None
    """Its elements, if they are a few whole numbers."""
    state: ValueState = "unclear"
    matches: tuple[int, ...] = ()
    """The numbers of PyTorch's equal values."""
    is_vouched: bool = False
    is_certain: bool = False
    """True if a right file decided `is_vouched`, so that nothing else may change it."""


@dataclass(frozen=True)
class ObservedNode:
    """One node of the file."""

    number: int
    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    refusal: str = ""


@dataclass
class ObservedGraph:
    """The nodes and values of a file, recorded while it ran."""

    nodes: list[ObservedNode] = field(default_factory=list)
    values: dict[str, ObservedValue] = field(default_factory=dict)

    def list_inputs(self, node: ObservedNode) -> list[ObservedValue]:
        """Return the computed values that a node reads. Weights are left out."""
        return [self.values[name] for name in node.inputs if name in self.values]


class Matcher:
    """Finds a value of the file among PyTorch's values."""

    def __init__(self, recorded: Sequence[RecordedValue], numbers: Iterable[int], tolerances: Sequence[float]) -> None:
        self._recorded = recorded
        self._tolerances = tolerances
        self._numbers = set(numbers) | {0, 1, -1, 2**63 - 1, -(2**63), 2**31 - 1, -(2**31)}
        self._by_size: dict[int, list[RecordedValue]] = defaultdict(list)
        for value in recorded:
            self._by_size[value.digest.size].append(value)

    def match_value(self, value: ObservedValue) -> tuple[ValueState, tuple[int, ...]]:
        digest = value.digest
        if digest is None or digest.size == 0:
            return "unclear", ()
        alike = self._by_size[digest.size]
        errors = {recorded.number: recorded.digest.measure_error(digest) for recorded in alike}
        same = tuple(number for number, error in errors.items() if error <= self._tolerances[number])
        exact = tuple(number for number in same if self._recorded[number].digest.shape == digest.shape)
        if digest.is_constant or (value.integers is not None and not exact):
            return self._match_common_value(value, digest, same), same
        if same:
            return ("same", exact) if exact else ("reshaped", same)
        if digest.dtype[:3] in ("int", "uin"):
            return "unclear", ()
        near = [n for n, e in errors.items() if e < NEAR_ERROR and self._recorded[n].digest.shape == digest.shape]
        mixed = tuple(
            recorded.number
            for recorded in alike
            if recorded.digest.is_shuffle_of(digest, self._tolerances[recorded.number])
        )
        return ("shuffled", mixed) if mixed and not near else ("other", ())

    def _match_common_value(self, value: ObservedValue, digest: Digest, same: tuple[int, ...]) -> ValueState:
        """Return the state of a value that matches easily by chance: sizes, and elements that are all equal."""
        if value.integers is not None:
            return "unclear" if all(number in self._numbers for number in value.integers) else "other"
        return "unclear" if same or digest.dtype == "bool" or digest.dtype[:3] in ("int", "uin") else "other"

    def is_descendant(self, numbers: Iterable[int], given: Iterable[int]) -> bool:
        """Return whether PyTorch computed one of the values from one of the `given` ones in a few steps."""
        ancestors, seen, left = set(given), set[int](), [(n, 0) for n in numbers]
        while left:
            number, depth = left.pop()
            if number in ancestors:
                return True
            if number not in seen and depth < MAX_DESCENT_STEPS:
                seen.add(number)
                left += [(parent, depth + 1) for parent in self._recorded[number].parents]
        return False


def judge_values(graph: ObservedGraph, matcher: Matcher, right: ObservedGraph) -> None:
    """Set the state of every value, and mark those that are vouched for. `right` is a right file, possibly empty."""
    settled = _decide_by_right_file(graph, right)
    for value in graph.values.values():
        value.state, value.matches = matcher.match_value(value)
        value.is_vouched = value.producer < 0
        value.is_certain = value.name in settled
        if value.is_certain:
            value.is_vouched = settled[value.name]
            value.state = "same" if value.is_vouched else "other"
        elif value.state == "unclear" and value.matches and value.producer >= 0:
            # Values with equal elements match by chance, so this one must also come from the same values.
            given = [n for v in graph.list_inputs(graph.nodes[value.producer]) for n in v.matches]
            value.state = "unclear" if not given or matcher.is_descendant(value.matches, given) else "other"
    for node in reversed(graph.nodes):
        outputs = [graph.values[name] for name in node.outputs if name in graph.values]
        for value in outputs:
            value.is_vouched = value.is_vouched or (value.state in ("same", "reshaped") and not value.is_certain)
        if (
            any(value.is_vouched and not _is_hiding_errors(value) for value in outputs)
            and node.operator not in LOSSY_OPERATORS
        ):
            for value in graph.list_inputs(node):
                value.is_vouched = value.is_vouched or not value.is_certain


def _is_hiding_errors(value: ObservedValue) -> bool:
    """Return whether a value absorbs errors, as a mask's minus infinity, -1e9 or float16's lowest number does."""
    digest = value.digest
    return digest is not None and (any(digest.special_counts) or digest.number_spacing >= SWALLOWING_SPACING)


def _decide_by_right_file(graph: ObservedGraph, right: ObservedGraph) -> dict[str, bool]:
    """Return, for each value that a right file decides, whether it is right.

    The right file may number its names differently. So a value that differs from the value with the same name is wrong
    only if both are computed in the same way, and if no value of this file equals the right one.
    """
    theirs: dict[int, list[Digest]] = defaultdict(list)
    ours: dict[int, list[Digest]] = defaultdict(list)
    for table, values in ((theirs, right.values), (ours, graph.values)):
        for value in values.values():
            if value.digest is not None and not value.digest.is_constant and value.integers is None:
                table[value.digest.size].append(value.digest)
    decided = {}
    for name, value in graph.values.items():
        digest, other = value.digest, right.values.get(name)
        if digest is None or value.producer < 0:
            continue
        if other is not None and other.digest is not None and _is_made_alike(graph, value, right, other):
            if other.digest.is_equal_to(digest):
                decided[name] = True
                continue
            if not any(other.digest.is_equal_to(candidate) for candidate in ours[other.digest.size]):
                decided[name] = False
                continue
        if any(digest.is_equal_to(candidate) for candidate in theirs[digest.size]):
            decided[name] = True
    return decided


def _is_made_alike(graph: ObservedGraph, value: ObservedValue, right: ObservedGraph, other: ObservedValue) -> bool:
    """Return whether two values are computed by the same operator or from the same inputs."""
    if other.producer < 0:
        return False
    ours, theirs = graph.nodes[value.producer], right.nodes[other.producer]
    return ours.operator == theirs.operator or ours.inputs == theirs.inputs


def find_first_wrong(graph: ObservedGraph, wrong: Iterable[str]) -> list[ObservedNode]:
    """Return the nodes at which the error begins, in the graph's order. `wrong` are the names of wrong outputs."""
    begins: dict[int, ObservedNode] = {}
    seen: set[int] = set()
    left = [graph.values[name].producer for name in wrong if name in graph.values]
    left += [node.number for node in graph.nodes if node.refusal]
    while left:
        number = left.pop()
        if number in seen or number < 0:
            continue
        seen.add(number)
        node = graph.nodes[number]
        doubtful = [v for v in graph.list_inputs(node) if not v.is_vouched and _is_doubtful(graph, v)]
        if doubtful:
            left += [v.producer for v in doubtful]
        else:
            begins[number] = node
    return [begins[number] for number in sorted(begins)]


def _is_doubtful(graph: ObservedGraph, value: ObservedValue) -> bool:
    """Return whether a value may carry an error: its state is `other`, or it was computed from such a value."""
    seen: set[str] = set()
    left = [value]
    while left:
        current = left.pop()
        if current.name in seen or current.is_vouched:
            continue
        seen.add(current.name)
        if current.state == "other" and current.producer >= 0:
            return True
        if current.producer >= 0 and current.state != "shuffled":
            left += graph.list_inputs(graph.nodes[current.producer])
    return False


def find_layout_origin(graph: ObservedGraph, node: ObservedNode) -> ObservedNode:
    """Return the first node that gave this node's inputs a shape or order that PyTorch never has, or the node itself.

    Elements that only moved are still PyTorch's, so the error shows at the node that computes with them.
    """
    first = node
    while not (first.refusal and first.operator in LAYOUT_OPERATORS):
        moved = [v for v in graph.list_inputs(first) if v.state in ("reshaped", "shuffled") and v.producer >= 0]
        moved = [v for v in moved if graph.nodes[v.producer].operator in LAYOUT_OPERATORS]
        if not moved:
            break
        first = graph.nodes[moved[0].producer]
    return first


def list_dependents(graph: ObservedGraph, node: ObservedNode) -> list[ObservedNode]:
    """Return the nodes that depend on this node, in the graph's order."""
    tainted, dependents = set(node.outputs), []
    for later in graph.nodes[node.number + 1 :]:
        if tainted & set(later.inputs):
            tainted.update(later.outputs)
            dependents.append(later)
    return dependents


def find_counterpart(
    graph: ObservedGraph, node: ObservedNode, recorded: Sequence[RecordedValue]
) -> RecordedValue | None:
    """Return the PyTorch value that this node should have computed: one from the same inputs that the file lacks."""
    inputs = {number for value in graph.list_inputs(node) for number in value.matches}
    matched = {number for value in graph.values.values() for number in value.matches}
    users = [candidate for candidate in recorded if inputs & set(candidate.parents)]
    missing = [
        candidate
        for candidate in users
        if candidate.number not in matched and not candidate.digest.is_constant and candidate.where is not None
    ]
    placed = [candidate for candidate in users if candidate.where is not None]
    counterpart = next(iter(missing or placed or users), None)
    if counterpart is None or not counterpart.inner:
        return counterpart
    operators = (
        candidate
        for candidate in recorded[counterpart.number :]
        if not candidate.inner and counterpart.number in candidate.parents
    )
    return next(operators, counterpart)
