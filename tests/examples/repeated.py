"""Exports recipes, each as often as asked, in this one process, and prints what came out: hashes and evidence.

python repeated.py FOLDER TIMES RECIPE...
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from fairway.convert.export import export_subject, make_settings
from fairway.model.recipe import Overrides, load_subject
from fairway.workers.attempt import Limits

MEASURED = {"seconds", "spent", "export_seconds", "peak_mb"}
"""What tells of this run's time and memory rather than of the file."""


def without_measured(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {k: without_measured(v) for k, v in value.items() if k not in MEASURED}
        if "route" in kept and "verdict" in kept and "refused" in kept:
            kept.pop("evidence")  # a rung's remark on what its evidence cost
        return kept
    return [without_measured(v) for v in value] if isinstance(value, list) else value


def install_plugin(folder: Path) -> None:
    """The package under examples/plugin, for this process alone."""
    shutil.copytree(Path(__file__).parents[2] / "examples/plugin", folder / "plugin")  # building writes beside it
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation", "--no-deps"]
    subprocess.run([*pip, "--target", folder / "plugins", folder / "plugin"], check=True)
    sys.path.insert(0, str(folder / "plugins"))


def main(folder: Path, times: int, recipes: list[str]) -> None:
    if any(recipe.startswith("plugin/") for recipe in recipes):
        install_plugin(folder)
    for recipe in recipes:
        for turn in range(times):
            path = folder / f"{turn}" / "out.onnx"
            path.parent.mkdir(exist_ok=True)
            settings = make_settings("quick", (), None, True, Limits(600.0, 0))
            result = export_subject(load_subject(recipe, Overrides()), path, settings, overwrite=True)
            assert result.path is not None, result.findings
            files = sorted(path.parent.glob("out.onnx*"))
            told = {
                "recipe": recipe,
                "verdict": result.verdict,
                "bytes": [hashlib.sha256(file.read_bytes()).hexdigest() for file in files],
                "record": json.dumps(without_measured(result.record.as_dict())),
            }
            print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
