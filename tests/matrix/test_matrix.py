"""Rows: the result of a run, failures that stop no other row, and reuse of results."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fairway.debug.versions import inside, matrix
from fairway.debug.versions.environments import EnvironmentNotMade, EnvironmentSpec, read_fairway_version
from fairway.debug.versions.inside import NO_ENVIRONMENT, NO_RESULT, MatrixRow, RunSettings, run_inside
from fairway.debug.versions.matrix import MatrixRun, fill_matrix, hash_recipe
from fairway.debug.versions.version_table import render_version_table
from fairway.diagnostics.errors import UserError

from .doubles import RECIPE, answering, calls, record, script

QUICK = RunSettings("quick", 120, 240)
ONE, TWO = EnvironmentSpec((("torch", "2.9.1"),)), EnvironmentSpec((("torch", "2.13.0"),))


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "recipe.py").write_text(RECIPE)
    return folder / "recipe.py"


Fill = Callable[..., list[MatrixRow]]


@pytest.fixture
def filled(recipe: Path, tmp_path: Path) -> Fill:
    def run(
        maker: matrix.EnvironmentMaker, *every: EnvironmentSpec, again: bool = False, how: RunSettings = QUICK
    ) -> list[MatrixRow]:
        return fill_matrix(
            str(recipe), every or (ONE,), MatrixRun(maker, how, tmp_path / "kept", again), lambda event: None
        )

    return run


def test_one_broken_environment_does_not_stop_the_others(filled: Fill) -> None:
    def maker(spec: EnvironmentSpec) -> Path:
        if spec is ONE:
            raise EnvironmentNotMade("uv pip: no such version")
        return Path(sys.executable)

    broken, row = filled(maker, ONE, TWO)
    assert (broken.verdict, broken.reason, broken.route) == (NO_ENVIRONMENT, "FW606: uv pip: no such version", None)
    assert (row.verdict, row.route, row.requested) == ("verified", "export-dynamic", {"torch": "2.13.0"})
    assert row.installed["torch"].startswith("2.")
    assert row.installed["fairway"] == read_fairway_version()
    assert row.seconds > 0


def test_fairway_alone_is_lent_to_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fairway", "torch"):
        (tmp_path / "site-packages" / name).mkdir(parents=True)
    monkeypatch.setattr(inside, "SOURCE_FOLDER", tmp_path / "site-packages" / "fairway")
    answer = '{"verdict": "failed", "findings": [{"code": "FW1", "severity": "error", "seen": "%s"}]}'
    python = script(tmp_path / "python", f"#!/bin/sh\nprintf '{answer}' \"$(ls $PYTHONPATH) $PYTHONNOUSERSITE\"\n")
    assert run_inside(python, "r.py", QUICK, ONE).reason == "FW1: fairway 1"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("echo chatter; echo last words >&2", "FW607: last words"),
        ("echo dying >&2; kill -9 $$", "FW607: signal 9. dying"),
        ("true", "FW607: no record was printed"),
        ('echo \'{"verdict": "perfect"}\'', "FW607: no record was printed"),
        ("exec sleep 60", "FW607: stopped after 0 s."),
    ],
)
def test_a_run_without_a_record_is_a_row_with_its_last_words(tmp_path: Path, program: str, reason: str) -> None:
    python = script(tmp_path / "python", f"#!/bin/sh\n{program}\n")
    row = run_inside(python, "r.py", RunSettings(limit=0.4 if "sleep" in program else 60), ONE)
    assert (row.verdict, row.reason) == (NO_RESULT, reason)


def test_a_python_that_is_not_there_is_a_row(tmp_path: Path) -> None:
    row = run_inside(tmp_path / "nothing", "r.py", QUICK, ONE)
    assert (row.verdict, row.reason.endswith("nothing: No such file or directory.")) == (NO_RESULT, True)


def test_what_does_not_stop_politely_is_killed_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inside, "_GRACE_SECONDS", 0.2)
    text = f"#!/bin/sh\ntrap '' TERM\nsleep 60 &\necho $! > '{tmp_path}/pid'\nwhile true; do sleep 0.1; done\n"
    assert run_inside(script(tmp_path / "python", text), "r.py", RunSettings(limit=0.5), ONE).verdict == NO_RESULT
    assert gone_within(10, int((tmp_path / "pid").read_text()))


def gone_within(seconds: float, pid: int) -> bool:
    """A killed process takes a moment to die, and stays as a zombie until its parent waits for it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().split()[2]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_a_result_is_reused_until_the_recipe_or_fairway_changes(
    filled: Fill, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = answering(tmp_path / "python", record())

    def ran(**options: bool) -> int:
        before = calls(python)
        assert [row.verdict for row in filled(lambda spec: python, **options)] == ["verified"]
        return calls(python) - before

    assert [ran(), ran(), ran(again=True), ran()] == [1, 0, 1, 0]
    recipe.write_text(RECIPE + "\n")
    assert [ran(), ran()] == [1, 0]
    (recipe.parent / "model.py").write_text("")
    assert [ran(), ran()] == [1, 0]
    (recipe.parent / "weights.pt").write_bytes(b"1")
    assert [ran(), ran()] == [1, 0]
    os.utime(recipe.parent / "weights.pt", (1, 1))
    assert [ran(), ran()] == [1, 0]
    monkeypatch.setattr(matrix, "read_fairway_version", lambda: "9")
    assert [ran(), ran()] == [1, 0]
    (tmp_path / "source").mkdir()
    monkeypatch.setattr(matrix, "SOURCE_FOLDER", tmp_path / "source")
    assert [ran(), ran()] == [1, 0]
    (recipe.parent / "out.onnx").touch()
    (recipe.parent / ".cache").mkdir()
    (recipe.parent / ".cache" / "x.py").touch()
    assert ran() == 0


def test_a_cache_in_the_recipes_folder_is_no_part_of_the_recipe(recipe: Path) -> None:
    cache = recipe.parent / "cache"
    before = hash_recipe(str(recipe), RunSettings(), cache / "results")
    for made in (cache / "results" / "row.json", cache / "environments" / "a" / "torch.py"):
        made.parent.mkdir(parents=True)
        made.touch()
    assert hash_recipe(str(recipe), RunSettings(), cache / "results") == before
    (cache / "other.py").touch()
    assert hash_recipe(str(recipe), RunSettings(), cache / "results") != before


def test_what_was_kept_is_read_back_whole_or_not_at_all(filled: Fill, tmp_path: Path) -> None:
    python = answering(tmp_path / "python", record("failed"))
    (first,) = filled(lambda spec: python)
    assert filled(lambda spec: python) == [first]
    (kept,) = (tmp_path / "kept").iterdir()
    for text in ("", "{", "[]", "{}", kept.read_text().replace('"seconds": ', '"seconds": "x", "y": ')):
        kept.write_text(text)
        before = calls(python)
        filled(lambda spec: python)
        assert calls(python) == before + 1


def test_what_gave_no_result_is_not_kept(filled: Fill, tmp_path: Path) -> None:
    def refuse(spec: EnvironmentSpec) -> Path:
        raise EnvironmentNotMade("no network")

    assert filled(refuse)[0].verdict == NO_ENVIRONMENT
    assert filled(lambda spec: script(tmp_path / "python", "#!/bin/sh\n"))[0].verdict == NO_RESULT
    assert not (tmp_path / "kept").exists()


def test_a_recipe_below_the_current_folder_is_named_from_there(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert matrix.locate_recipe(f"{recipe}:net") == f"{recipe}:net"
    monkeypatch.chdir(recipe.parent.parent)
    assert matrix.locate_recipe(f"{recipe}:net") == "project/recipe.py:net"


@pytest.mark.parametrize("name", ["nothing.py", "package.module:net", "."])
def test_only_a_file_can_be_run_elsewhere(name: str) -> None:
    with pytest.raises(UserError) as caught:
        matrix.locate_recipe(name)
    assert caught.value.finding.code == "FW101"


def test_the_table_is_fit_for_a_readme() -> None:
    installed = {"torch": "2.13.0+cpu", "onnx": "1.23.2", "numpy": "2.4.6"}
    rows = [
        MatrixRow(
            {"torch": "2.9.1"}, "failed", "trace", (), 12.4, {**installed, "numpy": "1.26.4"}, "FW303: a | b\nc <d>"
        ),
        MatrixRow({"torch": "2.13.0"}, "verified", "export-dynamic", ("one", "two"), 8.6, installed),
        MatrixRow({"torch": "9"}, NO_ENVIRONMENT, reason="x" * 300),
    ]
    assert render_version_table(rows).splitlines() == [
        "| torch | verdict | route | remedies | seconds | why |",
        "|---|---|---|---|---|---|",
        "| 2.9.1 | failed | trace | – | 12 | FW303: a \\| b c &lt;d> |",
        "| 2.13.0 | verified | export-dynamic | one, two | 9 |  |",
        f"| 9 | no environment | – | – | 0 | {'x' * 159}… |",
        "",
        "Everywhere: onnx 1.23.2.",
    ]
    assert render_version_table(rows[1:2]).splitlines()[0] == "| torch | verdict | route | remedies | seconds |"
