"""Exports every tiny generator and compares it with `generate` step by step; other tools run the folder where asked to.

    python benchmarks/generation/run.py [--level standard] [--only llama,t5] [--genai PYTHON] [--optimum PYTHON]

PYTHON is an interpreter with onnxruntime-genai, or with optimum-onnx and transformers 4, installed. Results are written
to results.json and results.md after each model; with --only the others' rows are kept. --write only writes results.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from models import DECODERS, NAMES, PAIRS, build
from other_tools import pad

import fairway
from fairway.record.files import read_versions

HERE = Path(__file__).parent
STEPS = 32
ROWS = [[5, 9, 17, 33, 60, 3, 71], [8, 44, 3], [11, 12, 13, 14, 15, 90, 91, 92, 93, 94, 95, 1]]
TOOLS = {"genai": "onnxruntime-genai", "optimum": "optimum-onnx"}


def measure(name: str, level: Any, pythons: dict[str, str]) -> dict[str, Any]:
    """One row: the verdict, what was compared, and whether other tools generate the same tokens from the folder."""
    model, started = build(name), time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, name)
        try:
            result = fairway.export_generation(model, folder, level=level, timeout=1200)
        except fairway.UserError as error:
            return {"verdict": "refused", "finding": f"{error.finding.code} {error.finding.seen}"}
        row = {
            "verdict": result.verdict,
            "seconds": round(time.monotonic() - started, 1),
            "graphs": {
                file: {
                    "verdict": graph.verdict,
                    "route": graph.route,
                    "remedies": list(graph.remedies),
                    "samples": len(graph.evidence.tested) if graph.evidence else 0,
                    "domain": graph.evidence.domain if graph.evidence else "",
                }
                for file, graph in result.graphs.items()
            },
            "runs": [
                {
                    "what": run.title,
                    "steps": len(run.steps),
                    "same": run.same,
                    "undecided": sum(step.choice == "undecided" for step in run.steps),
                    "distinct": run.distinct,
                    "ratio": max((step.ratio for step in run.steps), default=None),
                    "margin": min((step.margin for step in run.steps), default=None),
                    "yardstick": run.yardstick,
                }
                for run in result.runs
            ],
            "findings": [f"{f.code} {f.seen}" for f in result.findings],
        }
        if result.path is not None:
            row["tools"] = {tool: ask(tool, python, name, model, folder) for tool, python in pythons.items()}
    return row


def ask(tool: str, python: str, name: str, model: Any, folder: Path) -> str:
    """`same` where the tool generates PyTorch's tokens, else what happened."""
    if tool == "genai" and name in PAIRS:
        return "another layout"
    asked: dict[str, Any] = {"steps": STEPS, "rows": ROWS, "packages": [p for p in sys.path if "site-packages" in p]}
    inputs = pad(ROWS, "left" if name in DECODERS else "right")
    if name == "whisper":
        features = torch.randn(3, 16, 40, generator=torch.Generator().manual_seed(3))
        asked["features"], inputs = features.tolist(), {"input_features": features}
    model.generation_config.pad_token_id = 0
    from transformers import GenerationMixin

    truth = GenerationMixin.generate(model, **inputs, do_sample=False, max_new_tokens=STEPS, min_new_tokens=STEPS)
    given = folder.parent / "asked.json"
    given.write_text(json.dumps(asked))
    done = subprocess.run(
        [python, HERE / "other_tools.py", tool, folder, given], capture_output=True, text=True, timeout=600
    )
    if done.returncode:
        return " ".join(done.stderr.strip().splitlines()[-3:])[-160:].replace("|", "/") or "died"
    same = json.loads(done.stdout.splitlines()[-1]) == [row[-STEPS:] for row in truth.tolist()]
    return "same" if same else "other tokens"


def write(rows: dict[str, Any], level: str, pythons: dict[str, str]) -> None:
    ordered = {name: rows[name] for name in NAMES if name in rows}
    said = {"command": " ".join(["python", "benchmarks/generation/run.py", *_words(level, pythons)])}
    (HERE / "results.json").write_text(
        json.dumps({**said, "versions": read_versions(), "models": ordered}, indent=1) + "\n"
    )
    write_page(said["command"], ordered)


def write_page(command: str, rows: dict[str, Any]) -> None:
    lines = [
        "# Generation",
        "",
        f"`{command}`",
        "",
        "Tiny configurations with random weights that were chosen to be lively (see models.py). *samples* are those of",
        "the graphs' own evidence; *steps* those at which every token equals `generate`'s, for one prompt and for a",
        "padded batch of three; *different* is how many different tokens came up; *logits* the worst error in units of",
        "what is allowed; *margin* the least lead of a chosen token over the next. *genai* and *optimum* say whether",
        "another tool generates PyTorch's 96 tokens from the delivered folder (optimum from one padded batch,",
        "onnxruntime-genai prompt by prompt). onnxruntime-genai lays encoder-decoders out in another way.",
        "",
        "| model | verdict | graphs | samples | steps | different | logits | margin | genai | optimum | s |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [_line(name, row) for name, row in rows.items()]
    lines += [
        "",
        "*refused by optimum*: optimum-onnx 0.1 makes the first, empty cache itself, and takes the number of",
        "attention heads for model types that it does not list; these models have fewer key heads. The graph then gets",
        "a cache with too many heads, and ONNX Runtime says so. Seconds are wall time on two cores that were busy with",
        "other work.",
    ]
    (HERE / "results.md").write_text("\n".join(lines) + "\n")


def _words(level: str, pythons: dict[str, str]) -> list[str]:
    return ["--level", level, *(word for tool in pythons for word in (f"--{tool}", "PYTHON"))]


def _line(name: str, row: dict[str, Any]) -> str:
    if row["verdict"] == "refused":
        return f"| {name} | refused: {row['finding']} |" + " |" * 9
    runs, tools = row["runs"], row.get("tools", {})
    cells = [
        name,
        row["verdict"],
        str(len(row["graphs"])),
        str(sum(g["samples"] for g in row["graphs"].values())),
        " + ".join(f"{run['same']}/{run['steps']}" for run in runs),
        " + ".join(str(run["distinct"]) for run in runs),
        f"{max((run['ratio'] for run in runs), default=0):.2g}",
        f"{min((r['margin'] for r in runs), default=0):.2g}",
        tools.get("genai", "not asked"),
        _short(tools.get("optimum", "not asked")),
        f"{row['seconds']:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def _short(said: str) -> str:
    return "refused by optimum" if "fix either the inputs" in said else said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--level", default="standard")
    parser.add_argument("--only", default=",".join(NAMES))
    for tool, package in TOOLS.items():
        parser.add_argument(f"--{tool}", metavar="PYTHON", help=f"an interpreter with {package}")
    parser.add_argument("--write", action="store_true", help="write results.md from results.json; measure nothing")
    said = parser.parse_args()
    pythons = {tool: shutil.which(getattr(said, tool)) or "" for tool in TOOLS if getattr(said, tool)}
    kept = HERE / "results.json"
    rows = json.loads(kept.read_text())["models"] if kept.exists() else {}
    if said.write:
        write_page(json.loads(kept.read_text())["command"], rows)
        return
    for name in said.only.split(","):
        rows[name] = measure(name, said.level, pythons)
        write(rows, said.level, pythons)
        print(_line(name, rows[name]), flush=True)


if __name__ == "__main__":
    main()
