"""Which node is the first to be wrong: the values of a file told from PyTorch's, and traced back from a wrong output.

A value of the file that is also one of PyTorch's is right. One that is not may be a step of the exporter's own, which
PyTorch never takes; it is vouched for where something right was computed from it. What is left leads from a wrong
output back to nodes that were given only right values: there the error begins. The others only pass it on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from fairway.judge.locate.digest import Digest
from fairway.judge.locate.value_recorder import Made

LOSSY = frozenset(
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
"""Operators whose result can be right although not all of what they were given is."""

LAYOUT = frozenset(("Cast", "Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"))
"""Operators that hand elements on; in another order or another shape at most."""

DEPTH = 8

NEAR = 0.05
"""A value so near to one of PyTorch's, and of the same shape, is that one with an error."""

FEW = 16
"""Whole numbers of so few elements are sizes and positions, which PyTorch keeps outside tensors."""

SWALLOWS = 16.0
"""Where a value's largest elements are so far from the next number of their dtype, additions leave no trace in them."""

State = Literal["same", "reshaped", "shuffled", "unclear", "other"]
"""PyTorch has it; has its elements in that order; has its elements; nothing can be said; PyTorch has it nowhere."""


@dataclass
class ObservedValue:
    """One value of the file."""

    name: str
    producer: int
    """The number of the node that gives it."""
    digest: Digest | None
    whole: tuple[int, ...] | None = None
    """Its elements, where they are few whole numbers."""
    state: State = "unclear"
    twins: tuple[int, ...] = ()
    """PyTorch's values that it is."""
    vouched: bool = False
    certain: bool = False
    """Decided by a right file; so nothing else need vouch for it, or can."""


@dataclass(frozen=True)
class Node:
    """One node of the file."""

    number: int
    name: str
    operator: str
    reads: tuple[str, ...]
    gives: tuple[str, ...]
    refused: str = ""


@dataclass
class ObservedGraph:
    """The file as it was seen running."""

    nodes: list[Node] = field(default_factory=list)
    values: dict[str, ObservedValue] = field(default_factory=dict)

    def given(self, node: Node) -> list[ObservedValue]:
        """The computed values that a node reads; weights are none."""
        return [self.values[name] for name in node.reads if name in self.values]


class Matcher:
    """Finds a digest among PyTorch's."""

    def __init__(self, heard: Sequence[Made], numbers: Iterable[int], tolerances: Sequence[float]) -> None:
        self._heard = heard
        self._tolerances = tolerances
        self._numbers = set(numbers) | {0, 1, -1, 2**63 - 1, -(2**63), 2**31 - 1, -(2**31)}
        self._by_size: dict[int, list[Made]] = defaultdict(list)
        for made in heard:
            self._by_size[made.digest.size].append(made)

    def state(self, value: ObservedValue) -> tuple[State, tuple[int, ...]]:
        got = value.digest
        if got is None or got.size == 0:
            return "unclear", ()
        alike = self._by_size[got.size]
        errors = {m.number: m.digest.error(got) for m in alike}
        same = tuple(number for number, error in errors.items() if error <= self._tolerances[number])
        exact = tuple(number for number in same if self._heard[number].digest.shape == got.shape)
        if got.plain or (value.whole is not None and not exact):
            return self._common(value, got, same), same
        if same:
            return ("same", exact) if exact else ("reshaped", same)
        if got.dtype[:3] in ("int", "uin"):
            return "unclear", ()
        near = [n for n, e in errors.items() if e < NEAR and self._heard[n].digest.shape == got.shape]
        mixed = tuple(m.number for m in alike if m.digest.shuffled(got, self._tolerances[m.number]))
        return ("shuffled", mixed) if mixed and not near else ("other", ())

    def _common(self, value: ObservedValue, got: Digest, same: tuple[int, ...]) -> State:
        """Of values that are easily found by chance: sizes, and elements that are all alike."""
        if value.whole is not None:
            return "unclear" if all(number in self._numbers for number in value.whole) else "other"
        return "unclear" if same or got.dtype == "bool" or got.dtype[:3] in ("int", "uin") else "other"

    def descends(self, numbers: Iterable[int], given: Iterable[int]) -> bool:
        """Whether one of PyTorch's values was made, in a few steps, from one of those given."""
        wanted, seen, left = set(given), set[int](), [(n, 0) for n in numbers]
        while left:
            number, depth = left.pop()
            if number in wanted:
                return True
            if number not in seen and depth < DEPTH:
                seen.add(number)
                left += [(parent, depth + 1) for parent in self._heard[number].parents]
        return False


def judge_values(graph: ObservedGraph, matcher: Matcher, right: ObservedGraph) -> None:
    """Gives every value its state, and says which are vouched for. `right` is a file known to be right, if any."""
    settled = _settle(graph, right)
    for value in graph.values.values():
        value.state, value.twins = matcher.state(value)
        value.vouched = value.producer < 0
        value.certain = value.name in settled
        if value.certain:
            value.vouched = settled[value.name]
            value.state = "same" if value.vouched else "other"
        elif value.state == "unclear" and value.twins and value.producer >= 0:
            # All its elements are alike, which is easily found; so it must also have been made from the same.
            given = [n for v in graph.given(graph.nodes[value.producer]) for n in v.twins]
            value.state = "unclear" if not given or matcher.descends(value.twins, given) else "other"
    for node in reversed(graph.nodes):
        gives = [graph.values[name] for name in node.gives if name in graph.values]
        for value in gives:
            value.vouched = value.vouched or (value.state in ("same", "reshaped") and not value.certain)
        if any(value.vouched and not _hides(value) for value in gives) and node.operator not in LOSSY:
            for value in graph.given(node):
                value.vouched = value.vouched or not value.certain


def _hides(value: ObservedValue) -> bool:
    """Whether errors vanish in it: what masks add (minus infinity, -1e9, float16's lowest) swallows the rest."""
    got = value.digest
    return got is not None and (any(got.odd) or got.spacing >= SWALLOWS)


def _settle(graph: ObservedGraph, right: ObservedGraph) -> dict[str, bool]:
    """Of the values that a right file decides, whether each is right.

    Names may be numbered otherwise there. So one that differs from its namesake is wrong only if it is made in the same
    way, and if the namesake's elements stand nowhere else in this file.
    """
    theirs: dict[int, list[Digest]] = defaultdict(list)
    ours: dict[int, list[Digest]] = defaultdict(list)
    for table, values in ((theirs, right.values), (ours, graph.values)):
        for value in values.values():
            if value.digest is not None and not value.digest.plain and value.whole is None:
                table[value.digest.size].append(value.digest)
    found = {}
    for name, value in graph.values.items():
        got, other = value.digest, right.values.get(name)
        if got is None or value.producer < 0:
            continue
        if other is not None and other.digest is not None and _made_alike(graph, value, right, other):
            if other.digest.equals(got):
                found[name] = True
                continue
            if not any(other.digest.equals(one) for one in ours[other.digest.size]):
                found[name] = False
                continue
        if any(got.equals(one) for one in theirs[got.size]):
            found[name] = True
    return found


def _made_alike(graph: ObservedGraph, value: ObservedValue, right: ObservedGraph, other: ObservedValue) -> bool:
    """By the same operator, or from the same."""
    if other.producer < 0:
        return False
    ours, theirs = graph.nodes[value.producer], right.nodes[other.producer]
    return ours.operator == theirs.operator or ours.reads == theirs.reads


def first_wrong(graph: ObservedGraph, wrong: Iterable[str]) -> list[Node]:
    """The nodes at which the error begins, in the graph's order; `wrong` names outputs, or a refusing node's."""
    begins: dict[int, Node] = {}
    seen: set[int] = set()
    left = [graph.values[name].producer for name in wrong if name in graph.values]
    left += [node.number for node in graph.nodes if node.refused]
    while left:
        number = left.pop()
        if number in seen or number < 0:
            continue
        seen.add(number)
        node = graph.nodes[number]
        doubtful = [v for v in graph.given(node) if not v.vouched and _doubtful(graph, v)]
        if doubtful:
            left += [v.producer for v in doubtful]
        else:
            begins[number] = node
    return [begins[number] for number in sorted(begins)]


def _doubtful(graph: ObservedGraph, value: ObservedValue) -> bool:
    """Whether an error may have come in with this value: it is other, or unclear and made from such."""
    seen: set[str] = set()
    left = [value]
    while left:
        one = left.pop()
        if one.name in seen or one.vouched:
            continue
        seen.add(one.name)
        if one.state == "other" and one.producer >= 0:
            return True
        if one.producer >= 0 and one.state != "shuffled":
            left += graph.given(graph.nodes[one.producer])
    return False


def before_it(graph: ObservedGraph, node: Node) -> Node:
    """The node that first put what this one reads into a shape or an order that PyTorch never has, if there is one.

    Elements that only moved are still PyTorch's, so the error shows at the node that computes with them.
    """
    first = node
    while not (first.refused and first.operator in LAYOUT):
        moved = [v for v in graph.given(first) if v.state in ("reshaped", "shuffled") and v.producer >= 0]
        moved = [v for v in moved if graph.nodes[v.producer].operator in LAYOUT]
        if not moved:
            break
        first = graph.nodes[moved[0].producer]
    return first


def led_to(graph: ObservedGraph, node: Node) -> list[Node]:
    """The nodes that compute with what this one gives, in the graph's order."""
    tainted, found = set(node.gives), []
    for later in graph.nodes[node.number + 1 :]:
        if tainted & set(later.reads):
            tainted.update(later.gives)
            found.append(later)
    return found


def counterpart(graph: ObservedGraph, node: Node, heard: Sequence[Made]) -> Made | None:
    """The operation of PyTorch's that this node should have done: made from what it reads, and nowhere in the file."""
    read = {number for value in graph.given(node) for number in value.twins}
    had = {number for value in graph.values.values() for number in value.twins}
    users = [made for made in heard if read & set(made.parents)]
    missing = [made for made in users if made.number not in had and not made.digest.plain and made.where is not None]
    placed = [made for made in users if made.where is not None]
    found = next(iter(missing or placed or users), None)
    if found is None or not found.inner:
        return found
    whole = (made for made in heard[found.number :] if not made.inner and found.number in made.parents)
    return next(whole, found)
