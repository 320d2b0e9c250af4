"""One bare `torch.onnx.export` call, as a user would write it: `python stock.py MODEL OUT`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch

sys.path[:0] = [str(Path(__file__).parent)]

from drawing import stock_inputs  # noqa: E402  # from this folder
from models import RECIPES  # noqa: E402


def export_stock(name: str, model: torch.nn.Module, path: Path) -> None:
    """Export with the dims of the recipe's lines as dynamic ones."""
    inputs, shapes = stock_inputs(name)
    torch.onnx.export(model, (), str(path), kwargs=inputs, dynamic_shapes=shapes, dynamo=True, verbose=False)


if __name__ == "__main__":
    built = RECIPES[sys.argv[1]].model()
    started = time.perf_counter()
    export_stock(sys.argv[1], built, Path(sys.argv[2]))
    print(f"the call alone: {time.perf_counter() - started:.1f} seconds")
