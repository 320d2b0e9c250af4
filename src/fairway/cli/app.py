"""The command line: its commands in panels, and the one place that turns errors into exit codes."""

from __future__ import annotations

import atexit
import gc
import signal
import sys
import traceback
from importlib import metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fairway.cli import (
    bench,
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
    script,
    sensitivity,
    serve,
    ui,
    verify,
    watch,
)
from fairway.diagnostics import Code, Finding, exit_status
from fairway.diagnostics.errors import UserError
from fairway.diagnostics.render import render_finding

STOPPED_EXIT_CODE = 130
"""128 + SIGINT, as shells report it."""


class PanelGroup(TyperGroup):
    """Lists the commands in panels, one line each. Typer's own panels are boxes of rich, which cut off option texts."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            summary = (command.help or "").strip().splitlines()[0]
            panels.setdefault(str(getattr(command, "rich_help_panel", "")), []).append((name, summary))
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)


app = typer.Typer(
    cls=PanelGroup,
    no_args_is_help=True,
    rich_markup_mode=None,  # a spec's brackets are not markup
    pretty_exceptions_enable=False,
    help="Takes a PyTorch model to ONNX and shows that it arrived intact.",
    epilog="Exit codes: 0 verified, 1 finding, 2 usage, 3 could not load, 4 a bug in Fairway.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

app.command("export", rich_help_panel="Export")(export.export)
app.command("export-generation", rich_help_panel="Export")(export_generation.export_generation)
app.command("verify", rich_help_panel="Export")(verify.verify)
app.command("inspect", rich_help_panel="Export")(inspect.inspect)
app.command("script", rich_help_panel="Export", context_settings={"ignore_unknown_options": True})(script.script)
app.command("report", rich_help_panel="Export")(report.report)
app.command("ui", rich_help_panel="Export")(ui.ui)
app.command("explain", rich_help_panel="Diagnose")(explain.explain)
app.command("locate", rich_help_panel="Diagnose")(locate.locate)
app.command("reduce", rich_help_panel="Diagnose")(reduce.reduce)
app.command("doctor", rich_help_panel="Diagnose")(doctor.doctor)
app.command("matrix", rich_help_panel="Diagnose")(matrix.matrix)
app.add_typer(watch.app, name="watch", rich_help_panel="Diagnose")
app.command("remedies", rich_help_panel="Diagnose")(remedies.remedies)
app.command("routes", rich_help_panel="Diagnose")(routes.routes)
app.command("optimize", rich_help_panel="Tune")(optimize.optimize)
app.command("quantize", rich_help_panel="Tune")(quantize.quantize)
app.command("sensitivity", rich_help_panel="Tune")(sensitivity.sensitivity)
app.command("bench", rich_help_panel="Tune")(bench.bench)
app.command("publish", rich_help_panel="Deploy")(publish.publish)
app.command("pull", rich_help_panel="Deploy")(pull.pull)
app.command("run", rich_help_panel="Deploy")(run.run)
app.command("serve", rich_help_panel="Deploy")(serve.serve)


def _print_version(requested: bool) -> None:
    if requested:
        print(f"fairway {metadata.version('fairway-onnx')}")
        raise typer.Exit


@app.callback()
def set_global_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Accept the options that come before the command."""


def main() -> None:
    """Run the command, and exit with the code of its outcome."""
    _stop_on_signals()
    # At exit Python searches all objects for garbage. After torch was imported that takes a second, for nothing.
    atexit.register(gc.freeze)
    try:
        code = app(prog_name="fairway", standalone_mode=False)
    except UserError as error:
        print_finding_and_exit(error.finding)
    except (KeyboardInterrupt, typer.Abort):
        code = STOPPED_EXIT_CODE
    except typer.Exit as error:
        sys.exit(error.exit_code)
    except Exception as error:
        _report_usage_or_bug(error)
    if code == STOPPED_EXIT_CODE:  # typer turns Ctrl-C into this number
        print("stopped; nothing was left behind", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _stop_on_signals() -> None:
    """Make a plain kill and a closed terminal end like Ctrl-C: workers stop and temporary files are removed."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, stop)


def print_finding_and_exit(finding: Finding) -> None:
    """Print the finding to standard error, or with --json to standard output, and exit with its code."""
    if "--json" in sys.argv:
        import json

        print(json.dumps({"verdict": "failed", "findings": [finding.as_dict()]}, indent=1, default=str))
    else:
        print(render_finding(finding), file=sys.stderr)
    sys.exit(exit_status(finding.code))


def _report_usage_or_bug(error: Exception) -> None:
    show = getattr(error, "show", None)
    if callable(show):
        if "--json" in sys.argv:
            message = error.format_message()  # type: ignore[attr-defined]  # typer's usage errors have it
            print_finding_and_exit(Finding(Code.NOT_A_COMMAND, message))
        show()
        sys.exit(2)
    print_finding_and_exit(Finding(Code.BUG, "".join(traceback.format_exception(error)).rstrip()))
