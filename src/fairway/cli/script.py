"""fairway script SCRIPT.py ARGUMENTS"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairway.cli import options
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain

if TYPE_CHECKING:
    from fairway.deploy.dropin.stock_export import CheckedExport

WRONG_EXIT_CODE = 1


def script(
    path: Annotated[Path, typer.Argument(metavar="SCRIPT.py", help="A script that calls torch.onnx.export.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGUMENTS", help="Arguments of the script.")] = None,
    level: options.LevelOption = "standard",
) -> int:
    """Run a script and check the files that it exports.

    These are the files that torch.onnx.export writes. The script and its files are not changed. A wrong file gets a
    repaired one beside it, and exit code 1.
    """
    if not path.is_file():
        todo = ("Name the script before its arguments: fairway script export.py --its-option.",)
        raise complain(Code.NOT_A_COMMAND, f"there is no script {str(path)!r:.200}", todo=todo)
    options.check_choice("--level", level, options.LEVELS)
    from fairway.deploy.dropin.stock_export import check_exports

    outcomes: list[CheckedExport] = []

    def note(outcome: CheckedExport) -> None:
        outcomes.append(outcome)
        print_outcome(outcome)

    before = sys.argv, list(sys.path)
    sys.argv = [str(path), *(arguments or [])]
    sys.path.insert(0, str(path.resolve().parent))
    try:
        with check_exports(note, level):
            runpy.run_path(os.path.abspath(path), run_name="__main__")
    except SystemExit as error:
        if error.code not in (None, 0):
            raise
    finally:
        sys.argv, sys.path[:] = before
    return WRONG_EXIT_CODE if any(outcome.is_wrong for outcome in outcomes) else 0


def print_outcome(outcome: CheckedExport) -> None:
    """Print what was found about one file to standard error."""
    for line in describe_outcome(outcome):
        print(f"fairway: {line}", file=sys.stderr)


def describe_outcome(outcome: CheckedExport) -> list[str]:
    """Return the verdict on a file, its first findings, and the repaired file, a line each."""
    lines = []
    if outcome.problem is not None:
        finding = outcome.problem
        lines.append(f"{outcome.path} was not checked: {finding.code} {finding.title}: {finding.seen}")
        lines += [f"  do: {step}" for step in finding.todo]
    elif outcome.path is None:
        lines.append("torch.onnx.export failed; the error follows")
    elif outcome.result is not None:
        result = outcome.result
        domain = result.record.subject.domain
        sizes = ", ".join(f"{name} {dim.low}..{dim.high}" for name, dim in domain.items()) or "one fixed shape"
        lines.append(f"{outcome.path} is {result.verdict} for {sizes}")
        errors = [finding for finding in result.findings if finding.severity == "error"]
        lines += [f"  {finding.code} {finding.title}: {finding.seen}" for finding in errors]
    if outcome.repaired is not None:
        repaired = outcome.repaired
        made = (
            f"{repaired.path} is a repaired file, {repaired.verdict}" if repaired.path else "no repaired file was made"
        )
        lines.append(made)
    return lines
