"""Which calls a failure points at: by the lines in an exception, or by those that a node of the file came from."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

from fairway.reduce.replay import FILE, FIRST

_LINE = re.compile(rf'File "{re.escape(FILE)}", line (\d+)')


def by_exceptions(chain: Sequence[BaseException]) -> tuple[int, ...]:
    """Positions among the calls, the likeliest first: the innermost exception knows best."""
    found: list[str] = []
    for error in reversed(chain):
        frames = traceback.extract_tb(error.__traceback__)
        found += [f'File "{frame.filename}", line {frame.lineno}' for frame in reversed(frames)]
        found.append(str(error))
    return _positions(found)


def by_node(path: Path, said: str) -> tuple[int, ...]:
    """Those that the node came from which ONNX Runtime names in what it said."""
    import onnx

    nodes = onnx.load(str(path), load_external_data=False).graph.node
    named = [node for node in nodes if node.name and re.search(rf"['\"(]{re.escape(node.name)}['\")]", said)]
    return _positions(prop.value for node in named for prop in node.metadata_props if prop.key.endswith("stack_trace"))


def _positions(texts: Iterable[str]) -> tuple[int, ...]:
    lines = [int(line) for text in texts for line in reversed(_LINE.findall(text))]
    return tuple(dict.fromkeys(line - FIRST for line in lines if line >= FIRST))
