"""Commands of the documentation, each run once in a session and shared by the tests."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import forked

ROOT = Path(__file__).parents[1]
SECONDS = 900

Documented = Callable[[str], tuple[int, str]]


@pytest.fixture(scope="session")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`$OUT` of the documentation: one folder for the whole session, also where several workers share it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "documented"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def documented(out: Path) -> Documented:
    """Exit code and output of a command. One that stands in several places is run once; the others wait for it."""

    def once(text: str) -> tuple[int, str]:
        kept = out / ".commands" / hashlib.sha256(text.encode()).hexdigest()[:16]
        kept.parent.mkdir(exist_ok=True)
        with kept.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                kept.write_text(json.dumps(obey(text, out)))
            status, output = json.loads(kept.read_text())
            return status, output

    return once


def obey(text: str, out: Path) -> tuple[int, str]:
    """Run the command with bash. A `fairway` command that uses no shell feature but `$OUT` is forked."""
    if re.fullmatch(r"fairway [^$|&;<>()`*?~\\\n]+", text.replace("$OUT", "")):
        return forked.fairway(shlex.split(text.replace("$OUT", str(out)))[1:], ROOT, environment(out), SECONDS)
    return run(["bash", "-c", text], ROOT, out)


def run(words: list[str], folder: Path, out: Path) -> tuple[int, str]:
    done = subprocess.run(
        words,
        cwd=folder,
        env=environment(out),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
    )
    return done.returncode, done.stdout


def environment(out: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "OUT": str(out), "PATH": path, "NO_COLOR": "1", "COLUMNS": "100"}
