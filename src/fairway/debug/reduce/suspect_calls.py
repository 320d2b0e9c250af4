"""Which calls a failure points at: by the lines in an exception, or by those that a node of the file came from."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

from fairway.debug.reduce.program import Program
from fairway.debug.reduce.program_replay import FILE, FIRST

Line = tuple[str, int]
"""A file and a number."""

Place = frozenset[int]
"""Positions among the calls of a program: one, or those of a function."""

_LINE = re.compile(r'File "([^"\n]{1,500})", line (\d{1,9})')


def by_exceptions(chain: Sequence[BaseException]) -> tuple[Line, ...]:
    """The lines that the exceptions name, the likeliest first: the innermost exception knows best."""
    found: list[str] = []
    for error in reversed(chain):
        found.append(str(error))
        found.append("\n".join(traceback.format_tb(error.__traceback__)))
    return _lines(found)


def by_node(path: Path, said: str) -> tuple[Line, ...]:
    """The lines that the node came from which ONNX Runtime names in what it said."""
    import onnx

    nodes = onnx.load(str(path), load_external_data=False).graph.node
    named = [node for node in nodes if node.name and re.search(rf"['\"(]{re.escape(node.name)}['\")]", said)]
    return _lines(prop.value for node in named for prop in node.metadata_props if prop.key.endswith("stack_trace"))


def _lines(texts: Iterable[str]) -> tuple[Line, ...]:
    found = [(file, int(number)) for text in texts for file, number in reversed(_LINE.findall(text))]
    return tuple(dict.fromkeys(found))


def places(lines: Sequence[Line], program: Program) -> list[Place]:
    """What these lines made, the likeliest first: those calls that have the most of their own lines among them.

    A line of the model's own may have made many, once for each layer: those of the first layer stand for all. Where
    the innermost line that is named only led to the calls, in a function that the exporter left out, all of them count.
    A line that decides something is first taken at its word.
    """
    found = [frozenset([number - FIRST]) for file, number in lines if file == FILE]
    named = set(lines)
    scores = [len(named.intersection(call.source)) for call in program.calls]
    best = max(scores, default=0)
    likely = [i for i, score in enumerate(scores) if score == best > 0]
    layer = [i for i in likely if program.calls[i].module == program.calls[likely[0]].module]
    exact = [i for i in layer if program.calls[i].source[0] in named]
    asked = [i for i in likely if program.calls[i].decides and program.calls[i].source[0] in named]
    found += [frozenset(asked[:1])] if asked else []
    found += [frozenset(exact[-1:] or layer)] if layer else []
    return [place for place in dict.fromkeys(found) if max(place) < len(program.calls)]


def named(operator: str, program: Program) -> list[Place]:
    """The last call of an operator that a failure gives by name alone, such as `aten.searchsorted`."""
    short = operator.split(".")[1] if "." in operator else operator
    found = [i for i, call in enumerate(program.calls) if short and short in call.name.split(".")]
    return [frozenset(found[-1:])] if found else []
