"""One seed: draw, check the generator against eager torch, export with Fairway, check the file with the oracle."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from draw import draw
from kinds import BOUNDS
from oracle import check, check_at, coarsest
from program import Array, Program
from write import source

import fairway
from fairway.model.subject import build_subject


def judge(seed: int, level: str, folder: Path, timeout: float) -> dict[str, Any]:
    """The row of one seed: Fairway's verdict, the oracle's, and how they go together."""
    started = time.monotonic()
    program, again = draw(seed)
    model = load(program, seed, folder).Net().eval()
    row: dict[str, Any] = {
        "seed": seed,
        "redrawn": again,
        "operators": [step.operator for step in program.steps],
        "coarsest": coarsest(program),
    }
    wrong, judged, undecided = check(program, eager(model), seed)
    row |= {"samples": judged, "undecided": undecided}
    if wrong:
        return row | {"outcome": "generator at fault", "oracle": wrong[:3]}
    path = folder / f"net{seed}.onnx"
    result = fairway.export(
        model, [one.line for one in program.inputs], path, bounds=BOUNDS, level=level, timeout=timeout, overwrite=True
    )
    file = result.path or path.with_suffix(".wrong.onnx")
    said = check_file(program, file, seed) if file.exists() else None
    if result.verdict == "wrong" and said == []:
        said = check_where_it_failed(program, file, model, result)
    return row | {
        "verdict": result.verdict,
        "route": result.route,
        "remedies": list(result.remedies),
        "oracle": None if said is None else said[:3],
        "outcome": outcome(result.verdict, said),
        "findings": [[f.code, f.seen[:300]] for f in result.findings],
        "ladder": [
            [rung.route, rung.verdict, [[finding.code, finding.seen[:300]] for finding in rung.findings]]
            for rung in result.record.ladder
        ],
        "excused": sum(bool(t.excused) for t in result.evidence.tested) if result.evidence else 0,
        "seconds": round(time.monotonic() - started, 2),
    }


def outcome(verdict: str, said: list[str] | None) -> str:
    if said is None:
        return verdict
    return f"{verdict}, {'WRONG' if said else 'right'}" if verdict == "verified" else f"{verdict}, {_lower(said)}"


def _lower(said: list[str]) -> str:
    return "wrong" if said else "RIGHT"


def load(program: Program, seed: int, folder: Path) -> ModuleType:
    """The program as a module from a file, so that its lines can be read and rewritten as a user's can."""
    path = folder / f"random_model_{seed}.py"
    path.write_text(source(program, seed))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def eager(model: torch.nn.Module) -> Any:
    def run(inputs: list[Array]) -> list[Array]:
        with torch.no_grad():
            found = model(*(torch.from_numpy(np.ascontiguousarray(array)) for array in inputs))
        return [one.numpy() for one in (found if isinstance(found, tuple) else (found,))]

    return run


def check_file(program: Program, path: Path, seed: int) -> list[str]:
    """Return the oracle's verdict on a file, at every size of the domain and with other seeds than Fairway's."""
    try:
        run = session(program, path)
    except Exception as error:
        return [f"the runtime refuses it: {str(error)[:300]}"]
    return check(program, run, seed + 10**6)[0]


def check_where_it_failed(program: Program, path: Path, model: torch.nn.Module, result: fairway.Result) -> list[str]:
    """Return the oracle's verdict at the inputs at which Fairway calls the file wrong, such as the largest values."""
    subject = build_subject(model, [one.line for one in program.inputs], bounds=BOUNDS)
    run = session(program, path)
    said: list[str] = []
    for one in result.evidence.tested if result.evidence else ():
        if not one.right and not one.note.startswith("values near"):
            inputs = [tensor.numpy() for tensor in subject.make(one.point, one.seed, one.flavor)]
            said += check_at(program, run, (one.point["batch"], one.point["n"]), inputs)
    return said


def session(program: Program, path: Path) -> Callable[[list[Array]], list[Array]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    loaded = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [one.value.name for one in program.inputs]

    def run(inputs: list[Array]) -> list[Array]:
        return list(loaded.run(None, dict(zip(names, inputs, strict=True))))

    return run
