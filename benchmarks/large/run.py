"""Large models, measured: `python benchmarks/large/run.py FOLDER [--only MODEL…] [--ways WAY…]`.

FOLDER takes checkpoints and files, 30 GB if all models are run. Each way runs in a separate process, one after the
other. Rows go to rows.jsonl at once and are not run again; `--write` makes results.md of them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE)]
ROWS = HERE / "rows.jsonl"

MODELS = ("text_half", "text_half_4", "text_half_48", "convnext_large", "text_3b", "vision_3b")
PYTHON = sys.executable
FAIRWAY = str(Path(sys.executable).with_name("fairway"))


def ways(model: str, checkpoint: Path, out: Path) -> dict[str, list[str]]:
    """By name: what is run."""
    stock = [PYTHON, str(HERE / "stock.py"), model, str(checkpoint), str(out / "model.onnx")]
    export = [
        FAIRWAY,
        "export",
        f"{HERE / 'models.py'}:{model}",
        "--checkpoint",
        str(checkpoint),
        "--timeout",
        "3000",
    ]
    link = [*export, "--weights", "link", "--overwrite", "-o", str(checkpoint.parent / f"{model}.onnx")]
    return {
        "reading the checkpoint": ["sh", "-c", f"cat {checkpoint}/* > /dev/null"],
        "cp": ["cp", "-r", str(checkpoint), str(out / "copy")],
        "one linear layer by dynamo": [*stock, "layer"],
        "one block by dynamo": [*stock, "block"],
        "Fairway, link, level none": [*link, "--level", "none"],
        "Fairway, link, level none, called": [*stock[:-1], link[-1], "fairway"],
        "dynamo": [*stock, "dynamo"],
        "dynamo, weights drawn first": [*stock, "drawn"],
        "TorchScript": [*stock, "trace"],
        "Fairway, link, quick": [*link, "--level", "quick"],
        "Fairway, copy, quick": [*export, "--weights", "copy", "--level", "quick", "-o", str(out / "model.onnx")],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--only", nargs="*", default=[*MODELS])
    parser.add_argument("--ways", nargs="*")
    parser.add_argument("--timeout", type=float, default=3600.0)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    if args.write:
        (HERE / "results.md").write_text(table(read()))
        return
    import checkpoint
    from measure import measured

    known = {(row["model"], row["way"]) for row in read()}
    for model in args.only:
        home = args.folder / model
        if not (home / "ckpt").exists():
            checkpoint.write(model, home / "ckpt")
        size = sum(path.stat().st_size for path in (home / "ckpt").glob("*.safetensors"))
        out = home / "out"
        for way, command in ways(model, home / "ckpt", out).items():
            if (model, way) in known or (args.ways and way not in args.ways):
                continue
            shutil.rmtree(out, ignore_errors=True)  # of a run that was stopped
            out.mkdir()
            linked = way.startswith("Fairway, link")
            for file in home.glob(f"{model}.*"):
                file.unlink()
            row = {"model": model, "way": way, "checkpoint_mb": round(size / 1e6)}
            row |= measured(command, home if linked else out, args.timeout)
            shutil.rmtree(out, ignore_errors=True)
            with ROWS.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(row, flush=True)


def read() -> list[dict[str, Any]]:
    lines = ROWS.read_text().splitlines() if ROWS.exists() else []
    return list({(row["model"], row["way"]): row for row in map(json.loads, lines)}.values())


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "# Large models",
        "",
        "By `python benchmarks/large/run.py FOLDER`, then `--write`.",
        "",
        "| model | checkpoint, MB | way | CPU s | its call | wall s | peak memory, MB | written, MB | exit | load |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    order = [*ways("", Path(), Path())]
    for row in sorted(rows, key=lambda one: (MODELS.index(one["model"]), order.index(one["way"]))):
        cells = (
            row["model"],
            row["checkpoint_mb"],
            row["way"],
            row["cpu_seconds"],
            row["call_cpu_seconds"] or "",
            row["wall_seconds"],
            row["peak_mb"],
            row["written_mb"],
            row["exit"],
            round(row["load"], 1),
        )
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
