"""Environments: which specs share one, where torch comes from, and incomplete ones."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from fairway.debug.versions import environments
from fairway.debug.versions.environments import (
    EnvironmentNotMade,
    EnvironmentSpec,
    Uv,
    choose_cache_folder,
    combine_versions,
    find_uv,
    list_fairway_requirements,
)
from fairway.diagnostics.errors import UserError

from .doubles import UV, script

OLD = EnvironmentSpec((("torch", "2.9.1"),))


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The double of uv on the path; it writes down what it is told, and refuses what UV_REFUSES names."""
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin" / "uv", UV)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("UV_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("UV_REFUSES", "")
    for name in ("UV_FIND_LINKS", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "log"


def told(log: Path) -> list[str]:
    return [line.removeprefix("--quiet --no-progress ") for line in log.read_text().splitlines()]


def test_every_combination_in_the_order_of_the_lists() -> None:
    lists = {"torch": ["1", "2"], "transformers": [], "onnxscript": ["3", "4"]}
    assert [expected.pins for expected in combine_versions(lists, ["timm"])] == [
        (("torch", t), ("onnxscript", o)) for t in ("1", "2") for o in ("3", "4")
    ]
    assert str(combine_versions(lists, ["timm"])[0]) == "torch 1, onnxscript 3, timm"


def test_equal_wishes_share_an_environment_and_others_do_not() -> None:
    both = EnvironmentSpec((("torch", "2.9.1"), ("onnxscript", "0.7.2")))
    assert both.key() == EnvironmentSpec(both.pins[::-1]).key()
    assert (
        len(
            {
                OLD.key(),
                both.key(),
                EnvironmentSpec(OLD.pins, ("timm",)).key(),
                EnvironmentSpec((("torch", "2.9.0"),)).key(),
            }
        )
        == 4
    )


def test_the_cache_is_where_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRWAY_CACHE", "/said")
    monkeypatch.setenv("XDG_CACHE_HOME", "/shared")
    assert choose_cache_folder(Path("/asked")) == Path("/asked")
    assert choose_cache_folder(None) == Path("/said")
    monkeypatch.delenv("FAIRWAY_CACHE")
    assert choose_cache_folder(None) == Path("/shared/fairway")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert choose_cache_folder(None) == Path.home() / ".cache" / "fairway"


def test_an_environment_is_made_once_with_fairways_requirements(log: Path, tmp_path: Path) -> None:
    python = Uv(tmp_path)(OLD)
    folder = tmp_path / "environments" / OLD.key()
    assert python == folder / "bin" / "python"
    assert told(log) == [
        f"venv --python {sys.executable} {folder}",
        f"pip install --python {python} torch==2.9.1 --torch-backend cpu",
        f"pip install --python {python} torch==2.9.1 {' '.join(list_fairway_requirements())}",
    ]
    assert json.loads((folder / "ready.json").read_text())["torch"] == "the index of CPU builds"
    assert Uv(tmp_path)(OLD) == python
    assert len(told(log)) == 3


def test_wheels_on_disk_come_first_and_the_plain_index_last(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels /more")
    monkeypatch.setenv("UV_REFUSES", "--no-index --torch-backend")
    python = Uv(tmp_path)(OLD)
    assert told(log)[1:4] == [
        f"pip install --python {python} torch==2.9.1 --no-index --no-deps --find-links /wheels --find-links /more",
        f"pip install --python {python} torch==2.9.1 --torch-backend cpu",
        f"pip install --python {python} torch==2.9.1",
    ]
    ready = tmp_path / "environments" / OLD.key() / "ready.json"
    assert json.loads(ready.read_text())["torch"] == "the index"


def test_what_cannot_be_installed_is_said_and_tried_again_the_next_time(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_REFUSES", "torch==2.9.1")
    with pytest.raises(EnvironmentNotMade, match=r"^uv pip: error: nothing here for torch==2.9.1$"):
        Uv(tmp_path)(OLD)
    litter = tmp_path / "environments" / OLD.key() / "litter"
    litter.touch()
    monkeypatch.setenv("UV_REFUSES", "")
    Uv(tmp_path)(OLD)
    assert not litter.exists()


def test_an_install_that_never_ends_is_stopped(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path / "bin" / "uv", "#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(environments, "INSTALL_SECONDS", 0.2)
    with pytest.raises(EnvironmentNotMade, match="uv venv took longer"):
        Uv(tmp_path)(OLD)


def test_without_uv_there_is_one_clear_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(UserError) as caught:
        find_uv()
    assert (caught.value.finding.code, caught.value.finding.todo) == ("FW018", ("pip install uv",))


def test_uv_beside_the_python_that_runs_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert find_uv_in(tmp_path) == str(tmp_path / "uv")


def find_uv_in(folder: Path) -> str:
    script(folder / "uv", UV)
    return find_uv()


def test_a_cache_that_cannot_be_written_is_a_finding(log: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError) as caught:
        Uv(tmp_path / "file")(OLD)
    assert caught.value.finding.code == "FW009"
