"""Isolated environments with requested versions, made by uv and kept in a cache.

Fairway's own requirements are installed too, at versions that fit. torch is taken as a CPU build if possible: from the
folders of wheels in UV_FIND_LINKS or PIP_FIND_LINKS, else from uv's index of CPU builds, else from the default index,
which on Linux brings gigabytes of CUDA.
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

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.diagnostics.extras import DISTRIBUTION

SOURCE_FOLDER = Path(__file__).parents[2]
"""Fairway itself, which is added to every environment."""

READY_FILE = "ready.json"
"""Written last: an environment without it is incomplete."""

INSTALL_SECONDS = 3600.0

FALLBACK_REQUIREMENTS = (
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
"""Fairway's requirements if it runs without being installed, and so without metadata."""


class EnvironmentNotMade(Exception):
    """An environment could not be made; the text says why."""


@dataclass(frozen=True)
class EnvironmentSpec:
    """The content of an environment: exact versions by package, and further requirements."""

    pins: tuple[tuple[str, str], ...]
    further: tuple[str, ...] = ()

    def key(self) -> str:
        """Return the name of the environment: equal specs share one."""
        parts = [platform.python_version(), sorted(self.pins), sorted(self.further), list_fairway_requirements()]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return ", ".join([f"{name} {version}" for name, version in self.pins] + list(self.further)) or "as installed"


def combine_versions(lists: Mapping[str, Sequence[str]], further: Sequence[str]) -> list[EnvironmentSpec]:
    """Return every combination of the listed versions, in the order of the lists."""
    names = [name for name, listed in lists.items() if listed]
    return [
        EnvironmentSpec(tuple(zip(names, chosen, strict=True)), tuple(further))
        for chosen in product(*(lists[name] for name in names))
    ]


def choose_cache_folder(requested: Path | None) -> Path:
    """Return the requested folder, else FAIRWAY_CACHE, else Fairway's folder in the platform's cache folder."""
    configured = os.environ.get("FAIRWAY_CACHE")
    shared = os.environ.get("XDG_CACHE_HOME")
    return requested or (
        Path(configured) if configured else (Path(shared) if shared else Path.home() / ".cache") / "fairway"
    )


def find_uv() -> str:
    """Find the program uv on the path or next to this Python; fail if it is missing."""
    program = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if program is None:
        raise complain(
            Code.EXTRA_MISSING, "environments need the program uv, which is not on the path", todo=("pip install uv",)
        )
    return program


def read_fairway_version() -> str:
    """Return the installed version; Fairway that runs from its source has none."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "not installed"


def list_fairway_requirements() -> list[str]:
    """List Fairway's own requirements, which every environment must meet."""
    try:
        lines = metadata.requires(DISTRIBUTION) or ()
    except metadata.PackageNotFoundError:
        return list(FALLBACK_REQUIREMENTS)
    requirements = [Requirement(line) for line in lines]
    return [f"{n.name}{n.specifier}" for n in requirements if n.marker is None or n.marker.evaluate({"extra": ""})]


class Uv:
    """Makes environments in a cache folder; call it with a spec to get the environment's Python."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._program = find_uv()

    def __call__(self, spec: EnvironmentSpec) -> Path:
        folder = self._cache / "environments" / spec.key()
        python = folder / "bin" / "python"
        with _lock_environment(folder):
            if not (folder / READY_FILE).is_file():
                started = time.monotonic()
                shutil.rmtree(folder, ignore_errors=True)
                self._run("venv", "--python", sys.executable, str(folder))
                torch = self._install_torch(python, dict(spec.pins).get("torch"))
                exact = [f"{name}=={version}" for name, version in spec.pins]
                self._install(python, *exact, *spec.further, *list_fairway_requirements())
                notes = {"requested": str(spec), "torch": torch, "seconds": round(time.monotonic() - started, 1)}
                (folder / READY_FILE).write_text(json.dumps(notes))
        return python

    def _install_torch(self, python: Path, version: str | None) -> str:
        """Install torch alone and first, so that later packages find it. Return where it came from."""
        if version is None:
            return "any version that fits"
        wheel_folders = os.environ.get("UV_FIND_LINKS") or os.environ.get("PIP_FIND_LINKS") or ""
        links = [word for place in wheel_folders.split() for word in ("--find-links", place)]
        sources = {
            "a folder of wheels": ("--no-index", "--no-deps", *links) if links else None,
            "the index of CPU builds": ("--torch-backend", "cpu"),
            "the index": (),
        }
        for name, options in sources.items():
            if options is None:
                continue
            try:
                self._install(python, f"torch=={version}", *options)
            except EnvironmentNotMade:
                if options:
                    continue
                raise
            return name
        raise AssertionError("the last source returns or raises")

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
            raise EnvironmentNotMade(f"uv {words[0]} took longer than {INSTALL_SECONDS:.0f} s") from error
        if done.returncode:
            raise EnvironmentNotMade(f"uv {words[0]}: {' '.join(done.stderr.split())[-600:]}")


@contextmanager
def _lock_environment(folder: Path) -> Iterator[IO[str]]:
    """Let one process make an environment; another one that needs it waits."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = folder.with_suffix(".lock").open("w")
    except OSError as error:
        raise complain(
            Code.CANNOT_WRITE, f"{folder.parent}: {error.strerror}", todo=("Name another with --cache.",)
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def use_this_python(spec: EnvironmentSpec) -> Path:
    """Return the running Python, with whatever is installed."""
    return Path(sys.executable)
