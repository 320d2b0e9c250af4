"""The report for upstream: what was done, what was expected, what came, and what it is not."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata

from fairway.debug.reduce.program import Program
from fairway.debug.reduce.statements import forward
from fairway.debug.reduce.trial_export import Seen
from fairway.diagnostics.knowledge.entry import entries

PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime", "numpy")


@dataclass(frozen=True)
class Reduced:
    """What came out."""

    exporter: str
    seen: Seen
    """The failure, as it was before anything was cut."""
    calls: int
    """Of the model, before."""
    program: Program
    title: str
    script: str
    reproduced: bool
    """Whether the script, run on its own, fails in the same way."""
    finished: bool
    tried: int
    seconds: float
    ruled_out: Mapping[str, str]

    @property
    def lines(self) -> int:
        """Lines inside `forward`."""
        return len(forward(self.program))


def write_report(reduced: Reduced) -> str:
    known = [entry for entry in entries() if entry.matches(reduced.seen.said)]
    lines = [f"# {reduced.title}", "", "## Versions", ""]
    lines += [f"- {name} {_version(name)}" for name in PACKAGES]
    lines += [f"- Python {platform.python_version()}, {platform.platform(terse=True)}", ""]
    lines += ["## Steps", "", "Run `python repro.py`:", "", "```python", reduced.script.rstrip(), "```", ""]
    lines += ["## Expected", "", _expected(reduced.seen), ""]
    lines += ["## Seen", "", "```text", *_wrapped(reduced.seen.said), "```", ""]
    lines += ["## Ruled out", ""]
    lines += [f"- {what}: {how}" for what, how in reduced.ruled_out.items()]
    lines += ["", "## Known upstream", ""]
    lines += [f"- {e.title}: {e.link or 'not reported yet'} ({e.status} on {e.date})" for e in known]
    lines += [] if known else ["No known upstream issue."]
    size = f"{reduced.calls} calls of the model were cut down to {len(reduced.program.calls)}"
    ended = "nothing smaller fails in the same way" if reduced.finished else "the time was up; it may get smaller still"
    lines += ["", f"{size} in {reduced.tried} trials, {reduced.seconds:.0f} s: {ended}.", ""]
    return "\n".join(lines)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _expected(seen: Seen) -> str:
    assert seen.signature is not None
    return {
        "export": "An ONNX file.",
        "load": "A file that ONNX Runtime loads.",
        "run": "A file that runs at every size that was declared dynamic.",
        "compare": "PyTorch's answer, at every size that was declared dynamic.",
        "time": "An end.",
        "memory": "An end within the memory of this machine.",
        "crash": "An exception at most.",
        "check": "See the command.",
    }[seen.signature.stage]


def _wrapped(text: str) -> Sequence[str]:
    return [line[:300] for line in text.strip().splitlines()[:20]]
