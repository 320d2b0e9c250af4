"""The commands in one place, and the one place where errors become exit codes."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import traceback

import typer

from fairway.cli import (
    bench,
    completion,
    doctor,
    explain,
    export,
    export_generation,
    inspect,
    locate,
    matrix,
    optimize,
    publish,
    pull,
    quantize,
    reduce,
    remedies,
    report,
    routes,
    run,
    sensitivity,
    serve,
    ui,
    verify,
    watch,
)
from fairway.diagnostics import Finding, exit_status
from fairway.diagnostics.errors import UserError
from fairway.diagnostics.render import render_finding

STOPPED = 130
"""128 + SIGINT, as shells have it."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # a spec's brackets are not markup
    pretty_exceptions_enable=False,
    help="Takes a PyTorch model to ONNX and shows that it arrived intact.",
    epilog="Exit codes: 0 verified, 1 finding, 2 usage, 3 could not load, 4 a bug of Fairway's.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("export")(export.export)
app.command("export-generation")(export_generation.export_generation)
app.command("verify")(verify.verify)
app.command("locate")(locate.locate)
app.command("reduce")(reduce.reduce)
app.command("quantize")(quantize.quantize)
app.command("sensitivity")(sensitivity.sensitivity)
app.command("inspect")(inspect.inspect)
app.command("report")(report.report)
app.command("ui")(ui.ui)
app.command("bench")(bench.bench)
app.command("optimize")(optimize.optimize)
app.command("run")(run.run)
app.command("publish")(publish.publish)
app.command("pull")(pull.pull)
app.command("serve")(serve.serve)
app.command("doctor")(doctor.doctor)
app.command("matrix")(matrix.matrix)
app.add_typer(watch.app, name="watch")
app.command("explain")(explain.explain)
app.command("remedies")(remedies.remedies)
app.command("routes")(routes.routes)
app.command("completion")(completion.completion)


def main() -> None:
    """Runs the command; every way out has its exit code."""
    _end_politely()
    # At its end Python looks through everything for garbage, a second's work after torch, just before all of it goes.
    atexit.register(gc.freeze)
    if completion.ASKED in os.environ:
        completion.answer_shells()
    try:
        code = app(standalone_mode=False)
    except UserError as error:
        complain_and_exit(error.finding)
    except (KeyboardInterrupt, typer.Abort):
        code = STOPPED
    except typer.Exit as error:
        sys.exit(error.exit_code)
    except Exception as error:
        _usage_or_bug(error)
    if code == STOPPED:  # typer turns Ctrl-C into this number
        print("stopped; nothing was left behind", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _end_politely() -> None:
    """A plain kill and a closed terminal end as Ctrl-C does: workers ended, the folder of candidates swept."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, stop)


def complain_and_exit(finding: Finding) -> None:
    """The finding goes to standard error, or to standard output as JSON where that was asked for."""
    if "--json" in sys.argv:
        import json

        print(json.dumps({"verdict": "failed", "findings": [finding.as_dict()]}, indent=1, default=str))
    else:
        print(render_finding(finding), file=sys.stderr)
    sys.exit(exit_status(finding.code))


def _usage_or_bug(error: Exception) -> None:
    show = getattr(error, "show", None)
    if callable(show):
        if "--json" in sys.argv:
            complain_and_exit(Finding("FW025", error.format_message()))  # type: ignore[attr-defined]  # typer's own
        show()
        sys.exit(2)
    complain_and_exit(Finding("FW901", "".join(traceback.format_exception(error)).rstrip()))
