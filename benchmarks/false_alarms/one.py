"""One case: export by a bare exporter, show the file right by plain means, then ask Fairway."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import discrete
import nets
import numeric
import numpy as np
import torch
from family import FAMILIES, Family

import fairway
from fairway.model.spec import parse_input

ROUTES = ("export", "trace")
PLAIN = {"float32": 1e-4, "float16": 2e-2, "none": 1e-4}
"""Relative to an element and to a hundredth of its tensor's largest, times the family's scale."""

FLAVORS = ("normal", "normal", "zeros", "large")
"""At large values float16 overflows on one side or the other; the file must be finite where PyTorch is well so."""

assert numeric, (discrete, nets)  # imported for the families they register


@dataclass(frozen=True)
class Case:
    family: Family
    route: str
    dtype: str

    @property
    def name(self) -> str:
        return f"{self.family.name}/{self.route}/{self.dtype}"

    @property
    def lines(self) -> list[str]:
        return [line.replace("{f}", self.dtype) for line in self.family.lines]

    def model(self) -> torch.nn.Module:
        model = self.family.make()
        return model.half() if self.dtype == "float16" and not self.family.name.startswith("stored") else model


def cases() -> dict[str, Case]:
    every = [Case(f, route, dtype) for f in FAMILIES.values() for dtype in f.dtypes for route in ROUTES]
    return {case.name: case for case in every}


def judge(case: Case, levels: tuple[str, ...], folder: Path) -> dict[str, Any]:
    """Return the row of one case. If the exporter or the plain check refuses it, the row says so."""
    started = time.monotonic()
    row: dict[str, Any] = {"case": case.name, "why": case.family.why}
    path = folder / "net.onnx"
    try:
        export(case, path)
    except Exception as error:
        return row | {"outcome": "not exported", "said": f"{type(error).__name__}: {str(error)[:300]}"}
    said = plain_check(case, path)
    if said:
        return row | {"outcome": "not a correct export", "said": said[0]}
    row["verdicts"] = {}
    for level in levels:
        result = fairway.verify(path, case.model(), case.lines, bounds=case.family.bounds, level=level)
        # A file whose samples are decided by the order of equal elements is unproven, for that reason alone (FW422).
        only_excuses = result.verdict == "unproven" and {f.code for f in result.findings if f.severity != "note"} == {
            "FW422"
        }
        row["verdicts"][level] = "unproven by excuses" if only_excuses else result.verdict
        if result.evidence is not None:
            row["excused"] = sum(bool(t.excused) for t in result.evidence.tested)
            row["undecided"] = result.evidence.undecided
        if result.verdict != "verified":
            row.setdefault("findings", []).extend([f.code, f.seen[:400]] for f in result.findings)
    alarms = [level for level, verdict in row["verdicts"].items() if verdict not in ("verified", "unproven by excuses")]
    excused = "unproven by excuses" in row["verdicts"].values()
    outcome = "ALARM at " + ", ".join(alarms) if alarms else "unproven by excuses" if excused else "verified"
    return row | {"outcome": outcome, "seconds": round(time.monotonic() - started, 2)}


def export(case: Case, path: Path) -> None:
    """By torch itself; Fairway has no part in it."""
    model, specs = case.model(), [parse_input(line) for line in case.lines]
    example = _example(case)
    tensors = tuple(torch.from_numpy(array) for array in make(case, example, np.random.default_rng(1), "normal"))
    axes = [{i: size.names[0] for i, size in enumerate(spec.shape) if size.names} for spec in specs]
    names = [spec.name for spec in specs]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if case.route == "trace":
            by_name = {name: a for name, a in zip(names, axes, strict=True) if a}
            torch.onnx.export(
                model, tensors, str(path), dynamo=False, input_names=names, dynamic_axes=by_name, opset_version=18
            )
            return
        shapes = tuple(dict.fromkeys(a, torch.export.Dim.DYNAMIC) for a in axes)
        program = torch.export.export(model, tensors, dynamic_shapes=shapes)
        exported = torch.onnx.export(program, dynamo=True, verbose=False, input_names=names)
        assert exported is not None
        exported.save(str(path))


def _example(case: Case) -> dict[str, int]:
    wanted = {"batch": 3, "n": 7, "m": 5}
    return {dim: min(max(wanted[dim], low), high) for dim, (low, high) in case.family.bounds.items()}


def points(case: Case) -> list[dict[str, int]]:
    """The example, both corners, and some in between."""
    bounds = case.family.bounds
    rng = np.random.default_rng(5)
    found = [_example(case), {d: low for d, (low, _) in bounds.items()}, {d: high for d, (_, high) in bounds.items()}]
    found += [{d: int(rng.integers(low, high + 1)) for d, (low, high) in bounds.items()} for _ in range(3)]
    return found


def make(case: Case, point: dict[str, int], rng: np.random.Generator, flavor: str) -> list[np.ndarray]:
    """Inputs drawn by numpy, apart from Fairway's own."""
    found = []
    for line in case.lines:
        spec = parse_input(line)
        shape = spec.sizes(point)
        if spec.dtype == "bool":
            drawn = rng.random(shape) < 0.3
            if spec.values.mask:
                drawn[..., 0] = False
        elif "int" in spec.dtype:
            low = int(spec.values.low or 0)
            high = spec.values.below - 1 if spec.values.below else int(spec.values.high or 9)
            drawn = rng.integers(low, high + 1, shape) if flavor != "zeros" else np.full(shape, low)
        else:
            drawn = rng.normal(size=shape) * {"normal": 1, "zeros": 0, "large": 30}[flavor]
        found.append(np.asarray(drawn).astype(spec.dtype))
    return found


def plain_check(case: Case, path: Path) -> list[str]:
    """Return what is wrong with the file by a plain comparison with eager PyTorch, or by the family's own check."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        return [f"the runtime refuses it: {str(error)[:300]}"]
    model = case.model()
    names = [parse_input(line).name for line in case.lines]
    for i, point in enumerate(points(case)):
        for j, flavor in enumerate(FLAVORS):
            inputs = make(case, point, np.random.default_rng([i, j]), flavor)
            with torch.no_grad():
                ours = model(*(torch.from_numpy(array) for array in inputs))
            ours = [one.numpy() for one in (ours if isinstance(ours, tuple) else (ours,))]
            try:
                theirs = session.run(None, dict(zip(names, inputs, strict=True)))
            except Exception as error:
                return [f"at {point}: {str(error)[:300]}"]
            if case.dtype == "float16" and flavor == "large":
                said = overflows(ours, theirs)
            else:
                said = differs(case, inputs, ours, theirs)
            if said:
                return [f"{said}, at {point}, {flavor}"]
    return []


def overflows(ours: list[np.ndarray], theirs: list[np.ndarray]) -> str | None:
    """Mark elements that are infinite or NaN in the file, and at most a tenth of float16's range in PyTorch."""
    for own, their in zip(ours, theirs, strict=True):
        with np.errstate(invalid="ignore"):
            wrong = ~np.isfinite(their) & (np.abs(own) < 6e3)
        if wrong.any():
            place = tuple(int(k) for k in np.argwhere(wrong)[0])
            return f"{list(place)}: PyTorch {own[place]}, file {their[place]}; {wrong.sum()} of {wrong.size}"
    return None


def differs(case: Case, inputs: list[np.ndarray], ours: list[np.ndarray], theirs: list[np.ndarray]) -> str | None:
    if [(o.shape, o.dtype) for o in ours] != [(t.shape, t.dtype) for t in theirs]:
        return f"shapes or dtypes: {[(t.shape, str(t.dtype)) for t in theirs]}"
    if case.family.check is not None:
        return None if case.family.check(inputs, ours, theirs) else "the family's own check"
    for own, their in zip(ours, theirs, strict=True):
        a, b = own.astype(np.float64), their.astype(np.float64)
        if own.dtype.kind != "f":
            wrong = own != their
        else:
            largest = np.abs(a[np.isfinite(a)]).max(initial=0.0)
            allowed = PLAIN[case.dtype] * case.family.scale * (np.nan_to_num(np.abs(a), posinf=0.0) + 0.01 * largest)
            with np.errstate(invalid="ignore"):
                wrong = ~((np.abs(a - b) <= allowed + 1e-44) | (a == b) | (np.isnan(a) & np.isnan(b)))
        if wrong.any():
            place = tuple(int(k) for k in np.argwhere(wrong)[0])
            return f"{list(place)}: PyTorch {own[place]}, file {their[place]}; {wrong.sum()} of {wrong.size}"
    return None
