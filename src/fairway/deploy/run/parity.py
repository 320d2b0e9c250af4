"""Run the same windows in PyTorch, and compare the file's outputs with PyTorch's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain

Array = npt.NDArray[Any]


class EagerComparison:
    """Runs the recipe's model on the inputs of the file, and keeps the largest difference of each output."""

    def __init__(self, recipe: str) -> None:
        from fairway.model.recipe import Overrides, load_subject

        self._subject = load_subject(recipe, Overrides())
        self.largest: dict[str, float] = {}

    def compare(self, feeds: Mapping[str, Array], names: Sequence[str], answers: Sequence[Array]) -> None:
        import torch

        from fairway.judge.runtimes.eager import run_eager

        missing = [name for name in self._subject.input_names if name not in feeds]
        if missing:
            raise complain(
                Code.INPUTS_DIFFER, f"the recipe's model takes {', '.join(missing)}, which the file does not"
            )
        tensors = [torch.from_numpy(feeds[name].copy()) for name in self._subject.input_names]
        theirs = [tensor.detach().numpy() for tensor in run_eager(self._subject, tensors)]
        if len(theirs) != len(answers):
            raise complain(Code.OUTPUTS_DIFFER, f"the file has {len(answers)} outputs, PyTorch {len(theirs)}")
        for name, ours, other in zip(names, answers, theirs, strict=True):
            if ours.shape != other.shape:
                raise complain(
                    Code.SHAPE_DIFFERS, f"{name} is {list(ours.shape)} in the file and {list(other.shape)} in PyTorch"
                )
            same = (ours == other) | ((ours != ours) & (other != other))
            gap = np.where(same, 0.0, np.abs(ours.astype("f8") - other.astype("f8")))
            far = float(np.nan_to_num(gap, nan=np.inf).max(initial=0.0))
            self.largest[name] = max(self.largest.get(name, 0.0), far)
