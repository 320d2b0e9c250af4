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
from fairway.cli.show import ProgressLine, show_loading
from fairway.diagnostics import Code
from fairway.diagnostics.columns import fits_terminal
from fairway.diagnostics.errors import complain
from fairway.diagnostics.render import make_printable, render_finding

if TYPE_CHECKING:
    from fairway.debug.doctor.checkup import Checkup, RecipeToTry
    from fairway.record.schema import Record

_LABEL_COLUMNS = 14


def doctor(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="RECIPE",
            help="A recipe that does not export. Without it only the machine is tested.",
            callback=options.check_recipe,
        ),
    ] = None,
    inputs: options.InputOption = None,
    dims: options.DimOption = None,
    checkpoint: options.CheckpointOption = None,
    checkpoint_key: options.CheckpointKeyOption = None,
    trust: options.TrustOption = False,
    opset: options.OpsetOption = None,
    route: options.RouteOption = None,
    remedies: options.RemediesOption = True,
    timeout: options.TimeoutOption = "10m",
    memory: options.MemoryOption = None,
    probe: Annotated[
        list[str] | None, typer.Option("--probe", metavar="NAME", help="Test only this probe model. Repeatable.")
    ] = None,
    json: options.JsonOption = False,
) -> int:
    """Find out if the model, settings or machine is at fault.

    A dozen models that are known to export run through every exporter and runtime on this machine. Then the recipe, if
    one is given, runs at the level quick, with the given settings and with the defaults. The exit code is 0 if nothing
    is wrong.
    """
    overrides = options.parse_overrides(inputs, dims, checkpoint, trust, checkpoint_key)
    seconds = options.parse_duration("--timeout", timeout)
    memory_bytes = options.parse_memory(memory)
    if recipe is not None:
        _check_recipe_file(recipe)

    def make_trial() -> RecipeToTry:
        from fairway.convert.export import make_settings
        from fairway.debug.doctor.checkup import RecipeToTry
        from fairway.workers.attempt import Limits

        assert recipe is not None
        settings = make_settings("quick", tuple(route or ()), opset, remedies, Limits(seconds, memory_bytes))
        words = [f"--route {name}" for name in route or ()]
        words += [] if opset is None else [f"--opset {opset}"]
        words += [] if remedies else ["--no-remedies"]
        return RecipeToTry(recipe, overrides, settings, " ".join(words))

    from fairway.debug.doctor.checkup import check_up
    from fairway.debug.doctor.machine import inspect_machine

    progress = ProgressLine()
    with show_loading("looking at the machine"):
        machine = inspect_machine()
    try:
        with redirect_stdout(sys.stderr):  # a recipe may print; standard output is for the result
            checkup = check_up(machine, tuple(probe or ()), make_trial if recipe else None, progress)
    finally:
        progress.close()
    print(json_module.dumps(checkup.as_dict(), indent=1, default=str) if json else "\n".join(_format_checkup(checkup)))
    return 0 if checkup.is_healthy else 1


def _check_recipe_file(recipe: str) -> None:
    """Report a mistyped path at once, before the probes run."""
    path = recipe.partition(":")[0]
    if path.endswith(".py") and not Path(path).exists():
        todo = ("Check the path; a relative one starts at the current folder.",)
        raise complain(Code.RECIPE_MISSING, f"{path:.200} does not exist", todo=todo)


def _format_checkup(checkup: Checkup) -> Iterator[str]:
    machine = checkup.machine
    facts = {
        "versions": ", ".join(f"{name} {version}" for name, version in machine.versions.items()),
        "platform": f"{machine.platform}, {machine.libc}",
        "processor": f"{machine.cpus} CPU(s) with {', '.join(machine.flags) or 'no flags that matter'}",
        "memory": f"{_format_gigabytes(machine.memory)} of {_format_gigabytes(machine.memory_total)} free",
        "disk": f"{_format_gigabytes(machine.disk)} free for temporary files",
        "providers": ", ".join(machine.providers) or "none",
    }
    for label, text in facts.items():
        yield f"{label:<{_LABEL_COLUMNS}}{make_printable(text)}"
    if checkup.steps:
        yield ""
        yield from _format_probes(checkup)
    if checkup.tried is not None and checkup.tried.record is not None:
        yield ""
        yield f"{'recipe':<{_LABEL_COLUMNS}}{_format_outcome(checkup.tried.record)}"
        if checkup.tried.defaults is not None:
            yield f"{'by default':<{_LABEL_COLUMNS}}{_format_outcome(checkup.tried.defaults)}"
    for finding in checkup.findings:
        yield from ("", render_finding(finding))
    yield from ("", make_printable(checkup.diagnosis.sentence))


def _format_probes(checkup: Checkup) -> Iterator[str]:
    """Yield a row for each probe, with a column for each tool. Tools after a failed one have nothing to test."""
    heads = (f"{'probe':<{_LABEL_COLUMNS}}" + "  ".join(checkup.tools)).rstrip()
    wide = fits_terminal([heads])
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
        yield (f"{probe:<{_LABEL_COLUMNS}}" + "  ".join(cells)).rstrip()


def _format_outcome(record: Record) -> str:
    codes = " ".join(dict.fromkeys(finding.code for finding in record.findings if finding.severity == "error"))
    return record.verdict + (f" ({record.route})" if record.route else "") + f"  {codes}".rstrip()


def _format_gigabytes(count: int) -> str:
    return f"{count / 2**30:.1f} GB"
