"""PyTorch's answers for a large model, written down by a process that ends before the runtime loads the file.

So the model's weights are in memory once, not twice. The truth in float64 is computed at the smallest samples alone,
one weight at a time; elsewhere PyTorch's own answer stands for it, and the file may be as far from that as the error
learnt at the others allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch

from fairway.evidence.lattice import Sample
from fairway.runtimes.eager import run_eager, run_truth
from fairway.subject.subject import Subject
from fairway.weights.mapped import let_go

LARGE = 256 * 2**20
"""Bytes of weights from which on a model is judged in this way."""
TRUTHS = 3
"""Samples at which the truth is computed."""


def is_large(model: torch.nn.Module) -> bool:
    return sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers())) >= LARGE


@dataclass(frozen=True)
class Answers:
    """The samples whose answers lie in a folder, by their place in the list."""

    folder: Path
    samples: tuple[Sample, ...]
    truths: tuple[Sample, ...] = ()
    """Those at which the truth was computed."""
    no_truth: str | None = None

    def find(self, sample: Sample) -> tuple[list[torch.Tensor], list[torch.Tensor] | None] | None:
        """PyTorch's answer, and the truth where it was computed; None for a sample that is not among them."""
        if sample not in self.samples:
            return None
        path = self.folder / f"{self.samples.index(sample)}.pt"
        ours, truth = torch.load(path, weights_only=True)
        return ours, truth


def answer(
    subject: Subject, samples: Sequence[Sample], inputs: Callable[[Sample], list[torch.Tensor]], folder: Path,
    tell: Callable[[Any], None],
) -> Answers:  # fmt: skip
    """Runs the samples in PyTorch. What it refuses is left to the judge, who will meet the same refusal."""
    folder.mkdir(exist_ok=True)
    ordinary = [s for s in samples if s.data is None and s.flavour == "normal"]
    chosen = sorted(ordinary, key=lambda s: prod(s.sizes.values()))[:TRUTHS]
    done: list[Sample] = []
    truths: list[Sample] = []
    no_truth = None
    for number, sample in enumerate(samples):
        tell(("sample", number, len(samples), f"{sample}, PyTorch"))
        tensors = inputs(sample)
        try:
            ours = run_eager(subject, tensors)
        except Exception:
            continue
        truth = None
        if sample in chosen and no_truth is None:
            try:
                truth = run_truth(subject, tensors, piecewise=True)
                if [t.shape for t in truth] != [o.shape for o in ours]:
                    truth, no_truth = None, "in float64 the outputs have other shapes"
            except Exception as error:
                no_truth = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            truths += [sample] if truth is not None else []
            let_go()
        torch.save((ours, truth), folder / f"{len(done)}.pt")
        done.append(sample)
    return Answers(folder, tuple(done), tuple(truths), no_truth)
