"""The report for upstream: steps, expected and actual results, and what was ruled out."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata

from fairway.debug.reduce.program import Program
from fairway.debug.reduce.statements import write_forward
from fairway.debug.reduce.trial_export import TrialOutcome
from fairway.diagnostics.knowledge.entry import load_entries

PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime", "numpy")


@dataclass(frozen=True)
class ReduceResult:
    """The smallest program found, and how it was found."""

    exporter: str
    seen: TrialOutcome
    """The failure before anything was cut."""
    calls: int
    """The number of calls in the model."""
    program: Program
    title: str
    script: str
    reproduced: bool
    """Tells whether the script fails in the same way when run alone."""
    finished: bool
    trials: int
    seconds: float
    ruled_out: Mapping[str, str]

    @property
    def lines(self) -> int:
        """The number of lines in `forward`."""
        return len(write_forward(self.program))


def write_report(reduced: ReduceResult) -> str:
    known = [entry for entry in load_entries() if entry.matches(reduced.seen.message)]
    lines = [f"# {reduced.title}", "", "## Versions", ""]
    lines += [f"- {name} {_read_version(name)}" for name in PACKAGES]
    lines += [f"- Python {platform.python_version()}, {platform.platform(terse=True)}", ""]
    lines += ["## Steps", "", "Run `python repro.py`:", "", "```python", reduced.script.rstrip(), "```", ""]
    lines += ["## Expected", "", _describe_expected(reduced.seen), ""]
    lines += ["## Seen", "", "```text", *_shorten_lines(reduced.seen.message), "```", ""]
    lines += ["## Ruled out", ""]
    lines += [f"- {cause}: {outcome}" for cause, outcome in reduced.ruled_out.items()]
    lines += ["", "## Known upstream", ""]
    lines += [f"- {e.title}: {e.link or 'not reported yet'} ({e.status} on {e.date})" for e in known]
    lines += [] if known else ["No known upstream issue."]
    size = f"{reduced.calls} calls of the model were cut down to {len(reduced.program.calls)}"
    ending = (
        "nothing smaller fails in the same way" if reduced.finished else "the time was up, so it may not be minimal"
    )
    lines += ["", f"{size} in {reduced.trials} trials, {reduced.seconds:.0f} s: {ending}.", ""]
    return "\n".join(lines)


def _read_version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _describe_expected(seen: TrialOutcome) -> str:
    assert seen.signature is not None
    return {
        "export": "An ONNX file.",
        "load": "A file that ONNX Runtime loads.",
        "run": "A file that runs at every size that was declared dynamic.",
        "compare": "PyTorch's answer, at every size that was declared dynamic.",
        "time": "The export ends.",
        "memory": "The export ends within the memory of this machine.",
        "crash": "At most an exception.",
        "check": "See the command.",
    }[seen.signature.stage]


def _shorten_lines(text: str) -> Sequence[str]:
    return [line[:300] for line in text.strip().splitlines()[:20]]
