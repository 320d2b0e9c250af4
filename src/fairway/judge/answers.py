"""PyTorch's answers, recorded by processes that end before the runtime loads the file.

This is done for models that are large or expensive to run. Large weights are then in memory once instead of twice, and
two processes share the work. The truth in float64 is computed at every cheap sample. At the others PyTorch's own answer
is used instead, and the file may be as far from it as the error learned at the cheap samples allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from fairway.judge.budget import compute_volume
from fairway.judge.runtimes.eager import run_eager
from fairway.judge.runtimes.truth import run_truth
from fairway.model.sample import Sample
from fairway.model.subject import Subject
from fairway.model.weight_hash import count_held_bytes
from fairway.model.weight_mappings import release_mapped_memory
from fairway.record.progress import EventSink, ItemsCounted

LARGE_MODEL_BYTES = 256 * 2**20
"""Models with this many bytes of weights or more are judged in this way, whatever a run costs."""
EXPENSIVE_SAMPLES_FLOPS = 5e10
"""Models whose samples take this many operations together or more are judged in this way."""
MAX_TRUTH_FLOPS = 6e10
"""The truth is computed at samples that take no more operations than this."""
MIN_TRUTHS = 3
"""The truth is computed at this many of the smallest ordinary samples, whatever they cost."""
LEAN_MODEL_BYTES = 512 * 2**20
"""From this many bytes of weights the runtime keeps no copy of them, and is slower by half."""
MAX_SPLIT_MODEL_BYTES = 2 * 2**30
"""Two processes share the work for models with no more bytes of weights than this."""


def count_model_bytes(model: torch.nn.Module) -> int:
    return count_held_bytes(model)


def is_large(model: torch.nn.Module) -> bool:
    return count_model_bytes(model) >= LARGE_MODEL_BYTES


def estimate_flops(subject: Subject, sample: Sample) -> float:
    """Return the floating-point operations that a sample takes in PyTorch."""
    return 0.0 if sample.data is not None else subject.study.flops_per_volume * compute_volume(sample.sizes)


def needs_answers(subject: Subject, samples: Sequence[Sample]) -> bool:
    """Return whether PyTorch's answers have to be recorded first."""
    return (
        is_large(subject.model) or sum(estimate_flops(subject, sample) for sample in samples) >= EXPENSIVE_SAMPLES_FLOPS
    )


@dataclass(frozen=True)
class RecordedAnswers:
    """Samples whose answers are in a folder. A file's name is the sample's place in the list."""

    folder: Path
    samples: tuple[Sample, ...]
    done: frozenset[Sample] = frozenset()
    truths: frozenset[Sample] = frozenset()
    """The samples at which the truth was computed."""
    no_truth: str | None = None

    def find(self, sample: Sample) -> tuple[list[torch.Tensor], list[torch.Tensor] | None] | None:
        """Return PyTorch's answer, and the truth if it was computed. Return None for a sample without an answer."""
        if sample not in self.done:
            return None
        path = self.folder / f"{self.samples.index(sample)}.pt"
        ours, truth = torch.load(path, weights_only=True)
        return ours, truth


def merge_answers(parts: Sequence[RecordedAnswers]) -> RecordedAnswers:
    """Combine the answers that several processes recorded for one list of samples."""
    return RecordedAnswers(
        parts[0].folder,
        parts[0].samples,
        frozenset().union(*(part.done for part in parts)),
        frozenset().union(*(part.truths for part in parts)),
        next((part.no_truth for part in parts if part.no_truth is not None), None),
    )


def share_samples(subject: Subject, samples: Sequence[Sample]) -> list[list[Sample]]:
    """Return the samples in two parts that cost about the same, or in one if the model is too large for two."""
    if count_model_bytes(subject.model) > MAX_SPLIT_MODEL_BYTES:
        return [list(samples)]
    parts: list[list[Sample]] = [[], []]
    totals = [0.0, 0.0]
    for sample in sorted(samples, key=lambda s: -estimate_flops(subject, s)):
        lighter = totals.index(min(totals))
        parts[lighter].append(sample)
        totals[lighter] += (
            estimate_flops(subject, sample) * (3.3 if estimate_flops(subject, sample) <= MAX_TRUTH_FLOPS else 1.0) + 1.0
        )
    return [part for part in parts if part]


def record_answers(
    subject: Subject,
    samples: Sequence[Sample],
    share: Sequence[Sample],
    inputs: Callable[[Sample], list[torch.Tensor]],
    folder: Path,
    on_event: EventSink,
) -> RecordedAnswers:
    """Run a share of the samples in PyTorch. Samples that PyTorch refuses are left to the judge, which reports that."""
    folder.mkdir(exist_ok=True)
    chosen = choose_truth_samples(subject, samples)
    done: list[Sample] = []
    truths: list[Sample] = []
    no_truth = None
    for number, sample in enumerate(share):
        on_event(ItemsCounted(number, len(share), "samples", f"{sample}, PyTorch"))
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
            release_mapped_memory()
        torch.save((ours, truth), folder / f"{samples.index(sample)}.pt")
        done.append(sample)
    return RecordedAnswers(folder, tuple(samples), frozenset(done), frozenset(truths), no_truth)


def choose_truth_samples(subject: Subject, samples: Sequence[Sample]) -> set[Sample]:
    """Return the samples at which the truth is computed: the cheap ones and the smallest ordinary ones."""
    ordinary = [s for s in samples if s.data is None and s.flavor == "normal"]
    smallest = sorted(ordinary, key=lambda s: compute_volume(s.sizes))[:MIN_TRUTHS]
    known = subject.study.flops_per_volume > 0
    return {
        *smallest,
        *(s for s in samples if known and s.data is None and estimate_flops(subject, s) <= MAX_TRUTH_FLOPS),
    }
