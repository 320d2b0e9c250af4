"""Fixtures: the command line, called as a user would, in a new folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairway.cli import main

from .command_line import RECIPE, Fairway, Said


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a good recipe in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.py").write_text(RECIPE)
    return tmp_path


@pytest.fixture
def fairway(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fairway:
    """`fairway("export", …)` in this process."""

    def call(*words: str | Path) -> Said:
        monkeypatch.setattr(sys, "argv", ["fairway", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return Said(code, out, err)

    return call


@pytest.fixture
def small_disk(folder: Path) -> Iterator[Callable[[str], Path | None]]:
    """Mounts a disk of the size asked for; answers None where this machine does not let us mount."""
    mounted: list[Path] = []

    def mount(options: str) -> Path | None:
        place = folder / "disk"
        place.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", options, "none", str(place)]
        try:
            done = subprocess.run(command, capture_output=True).returncode == 0
        except OSError:
            return None
        if done:
            mounted.append(place)
        return place if done else None

    yield mount
    for place in mounted:
        subprocess.run(["umount", "-l", str(place)], check=True)
