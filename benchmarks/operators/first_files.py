"""Fairway's first file of each case, not judged but checked: `python benchmarks/operators/first_files.py [PATTERN…]`.

One process exports all cases one after another, with Fairway's translations and without its ladder, which takes a tenth
of the time of `run.py`. So it shows quickly what is not translated. Rows go to first_files.jsonl; later ones count.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import tempfile
import warnings
from contextlib import ExitStack
from fnmatch import fnmatch
from pathlib import Path
from types import FrameType
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

REMEDIES = ("missing_translation", "complex_picked", "small_constant_dropped")
ROWS = HERE / "first_files.jsonl"
SECONDS = 300


def export(case: Any, path: Path) -> list[str]:
    """Write the file and return the remedies that were used."""
    import torch
    from check import choose_example
    from columns import make_dynamic_shapes

    from fairway.convert.ladder.decompose import decompose_by_node, reuse_captured_values
    from fairway.convert.ladder.route import parse_route
    from fairway.convert.ladder.translation_tables import use_built_tables
    from fairway.convert.remedies.catalogue import CATALOGUE
    from fairway.convert.remedies.contract import Case as RemedyCase
    from fairway.convert.remedies.contract import Match

    args, kwargs = case.make_inputs(0, **choose_example(case))
    remedy_case = RemedyCase(case.module, args, kwargs, parse_route("export-dynamic"))
    with ExitStack() as stack, torch.no_grad():
        for name in REMEDIES:
            remedy_case.applying = name
            match = CATALOGUE[name].detect(remedy_case)
            if isinstance(match, Match):
                stack.enter_context(CATALOGUE[name].apply(remedy_case, match))
        shapes = make_dynamic_shapes(case, args, kwargs)
        program = torch.export.export(case.module, args, kwargs, dynamic_shapes=shapes, strict=False)
        for repair in remedy_case.repairs:
            program = repair(program)
        with use_built_tables(), decompose_by_node(), reuse_captured_values():
            exported = torch.onnx.export(
                program, dynamo=True, custom_translation_table=remedy_case.translations, verbose=False, optimize=False
            )
    assert exported is not None
    exported.save(path)
    return sorted(remedy_case.used)


def make_row(name: str, folder: Path) -> dict[str, Any]:
    from case import NoCase
    from check import refuse, score
    from run import clean, describe
    from suites import build

    try:
        case = build(name)
        refuse(case)
    except Exception as error:
        note = str(error) if isinstance(error, NoCase) else describe(error)
        return {"case": name, "outcome": "skipped", "note": note}
    try:
        used = export(case, folder / "out.onnx")
        outcome, note = score(case, folder / "out.onnx")
    except Exception as error:
        return {"case": name, "outcome": "fails", "note": describe(error)}
    return {"case": name, "outcome": outcome, "note": clean(note), "used": used}


def main() -> None:
    import torch
    from run import read_rows
    from suites import SUITES, list_names

    from fairway.convert.export import preload_modules
    from fairway.convert.ladder.translation_tables import build_tables

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("patterns", nargs="*", default=["*"], help="names of cases, * and ? allowed")
    parser.add_argument("--again", action="store_true", help="run also what is there already")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    preload_modules()
    logging.disable(logging.ERROR)
    build_tables()
    signal.signal(signal.SIGALRM, _stop)
    known = set() if args.again else {row["case"] for row in read_rows(ROWS)}
    names = [name for suite in SUITES for name in list_names(suite) if name not in known]
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            if any(fnmatch(name, pattern) for pattern in args.patterns):
                signal.alarm(SECONDS)
                row = make_row(name, Path(folder))
                signal.alarm(0)
                with ROWS.open("a") as file:
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
                print(f"{name}: {row['outcome']} {row['note'][:110]}", flush=True)


def _stop(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"more than {SECONDS} seconds")


if __name__ == "__main__":
    main()
