"""Records the calls of a model while a program uses it, and proposes dims, bounds and spec lines from them."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.model.signatures import read_forward_signature
from fairway.model.tree import Tree, flatten

MAX_RECORDED_CALLS = 10_000
"""Later calls are not recorded."""


@dataclass
class _ObservedInput:
    """The dtype, the shapes and the range of values of one input, over all calls."""

    dtype: str
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    low: float | None = None
    high: float | None = None

    def add(self, tensor: torch.Tensor) -> None:
        self.shapes.append(tuple(tensor.shape))
        if tensor.dtype == torch.bool or tensor.dtype.is_complex or tensor.numel() == 0:
            return
        low, high = float(tensor.min()), float(tensor.max())
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)

    def describe_values(self) -> str:
        """Return the legal values as a spec line writes them. Floats have none: a range of samples is not a limit."""
        if self.low is None or self.high is None or "int" not in self.dtype:
            return ""
        return f" < {int(self.high) + 1}" if self.low >= 0 else f" in {int(self.low)}..{int(self.high)}"


class ObservedCalls:
    """The declarations that fit a model's observed calls. `lines` and `bounds` are arguments for `fairway.export`."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.calls = 0
        """The number of calls that were recorded."""
        self.example: tuple[tuple[Tree, ...], dict[str, Tree]] | None = None
        """The arguments of the last call."""
        self._inputs: dict[str, _ObservedInput] = {}
        self._signature = read_forward_signature(model)

    def note_call(self, args: tuple[Tree, ...], kwargs: Mapping[str, Tree]) -> None:
        """Record one call."""
        if self.calls >= MAX_RECORDED_CALLS:
            return
        named = self._signature.bind(*args, **kwargs).arguments
        leaves = [leaf for leaf in flatten(dict(named)) if isinstance(leaf.value, torch.Tensor)]
        if self.calls and {leaf.name for leaf in leaves} != set(self._inputs):
            return  # another structure: only calls like the first one are counted
        self.calls += 1
        self.example = (args, dict(kwargs))
        for leaf in leaves:
            dtype = str(leaf.value.dtype).removeprefix("torch.")
            self._inputs.setdefault(leaf.name, _ObservedInput(dtype)).add(leaf.value.detach())

    @property
    def dims(self) -> dict[str, list[str]]:
        """The sizes of each input: a number if it was always the same, else a name. Equal sizes share a name."""
        names = self._name_sizes()
        return {
            name: [names.get(sizes, str(sizes[0])) for sizes in zip(*seen.shapes, strict=True)]
            for name, seen in self._list_inputs()
        }

    @property
    def bounds(self) -> dict[str, tuple[int, int]]:
        """The smallest and the largest size that each dim had."""
        return {name: (min(sizes), max(sizes)) for sizes, name in self._name_sizes().items()}

    @property
    def lines(self) -> list[str]:
        """Spec lines for the inputs, with the whole numbers that were seen as legal values."""
        seen = dict(self._list_inputs())
        return [
            f"{name}: {seen[name].dtype}[{', '.join(sizes)}]{seen[name].describe_values()}"
            for name, sizes in self.dims.items()
        ]

    def __str__(self) -> str:
        dims = [f"--dim {name}={low}..{high}" for name, (low, high) in self.bounds.items()]
        return "\n".join([f"{self.calls} calls", *self.lines, *dims])

    def _list_inputs(self) -> list[tuple[str, _ObservedInput]]:
        if not self.calls:
            raise complain(Code.NO_INPUTS, "the model was not called while it was observed")
        for name, seen in self._inputs.items():
            ranks = sorted({len(shape) for shape in seen.shapes})
            if len(ranks) > 1:
                raise complain(
                    Code.INPUTS_DISAGREE, f"{name} had {' and '.join(map(str, ranks))} axes in different calls"
                )
        return list(self._inputs.items())

    def _name_sizes(self) -> dict[tuple[int, ...], str]:
        """Return a name for each sequence of sizes that varied: `batch` for a first axis, else by its axis."""
        names: dict[tuple[int, ...], str] = {}
        for _, seen in self._list_inputs():
            for axis, sizes in enumerate(zip(*seen.shapes, strict=True)):
                if len(set(sizes)) > 1 and sizes not in names:
                    names[sizes] = _choose_name(axis, list(names.values()))
        return names


def _choose_name(axis: int, taken: Sequence[str]) -> str:
    name = "batch" if axis == 0 else f"dim_{axis}"
    number = 2
    free = name
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    return free


_observations: weakref.WeakKeyDictionary[torch.nn.Module, ObservedCalls] = weakref.WeakKeyDictionary()


@contextmanager
def observe(model: torch.nn.Module) -> Iterator[ObservedCalls]:
    """Record the calls of a model while the block runs, to learn the sizes and values that it is used with.

    with fairway.observe(model) as seen:
        run_my_application()
    fairway.export(model, seen.lines, "out.onnx", bounds=seen.bounds)
    """
    observation = ObservedCalls(model)
    _observations[model] = observation

    def note(module: torch.nn.Module, args: tuple[Tree, ...], kwargs: dict[str, Tree]) -> None:
        observation.note_call(args, kwargs)

    hook = model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield observation
    finally:
        hook.remove()


def find_observation(model: object) -> ObservedCalls | None:
    """Return what was last observed of a model, if it was called meanwhile."""
    seen = _observations.get(model) if isinstance(model, torch.nn.Module) else None
    return seen if seen is not None and seen.calls else None
