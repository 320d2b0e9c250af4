"""Python's search for garbage: rare while modules are imported, none at the end, as ever in between."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

from fairway.cli.show import show_loading


def test_garbage_is_collected_rarely_while_torch_is_loaded() -> None:
    before = gc.get_threshold()
    with show_loading():
        assert gc.get_threshold()[0] > before[0]
    assert gc.get_threshold() == before


def test_at_the_end_nothing_is_looked_through_any_more() -> None:
    script = (
        "import atexit, gc, sys\n"
        "atexit.register(lambda: print('frozen', gc.get_freeze_count() > 1000))\n"  # handlers are called last first
        "sys.argv = ['fairway', 'routes']\n"
        "from fairway.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "frozen True"


def test_only_objects_of_the_recipe_are_searched_for_garbage(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.py"
    recipe.write_text(
        "import gc, sys\n"
        "import torch\n"
        "print('frozen', gc.get_freeze_count() > 100_000, file=sys.stderr)\n"
        "class Knot:\n"
        "    def __init__(self): self.own = self\n"
        "    def __del__(self): print('untied', file=sys.stderr)\n"
        "Knot()\n"
        "gc.collect()\n"
        "model = torch.nn.ReLU()\n"
    )
    asked = [f"{recipe}:model", "--input", "x: float32[2]", "-o", str(tmp_path / "out.onnx"), "--level", "none"]
    said = subprocess.run([sys.executable, "-m", "fairway", "export", *asked], capture_output=True, text=True).stderr
    assert "frozen True" in said, said
    assert "untied" in said
