"""Isolated environments with the versions asked for, made by uv, kept in a cache and used again.

Fairway's own needs are installed beside them at versions that fit. torch is taken as a CPU build where one can be had:
from the folders that pip or uv are told of (PIP_FIND_LINKS, UV_FIND_LINKS), else from the index of CPU builds that uv
knows, else as it comes, which on Linux brings gigabytes of CUDA.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from itertools import product
from pathlib import Path
from typing import IO

from packaging.requirements import Requirement

from fairway.diagnostics.errors import complain

SOURCE = Path(__file__).parents[2]
"""Fairway itself, which every environment is lent."""

READY = "ready.json"
"""Written last: an environment without it was left half made."""

INSTALL_SECONDS = 3600.0

FALLBACK = (
    "torch",
    "numpy",
    "onnx",
    "onnx-ir",
    "onnxscript",
    "onnxruntime",
    "packaging",
    "safetensors",
    "sympy",
    "typer",
)
"""What Fairway needs, where it runs without being installed and so without metadata that says so."""


class NotMade(Exception):
    """An environment could not be made; the text says why."""


@dataclass(frozen=True)
class EnvironmentSpec:
    """What an environment is to hold: exact versions by package, and further requirements as they are."""

    pins: tuple[tuple[str, str], ...]
    further: tuple[str, ...] = ()

    def key(self) -> str:
        """Names the environment: equal wishes share one."""
        said = [platform.python_version(), sorted(self.pins), sorted(self.further), fairways_needs()]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return ", ".join([f"{name} {version}" for name, version in self.pins] + list(self.further)) or "as installed"


def combine(lists: Mapping[str, Sequence[str]], further: Sequence[str]) -> list[EnvironmentSpec]:
    """Every combination of the versions listed, in the order of the lists."""
    names = [name for name, listed in lists.items() if listed]
    return [
        EnvironmentSpec(tuple(zip(names, chosen, strict=True)), tuple(further))
        for chosen in product(*(lists[name] for name in names))
    ]


def cache_folder(asked: Path | None) -> Path:
    """The folder asked for, else FAIRWAY_CACHE, else Fairway's own below the platform's cache folder."""
    said = os.environ.get("FAIRWAY_CACHE")
    shared = os.environ.get("XDG_CACHE_HOME")
    return asked or (Path(said) if said else (Path(shared) if shared else Path.home() / ".cache") / "fairway")


def find_uv() -> str:
    """The program uv, on the path or beside this Python; its absence is a finding."""
    found = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if found is None:
        raise complain(
            "FW018", "environments are made by the program uv, which is not on the path", todo=("pip install uv",)
        )
    return found


def fairways_version() -> str:
    """As installed; one that runs from its source without an install has no number."""
    try:
        return metadata.version("fairway")
    except metadata.PackageNotFoundError:
        return "not installed"


def fairways_needs() -> list[str]:
    """Requirements of Fairway's own that every environment must meet."""
    try:
        lines = metadata.requires("fairway") or ()
    except metadata.PackageNotFoundError:
        return list(FALLBACK)
    needs = [Requirement(line) for line in lines]
    return [f"{n.name}{n.specifier}" for n in needs if n.marker is None or n.marker.evaluate({"extra": ""})]


class Uv:
    """Makes environments in a cache folder; called with what is wanted, answers the environment's Python."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._program = find_uv()

    def __call__(self, wanted: EnvironmentSpec) -> Path:
        folder = self._cache / "environments" / wanted.key()
        python = folder / "bin" / "python"
        with _locked(folder):
            if not (folder / READY).is_file():
                started = time.monotonic()
                shutil.rmtree(folder, ignore_errors=True)
                self._run("venv", "--python", sys.executable, str(folder))
                torch = self._install_torch(python, dict(wanted.pins).get("torch"))
                exact = [f"{name}=={version}" for name, version in wanted.pins]
                self._install(python, *exact, *wanted.further, *fairways_needs())
                told = {"wanted": str(wanted), "torch": torch, "seconds": round(time.monotonic() - started, 1)}
                (folder / READY).write_text(json.dumps(told))
        return python

    def _install_torch(self, python: Path, version: str | None) -> str:
        """torch on its own and first, so that what follows finds it there. Answers where it came from."""
        if version is None:
            return "whatever fits"
        wheels = os.environ.get("UV_FIND_LINKS") or os.environ.get("PIP_FIND_LINKS") or ""
        links = [word for place in wheels.split() for word in ("--find-links", place)]
        ways = {
            "a folder of wheels": ("--no-index", "--no-deps", *links) if links else None,
            "the index of CPU builds": ("--torch-backend", "cpu"),
            "the index": (),
        }
        for name, options in ways.items():
            if options is None:
                continue
            try:
                self._install(python, f"torch=={version}", *options)
            except NotMade:
                if options:
                    continue
                raise
            return name
        raise AssertionError("the last way answers or raises")

    def _install(self, python: Path, *words: str) -> None:
        self._run("pip", "install", "--python", str(python), *words)

    def _run(self, *words: str) -> None:
        environment = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
        try:
            done = subprocess.run(
                [self._program, "--quiet", "--no-progress", *words],
                env=environment,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=INSTALL_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise NotMade(f"uv {words[0]} took longer than {INSTALL_SECONDS:.0f} s") from error
        if done.returncode:
            raise NotMade(f"uv {words[0]}: {' '.join(done.stderr.split())[-600:]}")


@contextmanager
def _locked(folder: Path) -> Iterator[IO[str]]:
    """One process makes an environment; another that wants the same waits for it."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = folder.with_suffix(".lock").open("w")
    except OSError as error:
        raise complain("FW009", f"{folder.parent}: {error.strerror}", todo=("Name another with --cache.",)) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def this_environment(wanted: EnvironmentSpec) -> Path:
    """The Python that is running, with whatever is installed."""
    return Path(sys.executable)
