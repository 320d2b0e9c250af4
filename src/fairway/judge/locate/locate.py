"""Locate the node of a wrong file at which the error begins, with its module and line in the model."""

from __future__ import annotations

import linecache
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import torch

from fairway.diagnostics import Code, Finding, Where
from fairway.judge.judge import tidy_runtime_message
from fairway.judge.locate.blame import (
    MAX_SIZE_ELEMENTS,
    Matcher,
    ObservedGraph,
    ObservedNode,
    ObservedValue,
    find_counterpart,
    find_first_wrong,
    find_layout_origin,
    judge_values,
    list_dependents,
)
from fairway.judge.locate.digest import Digest, compute_digest
from fairway.judge.locate.file_runs import is_broken_by_optimizer, takes_inputs
from fairway.judge.locate.node_replay import BFLOAT16, list_reads, replay_nodes
from fairway.judge.locate.value_recorder import RecordedValue, ValueRecorder, record_values
from fairway.judge.runtimes.eager import find_roundoff, nudge_inputs, nudge_weights, run_eager, to_array
from fairway.judge.yardstick import Array
from fairway.model.onnx_file import load_structure
from fairway.model.sample import Sample
from fairway.model.subject import Subject

MIN_TOLERANCE, MAX_TOLERANCE = 1e-6, 1e-3
"""Relative errors: one up to the first is always rounding, one above the second never is."""

TOLERANCE_FACTORS = (30.0, 5.0, 1.0)
"""Factors between PyTorch's sensitivity to rounding errors and the tolerance. A stricter one is used only if the others
find nothing."""

NUDGED_RUNS = 2

MIN_SHARED_NAMES = 0.5
"""Two files come from the same exporter if they have this share of their named values in common."""

LocationKind = Literal["computes", "refuses", "optimizer", "inputs", "nowhere"]


@dataclass(frozen=True)
class Location:
    """The node at which the error begins."""

    kind: LocationKind
    """`computes`: the node computes a wrong value. `refuses`: the runtime refuses it. `optimizer`: no node is wrong,
    but the runtime's optimizer makes the file wrong. `inputs`: the file does not take such inputs. `nowhere`: no node
    is wrong, and the reason is not known."""
    at: str
    """The failing sample."""
    node: str = ""
    operator: str = ""
    value: str = ""
    error: float | None = None
    """The relative error of the node's value, or None if it cannot be paired with one of PyTorch's."""
    torch_operator: str = ""
    where: Where | None = None
    also: tuple[str, ...] = ()
    """Other nodes at which an error begins."""
    passed_on: int = 0
    """The number of later values that are wrong only because they are computed from this one."""
    compared: int = 0
    refusal: str = ""
    """The runtime's message if it refuses."""

    def is_same_place(self, other: Location) -> bool:
        """Return whether both name the same node, or the same line of the same module."""
        if self.value == other.value:
            return True
        mine, theirs = (location.where or Where() for location in (self, other))
        line = (mine.file, mine.line, mine.module)
        return mine.file is not None and line == (theirs.file, theirs.line, theirs.module)

    def make_finding(self) -> Finding | None:
        """Return the finding, or None if neither a node nor the runtime can be blamed."""
        if self.kind in ("inputs", "nowhere"):
            return None
        if self.kind == "optimizer":
            return Finding(
                Code.RUNTIME_FUSES_WRONGLY,
                f"at {self.at}, all {self.compared} values are PyTorch's when run node by node, and so is the result "
                "of the file without the runtime's optimizer",
            )
        what = f"{self.node} ({self.operator})"
        if self.kind == "refuses":
            message = f"what {what} is given is right, and the runtime refuses it: {self.refusal}"
        else:
            off = "is not among PyTorch's" if self.error is None else f"is off by {self.error:.2g} of its size"
            message = f"what {what} is given is right; what it gives {off}"
        if self.torch_operator:
            message += f". PyTorch computes {self.torch_operator} there"
        message += f". {self.passed_on} later values only pass the error on" if self.passed_on else ""
        message += f"; seen at {self.at}"
        if self.also:
            message += f". An error begins also at {', '.join(self.also[:3])}"
        return Finding(Code.ERROR_BEGINS, message, where=self.where, data={"node": self.node, "value": self.value})


def locate_error(
    subject: Subject,
    path: str,
    sample: Sample,
    tensors: Sequence[torch.Tensor],
    against: Sequence[str] = (),
) -> Location:
    """Locate the error at one failing sample.

    `against` are right files. They decide the values that they have under the same name.
    """
    proto, folder = load_structure(path), str(Path(path).parent)
    feeds = {name: _make_feed(tensor) for name, tensor in zip(subject.input_names, tensors, strict=True)}
    if not takes_inputs(proto, feeds):
        return Location("inputs", str(sample))
    recorder = record_values(subject, tensors)
    sensitivity = _measure_sensitivity(subject, tensors, recorder)
    expected = [compute_digest(to_array(tensor)) for tensor in run_eager(subject, tensors)]
    graph = _observe_file(proto, folder, feeds)
    right = _observe_right_file(graph, feeds, against)
    names = [output.name for output in proto.graph.output]
    for factor in TOLERANCE_FACTORS:
        tolerances = _choose_tolerances(sensitivity, factor)
        judge_values(graph, Matcher(recorder.values, recorder.numbers, tolerances), right)
        begins = find_first_wrong(graph, _find_wrong_outputs(graph, names, expected, recorder.values, tolerances))
        if begins:
            break
    else:
        allowed = _list_allowed(expected, recorder.values, _choose_tolerances(sensitivity, TOLERANCE_FACTORS[0]))
        broken = is_broken_by_optimizer(path, feeds, partial(_are_right, expected, allowed))
        return Location("optimizer" if broken else "nowhere", str(sample), compared=len(graph.values))
    node = find_layout_origin(graph, begins[0])
    return _describe_location(graph, node, begins, recorder.values, sample)


def _make_feed(tensor: torch.Tensor) -> Array:
    array = np.asarray(to_array(tensor), order="C")
    return array.astype(BFLOAT16) if tensor.dtype == torch.bfloat16 else array


def choose_location(locations: Sequence[Location]) -> Location | None:
    """Return the last location that agrees with the first. They are those at failing samples, the largest sample first.

    Values are easiest to distinguish at a large sample, and easiest to read at a small one. Two locations agree if they
    name the same node or the same line of the same module, because an unrolled loop has many nodes for one line.
    """
    return next((location for location in reversed(locations) if location.is_same_place(locations[0])), None)


def _observe_file(proto: onnx.ModelProto, folder: str, feeds: Mapping[str, Array]) -> ObservedGraph:
    """Run the file, and return its values as digests."""
    graph = ObservedGraph()
    for name, array in feeds.items():
        graph.values[name] = replace(_observe_value(name, -1, array), is_vouched=True)
    for step in replay_nodes(proto, folder, feeds):
        number, node = len(graph.nodes), step.node
        gives = tuple(name for name in node.output if name)
        graph.nodes.append(ObservedNode(number, node.name, node.op_type, tuple(list_reads(node)), gives, step.refusal))
        if not _is_weight(node, graph):
            graph.values.update({name: _observe_value(name, number, array) for name, array in step.outputs.items()})
    return graph


def _is_weight(node: onnx.NodeProto, graph: ObservedGraph) -> bool:
    """Return whether a node's output is a weight, possibly under another name.

    TorchScript's exporter keeps one of several equal weights, and an Identity for each of the others.
    """
    return node.op_type == "Constant" or (node.op_type == "Identity" and node.input[0] not in graph.values)


def _observe_value(name: str, producer: int, array: object) -> ObservedValue:
    if not isinstance(array, np.ndarray):
        return ObservedValue(name, producer, None)
    if array.dtype == BFLOAT16:
        array = array.astype(np.float32)
    few = array.dtype.kind in "iu" and array.size <= MAX_SIZE_ELEMENTS
    return ObservedValue(name, producer, compute_digest(array), tuple(map(int, array.reshape(-1))) if few else None)


def _observe_right_file(graph: ObservedGraph, feeds: Mapping[str, Array], against: Sequence[str]) -> ObservedGraph:
    """Run the first right file that was exported in the same way, so that most names are the same."""
    for path in against:
        other = _observe_file(load_structure(path), str(Path(path).parent), feeds)
        shared = graph.values.keys() & other.values.keys()
        if len(shared) >= MIN_SHARED_NAMES * min(len(graph.values), len(other.values)):
            return other
    return ObservedGraph()


def _measure_sensitivity(subject: Subject, tensors: Sequence[torch.Tensor], recorder: ValueRecorder) -> list[float]:
    """Return the change of each of PyTorch's values when weights and inputs move by a rounding error."""
    roundoff = find_roundoff(subject, tensors)
    sensitivity = [0.0] * len(recorder.values)
    for seed in range(NUDGED_RUNS):
        with nudge_weights(subject.model, seed, roundoff):
            nudged = record_values(subject, nudge_inputs(tensors, seed, roundoff))
        if [made.operator for made in nudged.values] != [made.operator for made in recorder.values]:
            return [MAX_TOLERANCE] * len(recorder.values)  # the model took another branch, so values cannot be paired
        errors = [a.digest.measure_error(b.digest) for a, b in zip(recorder.values, nudged.values, strict=True)]
        sensitivity = [max(old, error) for old, error in zip(sensitivity, errors, strict=True)]
    return sensitivity


def _find_wrong_outputs(
    graph: ObservedGraph,
    names: Sequence[str],
    expected: Sequence[Digest | None],
    recorded: Sequence[RecordedValue],
    tolerances: Sequence[float],
) -> list[str]:
    """Return the outputs that differ from PyTorch's, and mark them as wrong."""
    wrong = []
    for name, digest, allowed in zip(names, expected, _list_allowed(expected, recorded, tolerances), strict=False):
        value = graph.values.get(name)
        if not _is_right(digest, None if value is None else value.digest, allowed):
            wrong.append(name)
            if value is not None:
                value.is_vouched, value.state = False, "other"
    return wrong


def _choose_tolerances(sensitivity: Sequence[float], factor: float) -> list[float]:
    return [max(MIN_TOLERANCE, min(factor * error, MAX_TOLERANCE)) for error in sensitivity]


def _list_allowed(
    expected: Sequence[Digest | None], recorded: Sequence[RecordedValue], tolerances: Sequence[float]
) -> list[float]:
    """Return the allowed error of each output: that of PyTorch's values that are equal to it."""
    return [
        min(
            (tolerances[m.number] for m in recorded if digest and m.digest.measure_error(digest) == 0),
            default=MIN_TOLERANCE,
        )
        for digest in expected
    ]


def _is_right(expected: Digest | None, digest: Digest | None, allowed: float) -> bool:
    if expected is None or digest is None:
        return False
    return digest.shape == expected.shape and expected.measure_error(digest) <= allowed


def _are_right(expected: Sequence[Digest | None], allowed: Sequence[float], arrays: Sequence[Array]) -> bool:
    digests = map(compute_digest, arrays)
    return all(_is_right(*each) for each in zip(expected, digests, allowed, strict=True))


def _describe_location(
    graph: ObservedGraph,
    node: ObservedNode,
    begins: Sequence[ObservedNode],
    recorded: Sequence[RecordedValue],
    sample: Sample,
) -> Location:
    made = find_counterpart(graph, node, recorded)
    value = next((graph.values[name] for name in node.outputs if name in graph.values), None)
    digest = None if value is None else value.digest
    off = None if made is None or digest is None else made.digest.measure_error(digest)
    # A size has no tensor in PyTorch, but the values computed with it have one, and a line.
    near = (
        match
        for candidate in list_dependents(graph, node)
        if (match := find_counterpart(graph, candidate, recorded)) is not None
    )
    where = _find_place(made or next(near, None), node)
    return Location(
        kind="refuses" if node.refusal else "computes",
        at=str(sample),
        node=_name_node(node),
        operator=node.operator,
        value=node.outputs[0] if node.outputs else "",
        error=None if off is None or not np.isfinite(off) else off,
        torch_operator="" if made is None else made.operator,
        where=where,
        also=tuple(
            f"{_name_node(candidate)} ({candidate.operator})" for candidate in begins if candidate is not begins[0]
        ),
        passed_on=_count_passed_on(graph, node),
        compared=len(graph.values),
        refusal=tidy_runtime_message(node.refusal),
    )


def _name_node(node: ObservedNode) -> str:
    return node.name or (f"the node that gives {node.outputs[0]}" if node.outputs else f"node {node.number}")


def _find_place(made: RecordedValue | None, node: ObservedNode) -> Where:
    if made is None:
        return Where(node=f"{_name_node(node)} ({node.operator})")
    place = made.where or Where()
    source = linecache.getline(place.file, place.line or 0).strip() if place.file else ""
    module = f"{made.module or '(the model itself)'} ({made.kind})"
    return replace(place, source=source or None, module=module, node=f"{_name_node(node)} ({node.operator})")


def _count_passed_on(graph: ObservedGraph, first: ObservedNode) -> int:
    """Count the values that are wrong only because they are computed from the first wrong one."""
    tainted = set(first.outputs)
    for node in graph.nodes[first.number + 1 :]:
        if tainted & set(node.inputs):
            tainted |= {name for name in node.outputs if name in graph.values and not graph.values[name].is_vouched}
    return len(tainted) - len(first.outputs)
