"""Conditions on sizes as ONNX nodes: the inputs' shapes are read, the rest is arithmetic on whole numbers."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from fairway.convert.pieces.piece_conditions import read
from fairway.model.spec import TensorSpec

_COMPARED: dict[type[ast.cmpop], tuple[str, bool]] = {
    ast.Eq: ("Equal", False),
    ast.NotEq: ("Equal", True),
    ast.Lt: ("Less", False),
    ast.GtE: ("Less", True),
    ast.Gt: ("Greater", False),
    ast.LtE: ("Greater", True),
}
"""The operator for a comparison, and whether its answer is negated. These forms are in every opset from 7 on."""
_PLAIN: dict[type[ast.operator], str] = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul"}
PREFIX = "region"


class CannotRead(Exception):
    """A dim cannot be read off the shape of any input."""


class SizeArithmetic:
    """Makes nodes, each expression once."""

    def __init__(self, inputs: Sequence[ir.Value], spec: Sequence[TensorSpec]) -> None:
        self.nodes: list[ir.Node] = []
        self._inputs = inputs
        self._spec = spec
        self._known: dict[str, ir.Value] = {}

    def condition(self, text: str) -> ir.Value:
        """Return a boolean scalar."""
        return self._value(read(text))

    def _value(self, tree: ast.expr) -> ir.Value:
        text = ast.unparse(tree)
        if text not in self._known:
            self._known[text] = self._make(tree)
        return self._known[text]

    def _make(self, tree: ast.expr) -> ir.Value:
        match tree:
            case ast.Constant(value=int(number)):
                return self._constant(number)
            case ast.Name(id=name):
                return self._size(name)
            case ast.UnaryOp(ast.USub(), operand):
                return self._node("Neg", self._value(operand))
            case ast.BinOp(left, ast.Mod(), right):
                return self._node("Mod", self._value(left), self._value(right))
            case ast.BinOp(left, ast.FloorDiv(), right):
                # ONNX divides towards zero, Python downwards: what is left over is taken off first.
                rest = self._node("Mod", self._value(left), self._value(right))
                return self._node("Div", self._node("Sub", self._value(left), rest), self._value(right))
            case ast.BinOp(left, op, right):
                return self._node(_PLAIN[type(op)], self._value(left), self._value(right))
            case ast.Call(ast.Name(name), args):
                return self._node(name.capitalize(), *map(self._value, args))
            case ast.Compare(left, [op], [right]):
                operator, negated = _COMPARED[type(op)]
                answer = self._node(operator, self._value(left), self._value(right), dtype=ir.DataType.BOOL)
                return self._node("Not", answer, dtype=ir.DataType.BOOL) if negated else answer
            case ast.BoolOp(op, values):
                return self._fold("And" if isinstance(op, ast.And) else "Or", [self._value(one) for one in values])
        raise CannotRead(ast.unparse(tree))

    def _fold(self, operator: str, values: Sequence[ir.Value]) -> ir.Value:
        result = values[0]
        for value in values[1:]:
            result = self._node(operator, result, value, dtype=ir.DataType.BOOL)
        return result

    def _size(self, name: str) -> ir.Value:
        """Return a dim, read off the first input axis whose size is a multiple of it plus a number."""
        plain = [(s, i, axis) for i, item in enumerate(self._spec) for axis, s in enumerate(item.shape)]
        fitting = [(s.affine, i, axis) for s, i, axis in plain if s.affine is not None and s.affine[0] == name]
        if not fitting:
            raise CannotRead(f"no input has an axis from whose size {name} can be read")
        (_, slope, offset), i, axis = min(fitting, key=lambda one: (one[0][1:] != (1, 0), one[1], one[2]))
        size = self._node("Gather", self._shape(i), self._constant(axis))
        if offset:
            size = self._node("Sub", size, self._constant(offset))
        return self._node("Div", size, self._constant(slope)) if slope != 1 else size

    def _shape(self, number: int) -> ir.Value:
        key = f"shape of {number}"
        if key not in self._known:
            self._known[key] = self._node("Shape", self._inputs[number], rank=len(self._spec[number].shape))
        return self._known[key]

    def _constant(self, number: int) -> ir.Value:
        key = f"number {number}"
        if key not in self._known:
            value = ir.tensor(np.asarray(number, np.int64))
            self._known[key] = self._node("Constant", attributes=[ir.AttrTensor("value", value)])
            self._known[key].const_value = value
        return self._known[key]

    def _node(
        self,
        operator: str,
        *inputs: ir.Value,
        dtype: ir.DataType = ir.DataType.INT64,
        attributes: Sequence[ir.Attr] = (),
        rank: int | None = None,
    ) -> ir.Value:
        node = ir.Node("", operator, inputs, attributes, name=f"{PREFIX}/{operator}_{len(self.nodes)}")
        (output,) = node.outputs
        output.name = f"{PREFIX}/{operator.lower()}_{len(self.nodes)}"
        output.dtype = dtype
        output.shape = ir.Shape([] if rank is None else [rank])
        self.nodes.append(node)
        return output
