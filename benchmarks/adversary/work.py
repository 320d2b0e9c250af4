"""The work on one case: call Fairway and the oracle, or test the case itself."""

from __future__ import annotations

import importlib
import logging
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from case import RIGHT_FILES, TRAPS, WRONG_FILES, RightFile, Trap, WrongFile
from draw import draw_calls
from files import export_stock, make_right, make_wrong
from oracle import check_probes, check_right, compare, run_torch

Row = dict[str, Any]


@cache
def load_cases() -> None:
    """Import every module of the set; importing enters its cases in the tables."""
    for path in sorted(Path(__file__).parent.glob("*_*.py")):
        if path.stem.split("_")[0] in ("traps", "wrong", "right"):
            importlib.import_module(path.stem)


def list_cases(which: str) -> dict[str, Any]:
    load_cases()
    tables: dict[str, dict[str, Any]] = {"traps": TRAPS, "wrong": WRONG_FILES, "right": RIGHT_FILES}
    return tables[which]


def make_probes(case: Trap | WrongFile | RightFile) -> list[dict[str, Any]]:
    torch.manual_seed(1)
    return case.probes()


def silence() -> None:
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)


def run_case(which: str, name: str, level: str, folder: Path) -> Row:
    """Call Fairway on one case and return verdict, finding codes and the oracle's outcome."""
    silence()
    case = list_cases(which)[name]
    row: Row = {"category": case.category}
    if which == "traps":
        return row | run_trap(case, level, folder)
    if which == "wrong":
        return row | run_wrong(case, level, folder)
    return row | run_right(case, level, folder)


def run_trap(case: Trap, level: str, folder: Path) -> Row:
    import fairway

    arguments = case.declared.make_arguments()
    inputs = arguments.pop("inputs")
    path = folder / "model.onnx"
    try:
        result = fairway.export(case.build(), inputs, path, level=level, **arguments)
    except fairway.UserError as error:
        return describe_refusal(error)
    row = describe_result(result)
    if result.verdict != "verified":
        return row | {"outcome": result.verdict}
    reason, _ = check_probes(path, case, make_probes(case), case.sequence)
    if case.no_right_file:
        reason = f"no file can be right: {case.no_right_file}"
    if case.rows and claims_independent_rows(result.record.as_dict()):
        reason = reason or "the record calls rows independent"
    if case.must_name:
        row["named"] = any(case.must_name in f.seen for f in result.findings) or case.must_name in str(result)
    return row | {"outcome": "verified-WRONG" if reason else "verified-right", "note": reason}


def run_wrong(case: WrongFile, level: str, folder: Path) -> Row:
    import fairway

    path = folder / "wrong.onnx"
    make_wrong(case, path)
    reason, differences = check_probes(path, case, make_probes(case), case.sequence)
    if not any(differences):
        return {"outcome": "error of the set", "note": reason or "no probe shows that the file is wrong"}
    arguments = case.declared.make_arguments()
    try:
        result = fairway.verify(path, case.build(), level=level, **arguments)
    except fairway.UserError as error:
        return describe_refusal(error) | {"shown": reason}
    outcome = "ACCEPTED" if result.verdict == "verified" else result.verdict
    return describe_result(result) | {"outcome": outcome, "shown": reason}


def run_right(case: RightFile, level: str, folder: Path) -> Row:
    import fairway

    path = folder / "right.onnx"
    make_right(case, path)
    reason = check_right(path, case, make_calls(case))
    if reason:
        return {"outcome": "error of the set", "note": f"the file is not right: {reason}"}
    arguments = case.declared.make_arguments()
    try:
        result = fairway.verify(path, case.build(), level=level, **arguments)
    except fairway.UserError as error:
        return describe_refusal(error)
    row = describe_result(result)
    outcome = {"verified": "verified", "wrong": "REFUSED"}.get(result.verdict, result.verdict)
    note = "" if outcome == "verified" else "; ".join(f"{f.code} {f.seen[:160]}" for f in result.findings[:3])
    return row | {"outcome": outcome, "note": note}


def make_calls(case: RightFile) -> list[dict[str, Any]]:
    drawn = list(draw_calls(case.declared)) if case.draw and case.declared.lines else []
    return [*make_probes(case), *drawn]


def describe_refusal(error: Any) -> Row:
    return {"outcome": "failed", "verdict": "failed", "codes": [error.finding.code], "note": error.finding.seen[:300]}


def describe_result(result: Any) -> Row:
    row: Row = {"verdict": result.verdict, "codes": sorted({f.code for f in result.findings})}
    if result.route:
        row["route"] = result.route
    if result.remedies:
        row["remedies"] = list(result.remedies)
    return row


def claims_independent_rows(record: Any) -> bool:
    """Return whether a record says that rows do not depend on each other: the only place that knows its keys."""
    if isinstance(record, dict):
        for key, value in record.items():
            if "rows" in str(key) and isinstance(value, dict) and value.get("independent") is True:
                return True
            if "independent" in str(key) and value is True:
                return True
            if claims_independent_rows(value):
                return True
    return isinstance(record, list) and any(map(claims_independent_rows, record))


def check_case(which: str, name: str, folder: Path) -> Row:
    """Test the case itself, without Fairway."""
    silence()
    case = list_cases(which)[name]
    probes = make_probes(case)
    if which == "traps":
        return check_trap(case, probes, folder)
    path = folder / "file.onnx"
    if which == "wrong":
        make_wrong(case, path)
        reason, differences = check_probes(path, case, probes, case.sequence)
        shown = [i for i, text in enumerate(differences) if text]
        note = f"shown at probes {shown} of {len(probes)}: {reason}"
        control = find_control(case, probes, folder)
        if control is not None and set(shown) <= set(control):
            note += f"; a file without the mistake differs at {control}"
        if not differences:
            return {"outcome": "does not load", "note": reason}
        return {"outcome": "fine" if reason else "not shown", "note": note}
    make_right(case, path)
    reason = check_right(path, case, make_calls(case))
    return {"outcome": "not right" if reason else "fine", "note": reason}


def find_control(case: WrongFile, probes: list[dict[str, Any]], folder: Path) -> list[int] | None:
    """Return the probes at which the file without the mistake differs too; None if it cannot be exported."""
    path = folder / "control.onnx"
    try:
        make_wrong(replace(case, forward=None, alter=None, mutate=None), path)
    except Exception:
        return None
    _, differences = check_probes(path, case, probes, case.sequence)
    return [i for i, text in enumerate(differences) if text]


def check_trap(case: Trap, probes: list[dict[str, Any]], folder: Path) -> Row:
    """Run the probes in PyTorch, and say at which ones a file from torch's tracer is wrong."""
    case.declared.make_arguments()
    for call in probes:
        torch.manual_seed(7)
        once = run_torch(case.build(), call)
        again = run_torch(case.build(), call)
        if compare(once, again) and not case.no_right_file:
            return {"outcome": "not a function", "note": "two fresh models differ on one input"}
    return {"outcome": "fine", "note": find_careless(case, probes, folder)}


def find_careless(case: Trap, probes: list[dict[str, Any]], folder: Path) -> str:
    """Say what a careless export does: torch's tracer, with the user's example or the first probe."""
    path = folder / "traced.onnx"
    call = probes[0]
    if case.declared.example is not None:
        given = case.declared.make_arguments()["inputs"]
        call = given if isinstance(given, dict) else dict(zip(call, given, strict=False))
    model = case.build()
    try:
        export_stock(model, call, case.declared, "trace", path)
    except Exception as error:
        return f"the tracer fails: {type(error).__name__}"
    _, differences = check_probes(path, case, probes, case.sequence)
    shown = [i for i, text in enumerate(differences) if text]
    return (
        f"a traced file is wrong at probes {shown} of {len(probes)}" if differences else "a traced file does not load"
    )
