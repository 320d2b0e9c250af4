"""The commands `fairway matrix` and `fairway watch`: what they print where, and how they end."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fairway.debug.versions import environments
from fairway.debug.versions.environments import EnvironmentNotMade, EnvironmentSpec

from .command_line import Fairway

UV = environments.Uv

RECORD: dict[str, Any] = {
    "format": 2,
    "subject": {"sha256": "0" * 64, "domain": {}},
    "verdict": "verified",
    "route": "trace",
    "remedies": [],
    "versions": {"torch": "2.13.0"},
    "findings": [],
}


@pytest.fixture
def python(folder: Path) -> Path:
    """One that answers a good record whatever it is asked."""
    path = folder / "python"
    (folder / "answer.json").write_text(json.dumps(RECORD))
    path.write_text(f"#!/bin/sh\ncat '{folder / 'answer.json'}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def no_uv(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environments without uv: version 9 of anything cannot be had."""

    def make(cache: Path) -> Any:
        def maker(spec: EnvironmentSpec) -> Path:
            if "9" in dict(spec.pins).values():
                raise EnvironmentNotMade("uv pip: there is no 9")
            return python

        return maker

    monkeypatch.setattr(environments, "Uv", make)
    monkeypatch.setattr(environments, "use_this_python", lambda spec: python)


def test_a_version_that_cannot_be_installed_is_a_row(fairway: Fairway) -> None:
    said = fairway("matrix", "recipe.py", "--torch", "2.9.1, 9", "--transformers", "5.22.2", "--cache", "kept")
    assert said.out.splitlines()[:4] == [
        "| torch | transformers | verdict | route | remedies | seconds | why |",
        "|---|---|---|---|---|---|---|",
        "| 2.9.1 | 5.22.2 | verified | trace | – | 0 |  |",
        "| 9 | 5.22.2 | no environment | – | – | 0 | FW606: uv pip: there is no 9 |",
    ]
    assert (said.err, said.code) == ("", 1)


def test_json_has_the_rows_and_the_installed_torch_by_default(fairway: Fairway) -> None:
    said = fairway("matrix", "recipe.py", "--cache", "kept", "--json")
    (row,) = json.loads(said.out)
    assert (row["verdict"], row["installed"]["torch"], said.code) == ("verified", "2.13.0", 0)
    assert "+" not in row["requested"]["torch"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("matrix", "recipe.py", "--torch", "new"), 2, "--torch: expected a version, got 'new'"),
        (("matrix", "nothing.py", "--torch", "2.9.1"), 3, "FW101"),
        (("watch",), 3, "fairway-watch.json does not exist"),
        (("watch", "list"), 3, "fairway-watch.json does not exist"),
        (("watch", "add", "recipe.py", "--blocked-by", "me"), 2, "expected owner/repo#number or the id"),
        (("watch", "add", "nothing.py", "--blocked-by", "a/b#1"), 3, "FW101"),
    ],
)
def test_what_cannot_be_done_is_said(fairway: Fairway, words: tuple[str, ...], code: int, said: str) -> None:
    done = fairway(*words)
    assert done.code == code
    assert said in " ".join(done.err.split())


def test_without_uv_one_finding_says_how_to_get_it(
    fairway: Fairway, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "Uv", UV)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    said = fairway("matrix", "recipe.py", "--torch", "2.9.1", "--cache", "kept")
    assert said.err.splitlines() == [
        "FW018 error: An optional package is not installed",
        "  seen      environments need the program uv, which is not on the path",
        "  why       A plain install contains only what every export needs. This feature needs an extra.",
        "  do        1. pip install uv",
    ]
    assert said.code == 2


def test_what_is_blocked_is_kept_tested_again_and_said_to_be_possible(fairway: Fairway, folder: Path) -> None:
    assert fairway("watch", "add", "recipe.py", "--blocked-by", "hypot-not-translated").out == (
        "fairway-watch.json: 1 blocked\n"
    )
    (entry,) = json.loads((folder / "fairway-watch.json").read_text())["blocked"]
    assert entry["blocked_by"] == "hypot-not-translated (unreported)"
    assert entry["why"].startswith("dynamo=True: hypot")
    said = fairway("watch", "list")
    assert said.out.splitlines()[2].startswith("| recipe.py | hypot-not-translated (unreported) |")
    assert ("| not tested |" in said.out, said.code) == (True, 0)
    assert json.loads(fairway("watch", "list", "--json").out) == [entry]
    said = fairway("watch")
    assert said.out.splitlines()[-2:] == [
        "recipe.py has become possible with torch 2.13.0 (trace); it waited for hypot-not-translated (unreported).",
        "0 of 1 still blocked.",
    ]
    assert said.code == 0
    (folder / "answer.json").write_text(json.dumps({**RECORD, "verdict": "failed"}))
    said = fairway("watch", "--torch", "2.9.1", "--json")
    assert (json.loads(said.out)[0]["state"], said.code) == ("broken again", 1)
