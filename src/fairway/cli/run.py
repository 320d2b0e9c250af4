"""fairway run MODEL DATA"""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairway.cli import options
from fairway.cli.show import Progress
from fairway.diagnostics.errors import complain
from fairway.diagnostics.render import markdown, printable

if TYPE_CHECKING:
    from fairway.deploy.run.whole import Ran


def run(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="The file to run.")],
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help=".npz, .npy, .csv, .parquet, .safetensors or .zarr, or a folder.")
    ],
    out: Annotated[Path, typer.Option("-o", "--output", metavar="FOLDER", help="A new folder for the outputs.")],
    window: Annotated[int | None, typer.Option("--window", metavar="N", help="Samples at once; else all.")] = None,
    step: Annotated[int | None, typer.Option("--step", metavar="N", help="Samples from window to window.")] = None,
    overlap: Annotated[int | None, typer.Option("--overlap", metavar="N", help="Instead of --step.")] = None,
    tail: Annotated[
        str,
        typer.Option(
            "--tail",
            metavar="short|shift|pad|drop",
            help="What becomes of the end.",
            autocompletion=options.words("short", "shift", "pad", "drop"),
        ),
    ] = "short",
    stitch: Annotated[
        str,
        typer.Option(
            "--stitch",
            metavar="blend|mean|last",
            help="Where windows overlap.",
            autocompletion=options.words("blend", "mean", "last"),
        ),
    ] = "blend",
    batch: Annotated[int, typer.Option("--batch", metavar="N", help="Windows, or samples, that are run at once.")] = 1,
    over: Annotated[
        str | None, typer.Option("--over", metavar="DIM", help="The dim along the recording, or its number.")
    ] = None,
    carry: Annotated[
        list[str] | None, typer.Option("--carry", metavar="IN=OUT", help="State from window to window. Repeatable.")
    ] = None,
    compare: Annotated[str | None, typer.Option("--compare", metavar="RECIPE", help="Run PyTorch beside it.")] = None,
    jobs: options.JobsOption = 1,
    on: options.OnOption = "processes",
    unverified: Annotated[bool, typer.Option("--unverified", help="Also windows beyond the verified domain.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON on standard output.")] = False,
) -> int:
    """Run a file over recordings of any length, window by window, in constant memory.

    Each output becomes a .npy file. A run that was stopped goes on with the same command.
    """
    from fairway.deploy.run import run as run_file
    from fairway.deploy.run.windows import STITCHES, TAILS, WindowSettings
    from fairway.workers.fanout import Spreading

    for name, said, known in (("tail", tail, TAILS), ("stitch", stitch, STITCHES)):
        if said not in known:
            raise complain("FW006", f"--{name} {said!r:.40} is none of {', '.join(known)}")
    for name, number in (("window", window), ("step", step), ("batch", batch)):
        if number is not None and number < 1:
            raise complain("FW006", f"--{name} {number}: at least 1")
    if overlap is not None:
        if step is not None or window is None or not 0 <= overlap < window:
            raise complain("FW006", f"--overlap {overlap} needs a larger --window, and no --step")
        step = window - overlap
    chosen: Any = (tail, stitch)
    progress = Progress(forks=False)
    try:
        how = WindowSettings(window, step, chosen[0], chosen[1], batch, over, _pairs(carry or []))
        done = run_file(model, data, out, how, compare, unverified, progress, Spreading(jobs, on))
    finally:
        progress.close()
    print(json_module.dumps(asdict(done), indent=1, default=str) if json else "\n".join(map(printable, _lines(done))))
    return 0


def _pairs(carry: list[str]) -> dict[str, str]:
    found = {}
    for text in carry:
        source, equals, target = text.partition("=")
        if not (source and equals and target):
            raise complain("FW006", f"--carry {text!r:.80} is not INPUT=OUTPUT")
        found[source] = target
    return found


def _lines(done: Ran) -> list[str]:
    lines = [f"ran  {done.folder}"]
    for one in done.recordings:
        cut = f"{one.windows} windows of {one.window}, step {one.step}"
        rate = one.samples / max(one.seconds, 1e-9)
        lines.append(f"  {one.recording}  {one.samples} samples, {cut}, {rate:.3g} samples/s")
        lines += [f"    {name}  {list(shape)}" for name, shape in one.outputs.items()]
    compared = [one for one in done.recordings if one.difference is not None]
    if compared:
        names = list(compared[0].difference or {})
        rows = [["recording", "window", *names]]
        rows += [
            [one.recording, str(one.window), *(f"{(one.difference or {})[name]:.3e}" for name in names)]
            for one in compared
        ]
        lines += ["", "largest difference to PyTorch", "", *markdown(rows)]
    return lines
