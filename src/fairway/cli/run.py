"""fairway run MODEL DATA"""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairway.cli import options
from fairway.cli.show import ProgressLine
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.diagnostics.render import format_markdown_table, make_printable

if TYPE_CHECKING:
    from fairway.deploy.run.runner import FinishedRun


DataArgument = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="A recording or a folder of them: .npz, .npy, .csv, .parquet, .safetensors or .zarr.",
        callback=options.check_data,
    ),
]
WindowOption = Annotated[int | None, typer.Option("--window", metavar="N", help="Samples in a window. Default: all.")]
StepOption = Annotated[int | None, typer.Option("--step", metavar="N", help="Samples from one window to the next.")]
OverlapOption = Annotated[
    int | None, typer.Option("--overlap", metavar="N", help="Samples that two windows share; replaces --step.")
]
TailOption = Annotated[
    str,
    typer.Option(
        "--tail",
        metavar="short|shift|pad|drop",
        help="How to run the last, incomplete window.",
        autocompletion=options.complete_from("short", "shift", "pad", "drop"),
    ),
]
StitchOption = Annotated[
    str,
    typer.Option(
        "--stitch",
        metavar="blend|mean|last",
        help="How to join overlapping windows.",
        autocompletion=options.complete_from("blend", "mean", "last"),
    ),
]
OverOption = Annotated[
    str | None, typer.Option("--over", metavar="DIM", help="The dim along the recording, by name or number.")
]
CarryOption = Annotated[
    list[str] | None,
    typer.Option("--carry", metavar="IN=OUT", help="State passed from window to window. Repeatable."),
]
UnverifiedOption = Annotated[bool, typer.Option("--unverified", help="Also run windows outside the verified domain.")]


def run(
    model: Annotated[Path, options.model_argument("The file to run.")],
    data: DataArgument,
    out: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="A new folder for the outputs.")],
    window: WindowOption = None,
    step: StepOption = None,
    overlap: OverlapOption = None,
    tail: TailOption = "short",
    stitch: StitchOption = "blend",
    batch: Annotated[int, typer.Option("--batch", metavar="N", help="Windows or samples in one call.")] = 1,
    over: OverOption = None,
    carry: CarryOption = None,
    recipe: options.RecipeOption = None,
    jobs: options.JobsOption = 1,
    on: options.OnOption = "processes",
    unverified: UnverifiedOption = False,
    json: options.JsonOption = False,
) -> int:
    """Run a file over recordings of any length.

    It runs window by window in constant memory, and writes each output to a .npy file. With --recipe PyTorch runs on
    the same windows and is compared. A run that was stopped continues with the same command.
    """
    from fairway.deploy.run import run as run_file
    from fairway.deploy.run.windows import STITCHES, TAILS, WindowSettings
    from fairway.workers.fanout import Parallelism

    options.check_choice("--tail", tail, TAILS)
    options.check_choice("--stitch", stitch, STITCHES)
    for option, number in (("--window", window), ("--step", step), ("--batch", batch)):
        options.check_positive(option, number)
    if overlap is not None:
        if step is not None or window is None or not 0 <= overlap < window:
            raise complain(Code.UNKNOWN_OPTION, f"--overlap: {overlap} needs a larger --window, and no --step")
        step = window - overlap
    chosen: Any = (tail, stitch)
    progress = ProgressLine(forks=False)
    try:
        how = WindowSettings(window, step, chosen[0], chosen[1], batch, over, _parse_carry(carry or []))
        done = run_file(model, data, out, how, recipe, unverified, progress, Parallelism(jobs, on))
    finally:
        progress.close()
    print(
        json_module.dumps(asdict(done), indent=1, default=str)
        if json
        else "\n".join(map(make_printable, _format_run(done)))
    )
    return 0


def _parse_carry(carry: list[str]) -> dict[str, str]:
    pairs = {}
    for text in carry:
        source, equals, target = text.partition("=")
        if not (source and equals and target):
            raise complain(Code.UNKNOWN_OPTION, f"--carry: expected INPUT=OUTPUT, got {text!r:.80}")
        pairs[source] = target
    return pairs


def _format_run(done: FinishedRun) -> list[str]:
    lines = [f"ran  {done.folder}"]
    for recording in done.recordings:
        cut = f"{recording.windows} windows of {recording.window}, step {recording.step}"
        rate = recording.samples / max(recording.seconds, 1e-9)
        lines.append(f"  {recording.recording}  {recording.samples} samples, {cut}, {rate:.3g} samples/s")
        lines += [f"    {name}  {list(shape)}" for name, shape in recording.outputs.items()]
    compared = [recording for recording in done.recordings if recording.difference is not None]
    if compared:
        names = list(compared[0].difference or {})
        rows = [["recording", "window", *names]]
        rows += [
            [
                recording.recording,
                str(recording.window),
                *(f"{(recording.difference or {})[name]:.3e}" for name in names),
            ]
            for recording in compared
        ]
        lines += ["", "largest difference to PyTorch", "", *format_markdown_table(rows)]
    return lines
