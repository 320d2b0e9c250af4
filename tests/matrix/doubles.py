"""Fakes: a uv that installs nothing, and Pythons that answer without running anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RECIPE = """\
import torch
import fairway


class Net(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)


net = fairway.Recipe(Net, ["x: float32[batch, 3]"], bounds={"batch": (1, 4)})
"""

UV = """\
#!/bin/sh
echo "$*" >> "$UV_LOG"
case "$*" in
    *" venv "*) for last; do :; done; mkdir -p "$last/bin"; : > "$last/bin/python" ;;
esac
for refused in $UV_REFUSES; do
    case " $* " in *" $refused "*) echo "error: nothing here for $refused" >&2; exit 2 ;; esac
done
"""


def script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def record(verdict: str = "verified", **more: Any) -> dict[str, Any]:
    wrong = {"code": "FW303", "seen": "a | b", "severity": "error"}
    return {
        "format": 2,
        "subject": {"sha256": "0" * 64, "domain": {}},
        "verdict": verdict,
        "route": "trace",
        "remedies": [{"name": "rnn_time_baked", "note": ""}],
        "versions": {"python": "3.11.7", "torch": "2.13.0+cpu", "onnx": "1.23.2"},
        "findings": [] if verdict == "verified" else [wrong],
        **more,
    }


def answering(path: Path, answer: dict[str, Any]) -> Path:
    """A Python that prints a record whatever it is asked, and counts how often."""
    path.with_suffix(".json").write_text(json.dumps(answer))
    return script(path, f"#!/bin/sh\necho called >> '{path}.calls'\ncat '{path.with_suffix('.json')}'\n")


def calls(path: Path) -> int:
    reported = path.with_name(path.name + ".calls")
    return len(reported.read_text().splitlines()) if reported.exists() else 0
