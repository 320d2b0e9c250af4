"""Whose line is it? The user's own code is told apart from libraries by where it lies."""

from __future__ import annotations

import linecache
import sysconfig
import traceback
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from fairway.diagnostics import Where

_HERE = str(Path(__file__).resolve().parents[1])
_LIBRARIES = tuple({str(Path(p).resolve()) for p in sysconfig.get_paths().values() if "lib" in p})


def is_users(file: str) -> bool:
    """Neither a library's nor Fairway's own, nor made up by an exec."""
    if not file or file.startswith("<"):
        return False
    path = str(Path(file).resolve())
    return not path.startswith((_HERE, *_LIBRARIES)) and "site-packages" not in path


def is_foreign_library(file: str) -> bool:
    """A library other than torch: the next best thing to the user's own code, such as a transformers model."""
    return "site-packages" in file and "/torch/" not in file and "/onnxscript/" not in file and "/onnx_ir/" not in file


@cache
def is_models(file: str) -> bool:
    """The user's own code, or a library's other than torch."""
    return is_users(file) or is_foreign_library(file)


def line_at(file: str, line: int, function: str) -> Where:
    """Return a place in a file with its text."""
    return Where(file=file, line=line, function=function, source=linecache.getline(file, line).strip() or None)


def user_frame(frames: Sequence[Where]) -> Where | None:
    """The innermost frame in the user's code, else in a library that is not the exporter."""
    for owned in (is_users, is_foreign_library):
        for frame in reversed(frames):
            if frame.file and owned(frame.file):
                text = frame.source or linecache.getline(frame.file, frame.line or 0).strip()
                return replace(frame, source=text or None)
    return None


def running_line() -> Where | None:
    """The user's line that is being run."""
    stack = traceback.extract_stack()
    return user_frame([Where(file=f.filename, line=f.lineno, function=f.name, source=f.line) for f in stack])
