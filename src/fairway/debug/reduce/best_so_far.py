"""The best so far on the disk, so that a kill loses nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairway.debug.reduce.issue_report import Reduced, write_report
from fairway.debug.reduce.program import Program, Ref
from fairway.debug.reduce.reproducer import title_of, write_script
from fairway.debug.reduce.trial_export import FailureSignature, Seen
from fairway.diagnostics.errors import complain

STATE = "state.json"


def resume(folder: Path, whole: Program, exporter: str, signature: FailureSignature) -> Program | None:
    """Where an earlier run was that cut down the same model for the same failure, if there was one."""
    try:
        state = json.loads((folder / STATE).read_text())
        if state["mark"] != _mark(whole, exporter, signature):
            return None
        kept = set(state["calls"])
        program = whole.only([call for call in whole.calls if call.var in kept])
        program = program if state["trained"] else program.untrained()
        program = program.closed() if state["closed"] else program
        program = program.held_back() if state["held"] else program
        return replace(program, outputs=tuple(Ref(var, tuple(path)) for var, path in state["outputs"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _mark(whole: Program, exporter: str, signature: FailureSignature) -> Any:
    return [exporter, str(signature), [[call.var, call.name] for call in whole.calls]]


class Keeper:
    """Writes what `resume` reads, and the script beside it."""

    def __init__(self, folder: Path, whole: Program, exporter: str, seen: Seen) -> None:
        assert seen.signature is not None
        self._folder, self._exporter, self._seen = folder, exporter, seen
        self._mark = _mark(whole, exporter, seen.signature)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise complain("FW009", f"{folder}: {error.strerror}") from error

    def keep(self, program: Program) -> None:
        state = {
            "mark": self._mark,
            "calls": [call.var for call in program.calls],
            "outputs": [[ref.var, list(ref.path)] for ref in program.outputs],
            "closed": not program.dims,
            "held": program.held,
            "trained": any(tensor.requires_grad for tensor in program.weights.values()),
        }
        self._put(STATE, json.dumps(state))
        self._put("repro.py", write_script(program, self._exporter, title_of(self._seen, program, self._exporter)))

    def finish(self, reduced: Reduced) -> None:
        self._put("repro.py", reduced.script)
        self._put("report.md", write_report(reduced))
        (self._folder / STATE).unlink(missing_ok=True)

    def _put(self, name: str, text: str) -> None:
        """Whole or not at all."""
        fresh = self._folder / f".{name}.new"
        fresh.write_text(text)
        fresh.replace(self._folder / name)
