"""PyTorch's answers, written down by processes that end before the runtime loads the file.

This is done for models that are large or dear to run. Large weights are then in memory once, not twice, and two
processes share the work. The truth in float64 is computed at every cheap sample; at the others PyTorch's own answer
takes its place, and the file may be as far from that as the error learned at the cheap ones allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fairway.judge.budget import volume
from fairway.judge.runtimes.eager import run_eager
from fairway.judge.runtimes.truth import run_truth
from fairway.model.sample import Sample
from fairway.model.subject import Subject
from fairway.model.weight_hash import bytes_held
from fairway.model.weight_mappings import let_go

LARGE_MODEL_BYTES = 256 * 2**20
"""Weights from which on a model is judged in this way, whatever a run costs."""
DEAR_FLOPS = 5e10
"""Operations of all samples together from which on a model is judged in this way."""
TRUTH_FLOPS = 6e10
"""Operations of one sample up to which the truth is computed."""
LEAST_TRUTHS = 3
"""The smallest ordinary samples have a truth whatever they cost."""
LEAN_MODEL_BYTES = 512 * 2**20
"""Weights from which on the runtime keeps no copy of them, and is slower by half."""
SPLIT_MODEL_BYTES = 2 * 2**30
"""Weights up to which two processes share the work."""


def model_bytes(model: torch.nn.Module) -> int:
    return bytes_held(model)


def is_large(model: torch.nn.Module) -> bool:
    return model_bytes(model) >= LARGE_MODEL_BYTES


def cost(subject: Subject, sample: Sample) -> float:
    """Return the floating-point operations that a sample takes in PyTorch."""
    return 0.0 if sample.data is not None else subject.study.flops_per_volume * volume(sample.sizes)


def needs_answers(subject: Subject, samples: Sequence[Sample]) -> bool:
    """Return whether PyTorch's answers are to be written down first."""
    return is_large(subject.model) or sum(cost(subject, one) for one in samples) >= DEAR_FLOPS


@dataclass(frozen=True)
class RecordedAnswers:
    """Samples whose answers are in a folder, by their place in the list."""

    folder: Path
    samples: tuple[Sample, ...]
    done: frozenset[Sample] = frozenset()
    truths: frozenset[Sample] = frozenset()
    """Those at which the truth was computed."""
    no_truth: str | None = None

    def find(self, sample: Sample) -> tuple[list[torch.Tensor], list[torch.Tensor] | None] | None:
        """Return PyTorch's answer, and the truth if it was computed; None for a sample without an answer."""
        if sample not in self.done:
            return None
        path = self.folder / f"{self.samples.index(sample)}.pt"
        ours, truth = torch.load(path, weights_only=True)
        return ours, truth


def merge(parts: Sequence[RecordedAnswers]) -> RecordedAnswers:
    """Return the answers that several processes wrote for one list of samples."""
    return RecordedAnswers(
        parts[0].folder,
        parts[0].samples,
        frozenset().union(*(part.done for part in parts)),
        frozenset().union(*(part.truths for part in parts)),
        next((part.no_truth for part in parts if part.no_truth is not None), None),
    )


def share_out(subject: Subject, samples: Sequence[Sample]) -> list[list[Sample]]:
    """Return the samples in two parts that cost about the same, or in one if the model is too large for two."""
    if model_bytes(subject.model) > SPLIT_MODEL_BYTES:
        return [list(samples)]
    parts: list[list[Sample]] = [[], []]
    totals = [0.0, 0.0]
    for one in sorted(samples, key=lambda s: -cost(subject, s)):
        lighter = totals.index(min(totals))
        parts[lighter].append(one)
        totals[lighter] += cost(subject, one) * (3.3 if cost(subject, one) <= TRUTH_FLOPS else 1.0) + 1.0
    return [part for part in parts if part]


def answer(
    subject: Subject,
    samples: Sequence[Sample],
    mine: Sequence[Sample],
    inputs: Callable[[Sample], list[torch.Tensor]],
    folder: Path,
    tell: Callable[[Any], None],
) -> RecordedAnswers:
    """Run some of the samples in PyTorch. What it refuses is left to the judge, which will meet the same refusal."""
    folder.mkdir(exist_ok=True)
    chosen = _with_truth(subject, samples)
    done: list[Sample] = []
    truths: list[Sample] = []
    no_truth = None
    for number, sample in enumerate(mine):
        tell(("sample", number, len(mine), f"{sample}, PyTorch"))
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
        torch.save((ours, truth), folder / f"{samples.index(sample)}.pt")
        done.append(sample)
    return RecordedAnswers(folder, tuple(samples), frozenset(done), frozenset(truths), no_truth)


def _with_truth(subject: Subject, samples: Sequence[Sample]) -> set[Sample]:
    """Return the samples at which the truth is computed: the cheap ones, and the smallest ordinary ones."""
    ordinary = [s for s in samples if s.data is None and s.flavour == "normal"]
    smallest = sorted(ordinary, key=lambda s: volume(s.sizes))[:LEAST_TRUTHS]
    known = subject.study.flops_per_volume > 0
    return {*smallest, *(s for s in samples if known and s.data is None and cost(subject, s) <= TRUTH_FLOPS)}
