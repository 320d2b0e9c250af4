"""Which calls a failure points at: by the lines in an exception, or by those that a node of the file came from."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

from fairway.reduce.program import Program
from fairway.reduce.replay import FILE, FIRST

Line = tuple[str, int]
"""A file and a number."""

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


def positions(lines: Sequence[Line], program: Program) -> list[int]:
    """Of the calls that these lines made, the likeliest first: those with the most of their lines among them.

    A line of the model's own may have made many, once for each layer: those of the first layer stand for all.
    """
    found = [number - FIRST for file, number in lines if file == FILE]
    named = set(lines)
    scores = [len(named.intersection(c.source)) if named.intersection(c.source[:1]) else 0 for c in program.calls]
    best = max(scores, default=0)
    likely = [i for i, score in enumerate(scores) if score == best > 0]
    found += [i for i in likely if program.calls[i].module == program.calls[likely[0]].module][-1:]
    return [i for i in dict.fromkeys(found) if 0 <= i < len(program.calls)]


def named(operator: str, program: Program) -> list[int]:
    """The last call of an operator that a failure gives by name alone, such as `aten.searchsorted`."""
    short = operator.split(".")[1] if "." in operator else operator
    return [i for i, call in enumerate(program.calls) if short and short in call.name.split(".")][-1:]
