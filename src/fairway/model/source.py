"""Tells the user's own code from libraries, by the place of the file."""

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


@cache
def is_user_code(file: str) -> bool:
    """Return whether a file is the user's own: not a library's, not Fairway's, and not made by `exec`."""
    if not file or file.startswith("<"):
        return False
    path = str(Path(file).resolve())
    return not path.startswith((_HERE, *_LIBRARIES)) and "site-packages" not in path


@cache
def is_foreign_library(file: str) -> bool:
    """Return whether a file belongs to a library other than torch and Fairway, such as a transformers model."""
    if "site-packages" not in file or str(Path(file).resolve()).startswith(_HERE):
        return False
    return "/torch/" not in file and "/onnxscript/" not in file and "/onnx_ir/" not in file


@cache
def is_model_source(file: str) -> bool:
    """Return whether a file is the user's own code, or belongs to a library other than torch."""
    return is_user_code(file) or is_foreign_library(file)


def make_where(file: str, line: int, function: str) -> Where:
    """Return a place in a file with the text of its line."""
    return Where(file=file, line=line, function=function, source=linecache.getline(file, line).strip() or None)


def find_user_frame(frames: Sequence[Where]) -> Where | None:
    """Return the innermost frame in the user's code, or else in a library that is not the exporter."""
    for owned in (is_user_code, is_foreign_library):
        for frame in reversed(frames):
            if frame.file and owned(frame.file):
                text = frame.source or linecache.getline(frame.file, frame.line or 0).strip()
                return replace(frame, source=text or None)
    return None


def find_running_line() -> Where | None:
    """Return the user's line that is running now."""
    stack = traceback.extract_stack()
    return find_user_frame([Where(file=f.filename, line=f.lineno, function=f.name, source=f.line) for f in stack])
