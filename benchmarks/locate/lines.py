"""Counts how often the true line is named: `python benchmarks/locate/lines.py [--only NAME…]`, then `--write`.

The models of failing_models.py cannot be exported, and the lines that are to blame are marked in their source. Six of
them fail inside a library. Each is exported at the level quick, and its findings are compared with the marks. Rows go
to rows-lines.jsonl, the sums to results-lines.md.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROWS = HERE / "rows-lines.jsonl"
LIBRARY = "failing_library.py"


def list_marked_lines(file: Path, mark: str, first: int = 1, last: int = 10**6) -> set[tuple[str, int]]:
    lines = enumerate(file.read_text().splitlines(), 1)
    return {(file.name, number) for number, text in lines if first <= number <= last and text.endswith(f"# {mark}")}


def list_named_lines(finding: Any) -> set[tuple[str, int]]:
    """Return the lines that a finding names: its place, and those in its text."""
    where = finding.where
    place = {(Path(where.file).name, where.line or 0)} if where is not None and where.file else set()
    return place | {(name, int(number)) for name, number in re.findall(r"([\w.]+\.py):(\d+)", finding.seen)}


def find_true_lines(model: type, name: str) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
    """Return the lines that are the cause, and the user's lines that call into the library."""
    text, first = inspect.getsourcelines(model)
    file, last = Path(inspect.getfile(model)), first + len(text) - 1
    causes, calls = (list_marked_lines(file, mark, first, last) for mark in ("cause", "call"))
    if not calls:
        return causes, calls
    called = re.search(r"failing_library\.(\w+)\(", "".join(text))
    assert called is not None, name
    function = getattr(sys.modules["failing_library"], called[1])
    lines, start = inspect.getsourcelines(function)
    return list_marked_lines(HERE / LIBRARY, "cause", start, start + len(lines) - 1), calls


def score(name: str, folder: Path) -> dict[str, Any]:
    from failing_models import BOUNDS, MODELS, X

    import fairway

    model = MODELS[name]
    causes, calls = find_true_lines(model, name)
    result = fairway.export(model().eval(), list(X), folder / "out.onnx", bounds=BOUNDS, level="quick")
    errors = [finding for finding in result.findings if finding.severity == "error"]
    named = [list_named_lines(finding) for finding in errors]
    every: set[tuple[str, int]] = set().union(*named)
    ours = {line for line in every if line[0] in ("failing_models.py", LIBRARY)}
    return {
        "case": name,
        "verdict": result.verdict,
        "codes": [finding.code for finding in errors],
        "first": bool(named and named[0] & causes),
        "named": bool(every & causes),
        "call": bool(every & calls) if calls else None,
        "falsely": sorted(f"{file}:{line}" for file, line in ours - causes - calls),
    }


def apart(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    from fairway.workers.attempt import Limits, Workers

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with Workers(Limits(900.0)) as workers:
        outcome = workers.run(lambda tell: work())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    row = outcome.value if outcome.status == "done" else {"case": "", "verdict": outcome.status}
    return {**row, "cpu_seconds": round(spent, 1)}


def write() -> None:
    rows = list({row["case"]: row for row in map(json.loads, ROWS.read_text().splitlines())}.values())
    failed = [row for row in rows if row["verdict"] != "verified"]
    inside = [row for row in failed if row["call"] is not None]
    lines = [
        "# Whether the line is named",
        "",
        "By `python benchmarks/locate/lines.py`.",
        "",
        f"{len(rows)} models; {len(failed)} of them are not verified, and these count.",
        "",
        "| question | models |",
        "|---|---|",
        f"| the first finding names the cause's line | {sum(row['first'] for row in failed)} of {len(failed)} |",
        f"| a finding names the cause's line | {sum(row['named'] for row in failed)} of {len(failed)} |",
        f"| no other line of the model is named | {sum(not row['falsely'] for row in failed)} of {len(failed)} |",
        f"| inside a library: the library's line is named | {sum(row['named'] for row in inside)} of {len(inside)} |",
        f"| inside a library: the user's call is named | {sum(row['call'] for row in inside)} of {len(inside)} |",
        f"| CPU seconds of the longest refusal | {max(row['cpu_seconds'] for row in failed)} |",
        "",
        "| model | verdict | findings | first | named | other lines | CPU seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: str(row["case"])):
        marks = ["yes" if row[question] else "no" for question in ("first", "named")]
        cells = [row["case"], row["verdict"], " ".join(row["codes"]), *marks, " ".join(row["falsely"])]
        lines.append(f"| {' | '.join(cells)} | {row['cpu_seconds']} |")
    (HERE / "results-lines.md").write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    if args.write:
        write()
        return
    with tempfile.TemporaryDirectory() as folder:
        packages = Path(folder) / "site-packages"
        packages.mkdir()
        shutil.copy(HERE / LIBRARY, packages)
        sys.path[:0] = [str(packages), str(HERE)]
        from failing_models import MODELS

        for name in args.only or MODELS:
            made = Path(tempfile.mkdtemp(dir=folder))
            row = {**apart(lambda name=name, made=made: score(name, made)), "case": name}
            with ROWS.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(row, flush=True)


if __name__ == "__main__":
    main()
