"""A file is replaced completely or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fairway.workers.workshop import replace_file


@pytest.mark.parametrize("is_durable", [False, True])
def test_a_file_is_replaced_and_nothing_else_is_left(is_durable: bool, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    for content in ("first", b"second"):
        replace_file(path, content, is_durable)
    assert path.read_text() == "second"
    assert [entry.name for entry in tmp_path.iterdir()] == ["page.html"]


def test_the_old_file_stays_if_the_new_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")

    def refuse(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, "new")
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("page.html", "old")]
