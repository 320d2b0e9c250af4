"""Find inputs that take the side of a branch that no sample took.

Conditions on sizes are solved: their numbers are written as functions of the dims and evaluated at every point of the
domain. For conditions on values, samples are scaled, or filled with the numbers that the code compares with.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice

import numpy as np

from fairway.judge.coverage import Branch
from fairway.judge.formulas import CannotEvaluate, Grid, evaluate, make_grid, thin_out
from fairway.judge.leaves import PlainValue
from fairway.model.dims import Domain
from fairway.model.sample import Sample, Touch, make_sample
from fairway.model.subject import Subject
from fairway.model.values import Flavor

POINTS_PER_BRANCH = 3
"""Points that are run for one condition on sizes."""
SCALES = (1e-2, 1e-4, 1e-6, 1e-8, 1e2, 1e4, 1e6, -1.0)
SPECIAL_FLAVORS: tuple[Flavor, ...] = ("zeros", "most", "least", "log", "halves", "equal", "same", "mixed", "large")
TRIALS_PER_BRANCH = 60
EDGE_RATIO = 1.03
"""Two samples on either side of a branch's edge differ by this factor or less."""

Runs = Sequence[Sample]
Reaches = Callable[[Sample], bool]


@dataclass(frozen=True)
class SizeAnswer:
    """The points of the domain at which a condition on sizes has the missing answer."""

    count: int
    points: tuple[dict[str, int], ...]


def solve_sizes(domain: Domain, branch: Branch, runs: Runs) -> SizeAnswer | None:
    """Return the points at which a branch goes the other way, or None if its condition is not on sizes alone."""
    if not branch.is_varying():
        return None  # a number that never changed may still depend on values
    known: dict[str, np.ndarray | tuple[np.ndarray, ...]] = {}
    full_grid = make_grid(domain)
    grid = thin_out(full_grid)
    for number, leaf in enumerate(branch.leaves):
        observed = [(runs[o.run].sizes, o.values[number]) for o in branch.observations if runs[o.run].data is None]
        formula = _fit_formula(domain, observed, grid)
        if formula is None:
            return None
        known[leaf.text] = formula
    if not known:
        return None
    try:
        answers = np.asarray(evaluate(branch.test, known)) != 0
    except CannotEvaluate:
        return None
    matches = answers if branch.missing_answer else ~answers
    count, points = grid.find_points(matches, POINTS_PER_BRANCH)
    if not count and grid.points < full_grid.points:
        return None  # the points that were left out may answer differently
    return SizeAnswer(count, tuple(points))


def _fit_formula(
    domain: Domain, seen: Sequence[tuple[Mapping[str, int], PlainValue]], grid: Grid
) -> np.ndarray | tuple[np.ndarray, ...] | None:
    """Return a number seen at several points as an array over the grid, or None if the sizes do not explain it.

    Several numbers, such as a shape, are as many arrays.
    """
    lengths = {len(value) if isinstance(value, tuple) else -1 for _, value in seen}
    if len(lengths) != 1 or lengths == {-1}:
        return _fit_number(domain, seen, grid)
    columns = [[(point, value[i]) for point, value in seen if isinstance(value, tuple)] for i in range(lengths.pop())]
    fitted = [_fit_number(domain, column, grid) for column in columns]
    arrays = [array for array in fitted if array is not None]
    return tuple(arrays) if len(arrays) == len(fitted) else None


def _fit_number(domain: Domain, seen: Sequence[tuple[Mapping[str, int], PlainValue]], grid: Grid) -> np.ndarray | None:
    """Return one number as an array over the grid.

    The formulas tried are a constant, one dim times a number plus a number, and sums and products of two dims.
    """
    if not seen or any(not isinstance(value, float) for _, value in seen):
        return None
    values = np.asarray([value for _, value in seen], float)
    columns = {name: np.asarray([point[name] for point, _ in seen], float) for name in domain.names}
    axes: Mapping[str, np.ndarray] = grid.arrays()
    if (values == values[0]).all():
        return np.asarray(values[0])
    for terms in _list_terms(columns, axes):
        column, axis = terms
        if len(set(column)) < 3 and len(set(values)) < 3 and len(seen) < 4:
            continue
        slope, offset = _fit_line(column, values)
        if slope is not None and np.array_equal(slope * column + offset, values):
            return np.asarray(slope * axis + offset)
    return None


def _list_terms(
    columns: Mapping[str, np.ndarray], axes: Mapping[str, np.ndarray]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for name in columns:
        yield columns[name], axes[name]
    for a, b in combinations(columns, 2):
        yield columns[a] * columns[b], axes[a] * axes[b]
        yield columns[a] + columns[b], axes[a] + axes[b]
        yield columns[a] - columns[b], axes[a] - axes[b]


def _fit_line(column: np.ndarray, values: np.ndarray) -> tuple[float | None, float]:
    first, last = int(column.argmin()), int(column.argmax())
    if column[first] == column[last]:
        return None, 0.0
    slope = (values[last] - values[first]) / (column[last] - column[first])
    return float(slope), float(values[first] - slope * column[first])


def aim_at_values(subject: Subject, branch: Branch, runs: Runs, reaches: Reaches) -> Sample | None:
    """Return a sample that takes the missing side of a branch, or None if none was found."""
    met = [runs[o.run] for o in branch.observations]
    return aim_at_numbers(subject, _find_compared_numbers(branch), met or runs, reaches)


def aim_at_numbers(subject: Subject, numbers: Sequence[float], runs: Runs, reaches: Reaches) -> Sample | None:
    """Return the first sample that `reaches` accepts, or None. The numbers are likely to matter."""
    candidates = islice(_list_candidates(subject, numbers, _choose_base(runs)), TRIALS_PER_BRANCH)
    return next((candidate for candidate in candidates if reaches(candidate)), None)


def find_edge(base: Sample, answer_at: Callable[[Sample], bool | None]) -> list[Sample]:
    """Return two samples that are close together and take different sides of a branch: one sample, scaled twice.

    They are not so close that rounding decides. Return nothing if no scale makes the branch go the other way.
    """

    def scale(factor: float) -> Sample:
        return replace(base, touch=Touch("scale", factor))

    here = answer_at(scale(1.0))
    far = next((s for s in SCALES if s > 0 and answer_at(scale(s)) is (not here)), None)
    if here is None or far is None:
        return []
    near = 1.0
    while max(near, far) > EDGE_RATIO * min(near, far):
        middle = float(f"{(near * far) ** 0.5:.4g}")
        if answer_at(scale(middle)) is here:
            near = middle
        else:
            far = middle
    return [scale(near), scale(far)]


def _choose_base(runs: Runs) -> Sample:
    """Return the smallest sample other than the user's data and touched ones, if there is one."""
    met = [run for run in runs if run.data is None and run.touch is None]
    return min(met or runs, key=lambda s: (s.data is not None, s.flavor != "normal", sum(s.sizes.values())))


def _list_candidates(subject: Subject, compared: Sequence[float], base: Sample) -> Iterator[Sample]:
    """Yield samples that may take the other side, the likeliest first."""
    names = [spec.name for spec in subject.spec]
    numbers = list(dict.fromkeys([*compared, *subject.study.literals]))
    plain = replace(base, flavor="normal", seed=3)
    for number in numbers[:6]:
        for near in (number, number + 1, number - 1) if float(number).is_integer() else (number, -number):
            yield replace(plain, touch=Touch("fill", near))
    for scale in SCALES:
        yield replace(plain, touch=Touch("scale", scale))
    for flavor in SPECIAL_FLAVORS:
        yield replace(base, flavor=flavor, seed=5)
    for name in names if len(names) > 1 else ():
        for number in (0.0, 1.0, *numbers[:4]):
            yield replace(plain, touch=Touch("fill", number, name))
        for scale in SCALES:
            yield replace(plain, touch=Touch("scale", scale, name))
    yield replace(plain, touch=Touch("fill", 0.0))
    yield replace(plain, touch=Touch("fill", 1.0))
    for number in numbers[:4]:
        yield replace(plain, touch=Touch("exact", number))
    for seed in range(100, 130):
        yield replace(base, flavor="normal" if seed % 2 else "mixed", seed=seed)


def find_constants(tree: ast.AST) -> list[float]:
    """Return the numbers that an expression holds."""
    constants = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return [float(value) for value in constants if isinstance(value, int | float)]


def _find_compared_numbers(branch: Branch) -> list[float]:
    """Return the numbers that the condition compares with: constants, and parts that never changed."""
    numbers = dict.fromkeys(find_constants(branch.test))
    for number in range(len(branch.leaves)):
        column = {o.values[number] for o in branch.observations}
        for value in column if len(column) == 1 else ():
            numbers.update(
                dict.fromkeys(value if isinstance(value, tuple) else (value,) if isinstance(value, float) else ())
            )
    return list(numbers)


def make_sample_at(subject: Subject, point: Mapping[str, int], seed: int = 40) -> Sample:
    """Return an ordinary sample at a point."""
    return make_sample({name: point.get(name, subject.example[name]) for name in subject.domain.names}, seed)
