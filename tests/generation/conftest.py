"""Each generator is exported once, also where several workers share the tests."""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import fairway

from . import generators


@dataclass(frozen=True)
class Exported:
    model: Any
    result: fairway.GenerationResult
    folder: Path


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Exported]:
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "generators"
    shared.mkdir(exist_ok=True)

    def export(name: str) -> Exported:
        model, folder, kept = getattr(generators, name)(), shared / name, shared / f"{name}.pickle"
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                kept.write_bytes(pickle.dumps(fairway.export_generation(model, folder, level="quick")))
        return Exported(model, pickle.loads(kept.read_bytes()), folder)

    return export
