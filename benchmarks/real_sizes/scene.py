"""An ONNX file that is open for planting: finding places in the graph, and small edits that keep every shape.

Weights stay in the data file of the right export. Only a tensor that an edit replaces is stored in the planted file.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import torch

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "mutants"))

from graph import Chain, before  # noqa: E402  # from the mutants

Real = npt.NDArray[np.float32]
Item = TypeVar("Item")

LINEAR_OPS = ("MatMul", "Gemm", "Conv", "ConvTranspose")
_BIAS_PLACE = {"Gemm": 2, "Conv": 2, "ConvTranspose": 2, "LayerNormalization": 2}


@dataclass
class Scene:
    """The graph to edit, the model it came from, and the bounds and multiples of its dims."""

    model: ir.Model
    source: torch.nn.Module
    bounds: Mapping[str, tuple[int, int]]
    multiples: Mapping[str, int]
    rng: random.Random
    required_ids: dict[str, int] = field(default_factory=dict)
    """By input name: an id that an input must contain for the error to show."""

    def pick(self, items: Iterator[Item] | list[Item]) -> Item | None:
        """One of the items at random, None if there are none."""
        every = list(items)
        return self.rng.choice(every) if every else None

    def nodes(self, *ops: str) -> list[ir.Node]:
        return [node for node in self.model.graph if node.op_type in ops]

    def weights(self, least_rank: int = 2) -> list[ir.Value]:
        """Float initializers of at least this rank that a linear operator or a lookup uses."""
        return [
            value
            for value in self.model.graph.initializers.values()
            if is_float(value)
            and len(read_shape(value)) >= least_rank
            and any(user.op_type in (*LINEAR_OPS, "Gather") for user, _ in value.uses())
        ]

    def biases(self) -> list[ir.Value]:
        """Float initializers of one long axis that are added, or that stand where an operator takes its bias."""
        found = []
        for value in self.model.graph.initializers.values():
            shape = read_shape(value)
            if not is_float(value) or not shape or max(shape) < 2 or max(shape) != np.prod(shape):
                continue
            if any(user.op_type == "Add" or _BIAS_PLACE.get(user.op_type) == place for user, place in value.uses()):
                found.append(value)
        return found

    def replace_weight(self, value: ir.Value, array: npt.NDArray[np.generic]) -> None:
        value.const_value = ir.tensor(np.ascontiguousarray(array), name=value.name)

    def insert_after(self, value: ir.Value, make: Callable[[Chain], ir.Value]) -> None:
        """Let every user of the value take what `make` builds from it."""
        uses = list(value.uses())
        users = {id(user) for user, _ in uses}
        first = next(node for node in self.model.graph if id(node) in users)
        made = make(before(self.model, first))
        for user, place in uses:
            user.replace_input_with(place, made)

    def inner_values(self, *ops: str) -> list[ir.Value]:
        """Outputs of such nodes that another node uses and that are not outputs of the file."""
        outputs = {id(value) for value in self.model.graph.outputs}
        values = [node.outputs[0] for node in self.nodes(*ops)]
        return [value for value in values if id(value) not in outputs and list(value.uses())]

    def largest_size(self, size: object) -> int | None:
        """The largest value of a size in the graph: an integer, a dim, or a multiple of a dim's base."""
        text = str(size)
        if text.isdigit():
            return int(text)
        if text in self.bounds:
            return self.bounds[text][1]
        factor, star, _ = text.partition("*")
        if star and factor.isdigit() and self.multiples:
            dim, step = next(iter(self.multiples.items()))
            return int(factor) * self.bounds[dim][1] // step
        return None


def is_float(value: ir.Value) -> bool:
    return value.const_value is not None and value.const_value.dtype == ir.DataType.FLOAT


def read_shape(value: ir.Value) -> tuple[int, ...]:
    assert value.const_value is not None
    return tuple(int(size) for size in value.const_value.shape)


def read_array(value: ir.Value) -> Real:
    """A copy that may be written to."""
    assert value.const_value is not None
    return np.array(value.const_value.numpy(), dtype=np.float32)
