"""A random program: steps that say the same thing twice, as a line of torch and as a function of numpy arrays."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from kinds import Kind, Size, fixed

Array = np.ndarray
Oracle = Callable[..., Any]
"""From (the point, one array for each input) to the array of the result."""


class SkipError(Exception):
    """This operator does not fit what is there."""


@dataclass(frozen=True)
class Value:
    name: str
    kind: Kind

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Step:
    """One statement: its lines of Python, and the same in numpy."""

    operator: str
    result: Value
    inputs: tuple[str, ...]
    lines: tuple[str, ...]
    oracle: Oracle


@dataclass(frozen=True)
class Input:
    """An input with its legal values: a spec line's worth."""

    value: Value
    low: int | None = None
    high: int | None = None

    @property
    def line(self) -> str:
        names = {Size(b=1): "batch", Size(n=1): "n"}
        shape = ", ".join(names.get(size, str(size.c)) for size in self.value.kind.shape)
        legal = f" in {self.low}..{self.high}" if self.low is not None else ""
        return f"{self.value.name}: {self.value.kind.dtype}[{shape}]{legal}"


@dataclass
class Program:
    """Inputs, weights, steps and outputs of one module; inner modules are separate programs."""

    name: str
    rng: random.Random
    inputs: list[Input] = field(default_factory=list)
    init: list[str] = field(default_factory=list)
    """Lines of `__init__`."""
    steps: list[Step] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    inner: list[Program] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    depth: int = 0

    @property
    def seed(self) -> int:
        return self.rng.randrange(10**6)

    def pick(self, wanted: Callable[[Kind], bool] = lambda kind: True) -> Value:
        """A value that fits, recent ones more often, so that programs grow deep rather than wide."""
        fitting = [value for value in self.values if wanted(value.kind)]
        if not fitting:
            raise SkipError
        weights = [1.0 + 2.0 * (place + 1) / len(fitting) for place in range(len(fitting))]
        return self.rng.choices(fitting, weights)[0]

    def axis(self, value: Value, wanted: Callable[[Size], bool] = lambda size: True) -> int:
        fitting = [axis for axis, size in enumerate(value.kind.shape) if wanted(size)]
        if not fitting:
            raise SkipError
        return self.rng.choice(fitting)

    def one(self, options: Sequence[Any]) -> Any:
        return self.rng.choice(options)

    def spell(self, axis: int, value: Value) -> int:
        """The axis as people write it, from the front or from the back."""
        return axis if self.rng.random() < 0.5 else axis - value.kind.rank

    def size(self, size: Size) -> str:
        """The size as an expression over shapes of values at hand."""
        if size.fixed is not None:
            return str(size.c)
        parts = [str(size.c)] if size.c else []
        for count, plain in ((size.b, Size(b=1)), (size.n, Size(n=1))):
            if count:
                parts.append(f"{count} * {self._shape_of(plain)}" if count != 1 else self._shape_of(plain))
        if size.bn:
            parts.append(f"{size.bn} * {self._shape_of(Size(b=1))} * {self._shape_of(Size(n=1))}")
        return " + ".join(reversed(parts))

    def _shape_of(self, size: Size) -> str:
        for value in self.values:
            if size in value.kind.shape:
                return f"{value}.shape[{value.kind.shape.index(size)}]"
        raise SkipError

    def emit(self, operator: str, kind: Kind, text: str | Sequence[str], oracle: Oracle, *inputs: Value) -> Value:
        """Adds a step. A text is an expression; a list of lines assigns to `{out}` itself."""
        result = Value(f"v{len(self.steps)}", kind)
        lines = [f"{{out}} = {text}"] if isinstance(text, str) else text
        written = tuple(line.replace("{out}", result.name) for line in lines)
        self.steps.append(Step(operator, result, tuple(value.name for value in inputs), written, oracle))
        self.values.append(result)
        return result

    def weight(self, *shape: int, dtype: str = "float32", scale: float = 0.5) -> tuple[str, Array]:
        """A parameter, drawn by numpy on both sides: its name in the module and its values."""
        seed, name = self.seed, f"w{len(self.init)}"
        drawn = weight_values(seed, shape, scale).astype(dtype)
        self.init.append(f"self.{name} = nn.Parameter(weight({seed}, {shape!r}, {scale}, torch.{dtype}))")
        return f"self.{name}", drawn.astype(np.float64)

    def layer(self, text: str, weights: dict[str, tuple[int, ...]], scale: float = 0.4) -> tuple[str, dict[str, Array]]:
        """A layer of torch.nn, whose parameters are filled from numpy."""
        name = f"m{len(self.init)}"
        lines, arrays = [f"self.{name} = {text}"], {}
        for parameter, shape in weights.items():
            seed = self.seed
            drawn = weight_values(seed, shape, scale)
            if parameter == "running_var":
                drawn = np.abs(drawn) + np.float32(0.5)
            arrays[parameter] = drawn.astype(np.float64)
            absolute = ".abs() + 0.5" if parameter == "running_var" else ""
            lines.append(f"self.{name}.{parameter}.data = weight({seed}, {shape!r}, {scale}, torch.float32){absolute}")
        self.init.append("\n        ".join(lines))
        return f"self.{name}", arrays


def weight_values(seed: int, shape: tuple[int, ...], scale: float) -> Array:
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(np.float32)


def scalar(rng: random.Random) -> float:
    """A constant that every float dtype holds exactly."""
    return rng.choice((-1.5, -0.5, 0.25, 0.5, 0.75, 1.25, 2.0, 3.0))


ONE = fixed(1)
