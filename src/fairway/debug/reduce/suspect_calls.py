"""The calls that a failure points at: by lines in an exception, or by the lines behind a node of the file."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

from fairway.debug.reduce.program import Program
from fairway.debug.reduce.program_replay import FIRST_CALL_LINE, REPLAY_FILE
from fairway.model.onnx_file import load_structure

Line = tuple[str, int]
"""A file and a line number."""

Place = frozenset[int]
"""Positions among the calls of a program: one, or those of a function."""

_LINE = re.compile(r'File "([^"\n]{1,500})", line (\d{1,9})')


def list_exception_lines(chain: Sequence[BaseException]) -> tuple[Line, ...]:
    """Return the lines that the exceptions name, likeliest first: the innermost exception is the most exact."""
    texts: list[str] = []
    for error in reversed(chain):
        texts.append(str(error))
        texts.append("\n".join(traceback.format_tb(error.__traceback__)))
    return _find_lines(texts)


def list_node_lines(path: Path, message: str) -> tuple[Line, ...]:
    """Return the lines behind the node that ONNX Runtime names in its message."""
    nodes = load_structure(path).graph.node
    matches = [node for node in nodes if node.name and re.search(rf"['\"(]{re.escape(node.name)}['\")]", message)]
    return _find_lines(
        prop.value for node in matches for prop in node.metadata_props if prop.key.endswith("stack_trace")
    )


def _find_lines(texts: Iterable[str]) -> tuple[Line, ...]:
    lines = [(file, int(number)) for text in texts for file, number in reversed(_LINE.findall(text))]
    return tuple(dict.fromkeys(lines))


def find_places(lines: Sequence[Line], program: Program) -> list[Place]:
    """Return the calls that these lines made, likeliest first: the calls with the most of their lines among them.

    A line of the model may have made many calls, once for each layer; then the first layer is used. If the innermost
    line only led to the calls, in a function that the exporter left out, all of them count. A line that makes a
    decision is tried by itself first.
    """
    places = [frozenset([number - FIRST_CALL_LINE]) for file, number in lines if file == REPLAY_FILE]
    named_lines = set(lines)
    scores = [len(named_lines.intersection(call.source)) for call in program.calls]
    best = max(scores, default=0)
    best_calls = [i for i, score in enumerate(scores) if score == best > 0]
    layer = [i for i in best_calls if program.calls[i].module == program.calls[best_calls[0]].module]
    exact = [i for i in layer if program.calls[i].source[0] in named_lines]
    decisions = [i for i in best_calls if program.calls[i].is_decision and program.calls[i].source[0] in named_lines]
    places += [frozenset(decisions[:1])] if decisions else []
    places += [frozenset(exact[-1:] or layer)] if layer else []
    return [place for place in dict.fromkeys(places) if max(place) < len(program.calls)]


def find_last_call(operator: str, program: Program) -> list[Place]:
    """Return the last call of an operator that a failure names, such as `aten.searchsorted`."""
    short = operator.split(".")[1] if "." in operator else operator
    positions = [i for i, call in enumerate(program.calls) if short and short in call.name.split(".")]
    return [frozenset(positions[-1:])] if positions else []
