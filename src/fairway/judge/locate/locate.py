"""From a wrong file to the node at which the error begins, and to the module and the line that it stands for."""

from __future__ import annotations

import linecache
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import torch

from fairway.diagnostics import Finding, Where
from fairway.judge.judge import tidy
from fairway.judge.locate.blame import (
    FEW,
    Matcher,
    Node,
    ObservedGraph,
    ObservedValue,
    before_it,
    counterpart,
    first_wrong,
    judge_values,
    led_to,
)
from fairway.judge.locate.digest import Digest, digest
from fairway.judge.locate.node_replay import reads, replay
from fairway.judge.locate.value_recorder import Listener, Made, listen
from fairway.judge.runtimes.eager import nudge, nudged, rounding, run_eager, to_array
from fairway.judge.yardstick import Array
from fairway.model.sample import Sample
from fairway.model.subject import Subject

LEAST, MOST = 1e-6, 1e-3
"""Of a value's size: what may always be rounding, and what never is."""

FACTORS = (30.0, 5.0, 1.0)
"""How much further than PyTorch's own values move by a rounding error the file's may be off; strictest where nothing
else shows."""

NUDGES = 2

SHARED = 0.5
"""Of a file's named values, how many another must have for both to come from the same exporter."""

Kind = Literal["computes", "refuses", "runtime"]


@dataclass(frozen=True)
class Location:
    """Where the error begins."""

    kind: Kind
    """The node computes something else; it is refused by the runtime; or no node is wrong by itself."""
    at: str
    """The sample at which it was seen."""
    node: str = ""
    operator: str = ""
    value: str = ""
    error: float | None = None
    """Of the node's value, as a part of its size; None where it has other elements than PyTorch's."""
    torch_operator: str = ""
    where: Where | None = None
    also: tuple[str, ...] = ()
    """Other nodes at which an error begins."""
    passed_on: int = 0
    """Later values that are wrong only because they are computed from it."""
    compared: int = 0
    said: str = ""
    """The runtime's words where it refuses."""

    def agrees(self, other: Location) -> bool:
        """Whether both name the same node, or the same line of the same module."""
        if self.value == other.value:
            return True
        mine, theirs = (one.where or Where() for one in (self, other))
        line = (mine.file, mine.line, mine.module)
        return mine.file is not None and line == (theirs.file, theirs.line, theirs.module)

    def finding(self) -> Finding:
        if self.kind == "runtime":
            return Finding("FW415", f"at {self.at}, all {self.compared} values are PyTorch's when run node by node")
        what = f"{self.node} ({self.operator})"
        if self.kind == "refuses":
            seen = f"what {what} is given is right, and the runtime refuses it: {self.said}"
        else:
            off = "is not among PyTorch's" if self.error is None else f"is off by {self.error:.2g} of its size"
            seen = f"what {what} is given is right; what it gives {off}"
        if self.torch_operator:
            seen += f". PyTorch computes {self.torch_operator} there"
        seen += f". {self.passed_on} later values only pass the error on" if self.passed_on else ""
        seen += f"; seen at {self.at}"
        if self.also:
            seen += f". An error begins also at {', '.join(self.also[:3])}"
        return Finding("FW414", seen, where=self.where, data={"node": self.node, "value": self.value})


def locate(
    subject: Subject,
    path: str,
    sample: Sample,
    tensors: Sequence[torch.Tensor],
    against: Sequence[str] = (),
) -> Location:
    """The place at one failing sample.

    `against` are files known to be right; values that one of them has under the same name decide.
    """
    proto, folder = onnx.load(path, load_external_data=False), str(Path(path).parent)
    feeds = {name: np.asarray(to_array(t), order="C") for name, t in zip(subject.input_names, tensors, strict=True)}
    heard = listen(subject, tensors)
    moved = _moved(subject, tensors, heard)
    expected = [digest(to_array(tensor)) for tensor in run_eager(subject, tensors)]
    graph = _run(proto, folder, feeds)
    right = _right(graph, feeds, against)
    names = [output.name for output in proto.graph.output]
    for factor in FACTORS:
        tolerances = [max(LEAST, min(factor * error, MOST)) for error in moved]
        judge_values(graph, Matcher(heard.heard, heard.numbers, tolerances), right)
        begins = first_wrong(graph, _wrong_outputs(graph, names, expected, heard.heard, tolerances))
        if begins:
            break
    else:
        return Location("runtime", str(sample), compared=len(graph.values))
    node = before_it(graph, begins[0])
    return _describe(graph, node, begins, heard.heard, sample)


def smallest(found: Sequence[Location]) -> Location | None:
    """Of what was found at failing samples, roomiest first: the last that agrees with the first.

    A roomy sample tells values apart; the smallest failing one is where people want to look. They agree where they name
    the same node, or the same line of the same module: a loop that was unrolled has many nodes for one line.
    """
    return next((one for one in reversed(found) if one.agrees(found[0])), None)


def _run(proto: Any, folder: str, feeds: Mapping[str, Array]) -> ObservedGraph:
    """The file's values as digests."""
    graph = ObservedGraph()
    for name, array in feeds.items():
        graph.values[name] = replace(_value(name, -1, array), vouched=True)
    for step in replay(proto, folder, feeds):
        number, node = len(graph.nodes), step.node
        gives = tuple(name for name in node.output if name)
        graph.nodes.append(Node(number, node.name, node.op_type, tuple(reads(node)), gives, step.refused))
        if not _weight(node, graph):
            graph.values.update({name: _value(name, number, array) for name, array in step.gave.items()})
    return graph


def _weight(node: Any, graph: ObservedGraph) -> bool:
    """Whether a node gives a weight, which is nobody's result; also one that other names stand for.

    TorchScript's exporter keeps one of several equal weights, and an Identity for each of the others.
    """
    return node.op_type == "Constant" or (node.op_type == "Identity" and node.input[0] not in graph.values)


def _value(name: str, producer: int, array: Any) -> ObservedValue:
    if not isinstance(array, np.ndarray):
        return ObservedValue(name, producer, None)
    few = array.dtype.kind in "iu" and array.size <= FEW
    return ObservedValue(name, producer, digest(array), tuple(map(int, array.reshape(-1))) if few else None)


def _right(graph: ObservedGraph, feeds: Mapping[str, Array], against: Sequence[str]) -> ObservedGraph:
    """The first of the right files that was made the same way: most of the names are the same."""
    for path in against:
        other = _run(onnx.load(path, load_external_data=False), str(Path(path).parent), feeds)
        shared = graph.values.keys() & other.values.keys()
        if len(shared) >= SHARED * min(len(graph.values), len(other.values)):
            return other
    return ObservedGraph()


def _moved(subject: Subject, tensors: Sequence[torch.Tensor], heard: Listener) -> list[float]:
    """How far each of PyTorch's values moves when weights and inputs are nudged by a rounding error."""
    roundoff = rounding(subject, tensors)
    found = [0.0] * len(heard.heard)
    for seed in range(NUDGES):
        with nudged(subject.model, seed, roundoff):
            moved = listen(subject, nudge(tensors, seed, roundoff))
        if [made.operator for made in moved.heard] != [made.operator for made in heard.heard]:
            return [MOST] * len(heard.heard)  # the model took another way; nothing can be paired
        errors = [a.digest.error(b.digest) for a, b in zip(heard.heard, moved.heard, strict=True)]
        found = [max(old, error) for old, error in zip(found, errors, strict=True)]
    return found


def _wrong_outputs(
    graph: ObservedGraph,
    names: Sequence[str],
    expected: Sequence[Digest | None],
    heard: Sequence[Made],
    tolerances: Sequence[float],
) -> list[str]:
    """The outputs that are not PyTorch's. Nothing vouches for them."""
    wrong = []
    for name, want in zip(names, expected, strict=False):
        value = graph.values.get(name)
        got = None if value is None else value.digest
        allowed = min((tolerances[m.number] for m in heard if want and m.digest.error(want) == 0), default=LEAST)
        if got is None or want is None or got.shape != want.shape or want.error(got) > allowed:
            wrong.append(name)
            if value is not None:
                value.vouched, value.state = False, "other"
    return wrong


def _describe(
    graph: ObservedGraph, node: Node, begins: Sequence[Node], heard: Sequence[Made], sample: Sample
) -> Location:
    made = counterpart(graph, node, heard)
    value = next((graph.values[name] for name in node.gives if name in graph.values), None)
    got = None if value is None else value.digest
    off = None if made is None or got is None else made.digest.error(got)
    # A size is no tensor of PyTorch's; but what is computed with it is, and stands on a line.
    near = (found for one in led_to(graph, node) if (found := counterpart(graph, one, heard)) is not None)
    where = _place(made or next(near, None), node)
    return Location(
        kind="refuses" if node.refused else "computes",
        at=str(sample),
        node=_called(node),
        operator=node.operator,
        value=node.gives[0] if node.gives else "",
        error=None if off is None or not np.isfinite(off) else off,
        torch_operator="" if made is None else made.operator,
        where=where,
        also=tuple(f"{_called(one)} ({one.operator})" for one in begins if one is not begins[0]),
        passed_on=_later(graph, node),
        compared=len(graph.values),
        said=tidy(node.refused),
    )


def _called(node: Node) -> str:
    return node.name or (f"the node that gives {node.gives[0]}" if node.gives else f"node {node.number}")


def _place(made: Made | None, node: Node) -> Where:
    if made is None:
        return Where(node=f"{_called(node)} ({node.operator})")
    place = made.where or Where()
    source = linecache.getline(place.file, place.line or 0).strip() if place.file else ""
    module = f"{made.module or '(the model itself)'} ({made.kind})"
    return replace(place, source=source or None, module=module, node=f"{_called(node)} ({node.operator})")


def _later(graph: ObservedGraph, first: Node) -> int:
    """Values that are wrong only because they are computed from the first wrong one."""
    tainted = set(first.gives)
    for node in graph.nodes[first.number + 1 :]:
        if tainted & set(node.reads):
            tainted |= {name for name in node.gives if name in graph.values and not graph.values[name].vouched}
    return len(tainted) - len(first.gives)
