"""The lines that a finding names: the user's, and the library's behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairway.convert.ladder.diagnose import explain
from fairway.diagnostics import Finding, Where
from fairway.model import source
from fairway.workers.attempt import Failure

USER = Where(file="/home/me/model.py", line=3, function="forward", source="return self.net(x)")
LIBRARY = Where(file="/env/site-packages/lib/nets/block.py", line=41, function="forward", source="return x.frexp()")
TORCH = Where(file="/env/site-packages/torch/export/x.py", line=9, function="run", source="raise")
MISSING = "No ONNX function found for <OpOverload(op='aten.frexp', overload='Tensor')>"


def quote(*frames: Where) -> str:
    return "\n".join(f'  File "{f.file}", line {f.line}, in {f.function}' for f in frames)


def explain_missing(message_frames: tuple[Where, ...], frames: tuple[Where, ...] = ()) -> Finding:
    message = f"{MISSING}\n{quote(*message_frames)}"
    return explain(Failure("TranslationError", message, frames, ""), ())[-1]


def test_a_missing_translation_names_the_users_line_and_the_librarys() -> None:
    finding = explain_missing((USER, LIBRARY), (TORCH,))
    assert finding.where is not None
    assert (finding.where.file, finding.where.line) == (USER.file, 3)
    assert finding.seen.startswith("aten.frexp; in lib/nets/block.py:41 ")


def test_a_line_that_is_quoted_again_does_not_hide_the_library() -> None:
    finding = explain_missing((USER, LIBRARY, USER), (TORCH,))
    assert finding.seen.startswith("aten.frexp; in lib/nets/block.py:41 ")


def test_a_model_of_a_library_gets_the_librarys_line() -> None:
    finding = explain_missing((LIBRARY,), (TORCH,))
    assert finding.where is not None
    assert (finding.where.file, finding.where.line) == (LIBRARY.file, 41)
    assert finding.seen == "aten.frexp"


def test_a_library_that_calls_the_users_line_is_not_named() -> None:
    finding = explain_missing((LIBRARY, USER), (TORCH,))
    assert finding.where is not None
    assert finding.where.file == USER.file
    assert finding.seen == "aten.frexp"


def test_fairway_installed_as_a_library_is_never_the_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "site-packages" / "fairway"
    monkeypatch.setattr(source, "_HERE", str(home))
    assert not source.is_foreign_library(str(home / "convert" / "export.py"))
    assert source.is_foreign_library(str(tmp_path / "site-packages" / "lib" / "net.py"))
