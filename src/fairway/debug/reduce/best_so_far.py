"""The smallest program so far, on disk, so that a killed run loses nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from fairway.debug.reduce.issue_report import ReduceResult, write_report
from fairway.debug.reduce.program import Program, Ref
from fairway.debug.reduce.reproducer import make_title, write_script
from fairway.debug.reduce.trial_export import FailureSignature, TrialOutcome
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.workers.workshop import replace_file

STATE_FILE = "state.json"


def read_best_so_far(folder: Path, full_program: Program, exporter: str, signature: FailureSignature) -> Program | None:
    """Return the program of an earlier run on the same model and failure, if there is one."""
    try:
        state = json.loads((folder / STATE_FILE).read_text())
        if state["mark"] != _make_mark(full_program, exporter, signature):
            return None
        variables = set(state["calls"])
        program = full_program.keep_calls([call for call in full_program.calls if call.var in variables])
        program = program if state["trained"] else program.without_gradients()
        program = program.with_fixed_sizes() if state["closed"] else program
        program = program.with_held_gradients() if state["held"] else program
        return replace(program, outputs=tuple(Ref(var, tuple(path)) for var, path in state["outputs"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _make_mark(full_program: Program, exporter: str, signature: FailureSignature) -> object:
    return [exporter, str(signature), [[call.var, call.name] for call in full_program.calls]]


class BestSoFar:
    """Writes the state that `read_best_so_far` reads, and the script."""

    def __init__(self, folder: Path, full_program: Program, exporter: str, seen: TrialOutcome) -> None:
        assert seen.signature is not None
        self._folder, self._exporter, self._seen = folder, exporter, seen
        self._mark = _make_mark(full_program, exporter, seen.signature)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise complain(Code.CANNOT_WRITE, f"{folder}: {error.strerror}") from error

    def save(self, program: Program) -> None:
        state = {
            "mark": self._mark,
            "calls": [call.var for call in program.calls],
            "outputs": [[ref.var, list(ref.path)] for ref in program.outputs],
            "closed": not program.dims,
            "held": program.held,
            "trained": any(tensor.requires_grad for tensor in program.weights.values()),
        }
        self._replace_file(STATE_FILE, json.dumps(state))
        self._replace_file(
            "repro.py", write_script(program, self._exporter, make_title(self._seen, program, self._exporter))
        )

    def finish(self, reduced: ReduceResult) -> None:
        self._replace_file("repro.py", reduced.script)
        self._replace_file("report.md", write_report(reduced))
        (self._folder / STATE_FILE).unlink(missing_ok=True)

    def _replace_file(self, name: str, text: str) -> None:
        """Replace the file atomically."""
        replace_file(self._folder / name, text)
