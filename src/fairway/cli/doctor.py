"""fairway doctor [RECIPE]"""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairway.cli import options
from fairway.cli.show import Progress, loading
from fairway.diagnostics.columns import fit
from fairway.diagnostics.errors import complain
from fairway.diagnostics.render import printable, render_finding

if TYPE_CHECKING:
    from fairway.debug.doctor.checkup import Checkup, RecipeToTry

_LABEL = 14


def doctor(
    recipe: Annotated[
        str | None, typer.Argument(metavar="RECIPE", help="One that does not export; without it, the machine only.")
    ] = None,
    inputs: options.InputOption = None,
    dims: options.DimOption = None,
    checkpoint: options.CheckpointOption = None,
    trust: options.TrustOption = False,
    opset: Annotated[int | None, typer.Option("--opset", metavar="N", help="The opset that was asked for.")] = None,
    route: Annotated[
        list[str] | None,
        typer.Option(
            "--route", metavar="NAME", help="The route that was asked for. Repeatable.", autocompletion=options.routes
        ),
    ] = None,
    remedies: Annotated[bool, typer.Option("--remedies/--no-remedies", help="As the export was asked for.")] = True,
    timeout: options.TimeoutOption = 600.0,
    memory: options.MemoryOption = None,
    probe: Annotated[
        list[str] | None, typer.Option("--probe", metavar="NAME", help="Only this model of the dozen. Repeatable.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON on standard output.")] = False,
) -> int:
    """Tell whether it is the model, the settings or the machine. Exit code 0 where nothing is wrong.

    A dozen models that are known to export go through every exporter and runtime here; then the recipe, if one is
    given, at the level quick, with the settings given and with the defaults.
    """
    said = options.overrides(inputs, dims, checkpoint, trust)
    limit = options.parse_memory(memory)
    if recipe is not None:
        _refuse_a_missing_file(recipe)

    def asked() -> RecipeToTry:
        from fairway.convert.export import make_settings
        from fairway.debug.doctor.checkup import RecipeToTry

        assert recipe is not None
        settings = make_settings("quick", tuple(route or ()), opset, remedies, timeout, limit)
        words = [f"--route {name}" for name in route or ()]
        words += [] if opset is None else [f"--opset {opset}"]
        words += [] if remedies else ["--no-remedies"]
        return RecipeToTry(recipe, said, settings, " ".join(words))

    from fairway.debug.doctor.checkup import check_up
    from fairway.debug.doctor.machine import look_around

    progress = Progress()
    with loading("looking at the machine"):
        machine = look_around()
    try:
        with redirect_stdout(sys.stderr):  # a recipe may print; standard output is for the result
            checkup = check_up(machine, tuple(probe or ()), asked if recipe else None, progress)
    finally:
        progress.close()
    print(json_module.dumps(checkup.as_dict(), indent=1, default=str) if json else "\n".join(_lines(checkup)))
    return 0 if checkup.healthy else 1


def _refuse_a_missing_file(recipe: str) -> None:
    """A mistyped path is said at once, not after the probes; whatever else a recipe does is the doctor's to judge."""
    where = recipe.partition(":")[0]
    if where.endswith(".py") and not Path(where).exists():
        todo = ("Check the path; a relative one starts at the current folder.",)
        raise complain("FW101", f"{where:.200} does not exist", todo=todo)


def _lines(checkup: Checkup) -> Iterator[str]:
    machine = checkup.machine
    facts = {
        "versions": ", ".join(f"{name} {version}" for name, version in machine.versions.items()),
        "platform": f"{machine.platform}, {machine.libc}",
        "processor": f"{machine.cpus} CPU(s) with {', '.join(machine.flags) or 'no flags that matter'}",
        "memory": f"{_size(machine.memory)} of {_size(machine.memory_total)} free",
        "disk": f"{_size(machine.disk)} free for temporary files",
        "providers": ", ".join(machine.providers) or "none",
    }
    for label, text in facts.items():
        yield f"{label:<{_LABEL}}{printable(text)}"
    if checkup.steps:
        yield ""
        yield from _table(checkup)
    if checkup.tried is not None and checkup.tried.record is not None:
        yield ""
        yield f"{'recipe':<{_LABEL}}{_outcome(checkup.tried.record)}"
        if checkup.tried.defaults is not None:
            yield f"{'by default':<{_LABEL}}{_outcome(checkup.tried.defaults)}"
    for finding in checkup.findings:
        yield from ("", render_finding(finding))
    yield from ("", printable(checkup.diagnosis.sentence))


def _table(checkup: Checkup) -> Iterator[str]:
    """A row for each probe, a column for each tool; what a failed tool would have handed on is not there to test."""
    heads = (f"{'probe':<{_LABEL}}" + "  ".join(checkup.tools)).rstrip()
    wide = fit([heads])
    if wide:
        yield heads
    for probe in dict.fromkeys(step.probe for step in checkup.steps):
        cells = []
        if not wide:
            lost = dict.fromkeys(step.tool for step in checkup.steps if step.probe == probe and step.problem)
            yield f"{probe}: {'FAILS in ' + ', '.join(lost) if lost else 'ok'}"
            continue
        for tool in checkup.tools:
            problems = [step.problem for step in checkup.steps if (step.probe, step.tool) == (probe, tool)]
            cell = "-" if not problems else "FAILS" if any(problems) else "ok"
            cells.append(f"{cell:<{len(tool)}}")
        yield (f"{probe:<{_LABEL}}" + "  ".join(cells)).rstrip()


def _outcome(record: object) -> str:
    assert isinstance(record, dict)
    codes = " ".join(dict.fromkeys(f["code"] for f in record["findings"] if f["severity"] == "error"))
    return f"{record['verdict']}" + (f" ({record['route']})" if record["route"] else "") + f"  {codes}".rstrip()


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GB"
