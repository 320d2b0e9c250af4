"""Measure on the file if the rows of a batch depend on each other.

A server puts rows of several clients into one batch. That is safe only if a row's answer is the same alone, together
with others, and in another order. The comparison runs after the lattice, for files that are right. It uses the
yardsticks that the judge has learned, because kernels take sums in another order for another batch size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fairway.diagnostics import Code, Finding
from fairway.judge.budget import choose_affordable_point, compute_volume
from fairway.judge.evidence import RowIndependence
from fairway.judge.judge import Judge, Runner, tidy_runtime_message
from fairway.judge.lattice import Level
from fairway.judge.row_batches import (
    Batch,
    choose_sizes,
    divide_batch,
    find_row_axis,
    shuffle_numbers,
    split_array,
    spread_numbers,
)
from fairway.judge.row_differences import find_difference, is_explained_by_rounding, run_nudged
from fairway.judge.runtimes.eager import to_array
from fairway.judge.yardstick import Array
from fairway.model.batch_dim import find_batch_axes, find_batch_dim, find_smallest_batch
from fairway.model.dims import Dim
from fairway.model.sample import make_sample

FIRST_BATCH_SEED = 61


@dataclass(frozen=True)
class Effort:
    """The number of comparisons at one level."""

    seeds: int
    has_middle: bool
    """True if a size between the smallest and the largest is compared too."""
    max_parts_alone: int
    """At most this many parts of one batch are run alone. All rows are compared together and reordered."""
    flops: float
    """Batch sizes that would take more operations are left out, and the record reports that. Operations are counted,
    not seconds, so that a slow machine compares the same sizes."""


EXPENSIVE_ROW_FLOPS = 5e9
"""If one row takes more operations, only one batch of the smallest size is compared, and only its first part alone."""

EFFORTS: Mapping[Level, Effort] = {
    "quick": Effort(seeds=1, has_middle=False, max_parts_alone=4, flops=5e9),
    "standard": Effort(seeds=2, has_middle=True, max_parts_alone=16, flops=2e10),
    "deep": Effort(seeds=4, has_middle=True, max_parts_alone=64, flops=1e11),
}


class NotComparable(Exception):
    """The runtime refuses a batch, or an output cannot be divided among the rows."""


def compare_rows(judge: Judge, run: Runner, level: Level) -> tuple[RowIndependence, list[Finding]]:
    """Compare rows alone, together and reordered. The finding is FW421 if they depend on each other."""
    name = find_batch_dim(judge.subject.spec)
    if name is None:
        return RowIndependence(None, False, reason="no dim is an axis of every input"), []
    dim = judge.subject.domain[name]
    if 2 * find_smallest_batch(dim) > dim.high:
        return RowIndependence(name, False, reason=f"{dim} leaves no room for two requests in one batch"), []
    comparison = _Comparison(judge, run, dim, EFFORTS[level])
    try:
        difference = comparison.compare_all()
    except NotComparable as error:
        return RowIndependence(name, False, tuple(comparison.sizes), reason=str(error)), []
    sizes, words = tuple(comparison.sizes), comparison.describe()
    if difference is None:
        return RowIndependence(name, True, sizes, words), []
    return RowIndependence(name, False, sizes, words, difference), [
        Finding(Code.ROWS_DEPEND, difference, data={"dim": name})
    ]


@dataclass(frozen=True)
class _Output:
    """One output of one batch: the answer for each part, and the batch."""

    index: int
    name: str
    axis: int
    batch: Batch
    tensors: list[torch.Tensor]
    parts: list[Array]


class _Comparison:
    """Draws batches, runs them in parts, and keeps track of what was compared."""

    def __init__(self, judge: Judge, run: Runner, dim: Dim, effort: Effort) -> None:
        self._judge, self._run, self._dim, self._effort = judge, run, dim, effort
        self._names = judge.subject.input_names
        axes = find_batch_axes(judge.subject.spec, dim.name)
        self._axes = [axes[name] for name in self._names]
        edges = [flavor for flavor in judge.subject.flavors if flavor != "normal"]
        # Extreme values come first: they move a mean or a maximum over the batch most.
        self._edges = sorted(edges, key=lambda flavor: flavor not in ("large", "most"))[: effort.seeds]
        self._point = choose_affordable_point(judge.subject)
        one_row = {**self._point, dim.name: 1}
        self._flops_per_row = judge.subject.study.flops_per_volume * compute_volume(one_row)
        self._is_expensive = self._flops_per_row > EXPENSIVE_ROW_FLOPS
        self._rows_run = 0
        self._refused_batches = 0
        self._is_each_part_alone = True
        self._is_cut_short = False
        self.sizes: list[int] = []

    def compare_all(self) -> str | None:
        """Describe the first difference, or return None if there is none.

        A size that takes more operations than are left is replaced by the largest that does not.
        """
        sizes = choose_sizes(self._dim, self._effort.has_middle)
        if self._is_expensive:
            self._is_cut_short, sizes = len(sizes) > 1, sizes[:1]
        while sizes:
            size = sizes[0]
            if self.sizes:
                flops_left = self._effort.flops - self._rows_run * self._flops_per_row
                size = self._find_affordable_size(size, flops_left)
                if size <= self.sizes[-1]:
                    self._is_cut_short = True
                    break
            self.sizes.append(size)
            sizes = [larger for larger in sizes if larger > size]
            for batch in self._list_batches(size):
                difference = self._compare_unless_refused(batch)
                if difference is not None:
                    return difference
        return None

    def describe(self) -> str:
        """Describe the comparisons that were made."""
        some = "one part" if self._is_expensive else f"{self._effort.max_parts_alone} parts"
        alone = "every part" if self._is_each_part_alone else f"{some} of each batch"
        words = f"{self._dim.name} {', '.join(map(str, self.sizes))}: {alone} alone, all rows together and reordered; "
        words += "ordinary values" + (f", also next to {', '.join(self._edges)} values" if self._edges else "")
        if self._refused_batches:
            words += f"; the runtime refused {self._refused_batches} batches"
        if self._is_cut_short:
            words += f"; sizes up to {self._dim.sizes[-1]} were left out because of their cost"
        return words

    def _list_batches(self, size: int) -> list[Batch]:
        batches = []
        if self._is_expensive:
            return [Batch(divide_batch(size, self._dim)[0], FIRST_BATCH_SEED, self._edges[0] if self._edges else None)]
        for number in range(self._effort.seeds):
            for parts in divide_batch(size, self._dim):
                batches.append(Batch(parts, FIRST_BATCH_SEED + number))
                if self._edges:
                    batches.append(Batch(parts, FIRST_BATCH_SEED + number, self._edges[number % len(self._edges)]))
        return batches

    def _find_affordable_size(self, size: int, flops: float) -> int:
        """Return the largest legal size up to `size` whose batches take no more operations than `flops`."""
        runs_per_row = 3 * len(self._list_batches(size))  # alone, together and reordered
        rows = int(max(flops, 0.0) / max(self._flops_per_row, 1.0)) // runs_per_row
        return min(size, rows // self._dim.multiple * self._dim.multiple)

    def _compare_unless_refused(self, batch: Batch) -> str | None:
        """Compare one batch. Ordinary values must run; batches with edge values that do not run are counted."""
        try:
            return self._compare(batch)
        except NotComparable:
            if batch.edge is None:
                raise
            self._refused_batches += 1
            return None

    def _compare(self, batch: Batch) -> str | None:
        tensors = self._draw_batch(batch)
        pieces = [torch.split(t, list(batch.parts), axis) for t, axis in zip(tensors, self._axes, strict=True)]
        order = shuffle_numbers(len(batch.parts), batch.seed)
        joined = [torch.cat([p[n] for n in order], axis) for p, axis in zip(pieces, self._axes, strict=True)]
        numbers = spread_numbers(len(batch.parts), 1 if self._is_expensive else self._effort.max_parts_alone)
        self._is_each_part_alone &= len(numbers) == len(batch.parts)
        together, reordered = self._run_file(tensors), self._run_file(joined)
        alone = {n: self._run_file([piece[n] for piece in pieces]) for n in numbers}
        for index, name in enumerate(self._judge.output_names):
            axis = find_row_axis(batch, alone[0][index], together[index])
            if axis is None or reordered[index].shape != together[index].shape:
                raise NotComparable(f"the output {name} does not have one row for each row of {self._dim.name}")
            output = _Output(index, name, axis, batch, tensors, split_array(together[index], batch.parts, axis))
            moved = split_array(reordered[index], [batch.parts[n] for n in order], axis)
            difference = self._describe_change(output, {n: answers[index] for n, answers in alone.items()}, "alone")
            difference = difference or self._describe_change(output, dict(zip(order, moved, strict=True)), "reordered")
            if difference is not None:
                return difference
        return None

    def _draw_batch(self, batch: Batch) -> list[torch.Tensor]:
        point = {**self._point, self._dim.name: batch.size}
        tensors = self._judge.make_inputs(make_sample(point, batch.seed))
        if batch.edge is None:
            return tensors
        others = self._judge.make_inputs(make_sample(point, batch.seed, batch.edge))
        mixed, parts = [], list(batch.parts)
        for tensor, other, axis in zip(tensors, others, self._axes, strict=True):
            pairs = zip(torch.split(tensor, parts, axis), torch.split(other, parts, axis), strict=True)
            mixed.append(torch.cat([pair[number % 2] for number, pair in enumerate(pairs)], axis))
        return mixed

    def _run_file(self, tensors: Sequence[torch.Tensor]) -> list[Array]:
        self._rows_run += tensors[0].shape[self._axes[0]]
        try:
            return self._run(self._names, tensors)
        except Exception as error:
            shapes = ", ".join(f"{name}{list(t.shape)}" for name, t in zip(self._names, tensors, strict=True))
            raise NotComparable(f"the runtime refuses {shapes}: {tidy_runtime_message(str(error))[:200]}") from error

    def _describe_change(self, output: _Output, others: Mapping[int, Array], how: str) -> str | None:
        """Describe the difference between the answers for some parts and `others`, or return None if it is rounding."""
        for flavor in output.batch.flavors:
            numbers = [n for n in output.batch.list_parts(flavor) if n in others]
            yardstick = self._judge.yardsticks.get((output.name, flavor))
            is_learned = yardstick is not None or flavor == "normal" or output.parts[0].dtype.kind != "f"
            if not numbers or not is_learned:
                continue  # PyTorch's own error at these values is not known
            for number in numbers:  # a row padded to the longest one has another shape alone
                shapes = [list(side[number].shape) for side in (others, output.parts)]
                if shapes[0] != shapes[1]:
                    return f"{output.name}: {shapes[0]} {how}, {shapes[1]} in a batch of {output.batch.size}"
            first, second = (np.concatenate([side[n] for n in numbers], output.axis) for side in (output.parts, others))
            difference = find_difference(output.name, first, second, yardstick)
            if difference is None:
                continue
            answers = self._run_nudged_parts(output, numbers)
            if not answers or not is_explained_by_rounding(difference, first, second, answers):
                in_batch = f"{difference.first} in a batch of {output.batch.size}"
                return f"{difference.place}: {difference.second} {how}, {in_batch}"
        return None

    def _run_nudged_parts(self, output: _Output, numbers: Sequence[int]) -> list[Array]:
        try:
            answers = [to_array(every[output.index]) for every in run_nudged(self._judge.subject, output.tensors)]
        except Exception:
            return []  # PyTorch refuses the values, so they explain nothing
        parts = [split_array(answer, output.batch.parts, output.axis) for answer in answers]
        return [np.concatenate([part[n] for n in numbers], output.axis) for part in parts]
