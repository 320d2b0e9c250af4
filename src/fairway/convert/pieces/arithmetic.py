"""Computes conditions on sizes with ONNX nodes: integer arithmetic on the shapes of the inputs."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from fairway.convert.pieces.piece_conditions import parse_condition
from fairway.model.spec import TensorSpec

_COMPARISONS: dict[type[ast.cmpop], tuple[str, bool]] = {
    ast.Eq: ("Equal", False),
    ast.NotEq: ("Equal", True),
    ast.Lt: ("Less", False),
    ast.GtE: ("Less", True),
    ast.Gt: ("Greater", False),
    ast.LtE: ("Greater", True),
}
"""The operator for a comparison, and true if its result is negated. These operators are in every opset from 7 on."""
_ARITHMETIC: dict[type[ast.operator], str] = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul"}
NODE_NAME_PREFIX = "region"


class CannotRead(Exception):
    """A dim cannot be read off the shape of any input."""


class SizeArithmetic:
    """Makes nodes for conditions, each expression once."""

    def __init__(self, inputs: Sequence[ir.Value], spec: Sequence[TensorSpec]) -> None:
        self.nodes: list[ir.Node] = []
        self._inputs = inputs
        self._spec = spec
        self._known: dict[str, ir.Value] = {}

    def make_condition(self, text: str) -> ir.Value:
        """Return a boolean scalar."""
        return self._make_value(parse_condition(text))

    def _make_value(self, tree: ast.expr) -> ir.Value:
        text = ast.unparse(tree)
        if text not in self._known:
            self._known[text] = self._make(tree)
        return self._known[text]

    def _make(self, tree: ast.expr) -> ir.Value:
        match tree:
            case ast.Constant(value=int(number)):
                return self._make_constant(number)
            case ast.Name(id=name):
                return self._make_size(name)
            case ast.UnaryOp(ast.USub(), operand):
                return self._make_node("Neg", self._make_value(operand))
            case ast.BinOp(left, ast.Mod(), right):
                return self._make_node("Mod", self._make_value(left), self._make_value(right))
            case ast.BinOp(left, ast.FloorDiv(), right):
                # ONNX rounds toward zero, Python down, so the remainder is subtracted first.
                rest = self._make_node("Mod", self._make_value(left), self._make_value(right))
                return self._make_node(
                    "Div", self._make_node("Sub", self._make_value(left), rest), self._make_value(right)
                )
            case ast.BinOp(left, op, right):
                return self._make_node(_ARITHMETIC[type(op)], self._make_value(left), self._make_value(right))
            case ast.Call(ast.Name(name), args):
                return self._make_node(name.capitalize(), *map(self._make_value, args))
            case ast.Compare(left, [op], [right]):
                operator, is_negated = _COMPARISONS[type(op)]
                result = self._make_node(
                    operator, self._make_value(left), self._make_value(right), dtype=ir.DataType.BOOL
                )
                return self._make_node("Not", result, dtype=ir.DataType.BOOL) if is_negated else result
            case ast.BoolOp(op, values):
                return self._make_fold(
                    "And" if isinstance(op, ast.And) else "Or", [self._make_value(value) for value in values]
                )
        raise CannotRead(ast.unparse(tree))

    def _make_fold(self, operator: str, values: Sequence[ir.Value]) -> ir.Value:
        result = values[0]
        for value in values[1:]:
            result = self._make_node(operator, result, value, dtype=ir.DataType.BOOL)
        return result

    def _make_size(self, name: str) -> ir.Value:
        """Return a dim, computed from an input axis whose size is a multiple of it plus a number, or the dim itself."""
        axes = [(s, i, axis) for i, item in enumerate(self._spec) for axis, s in enumerate(item.shape)]
        fitting = [(s.affine, i, axis) for s, i, axis in axes if s.affine is not None and s.affine[0] == name]
        if not fitting:
            raise CannotRead(f"no input has an axis from whose size {name} can be read")
        (_, slope, offset), i, axis = min(fitting, key=lambda item: (item[0][1:] != (1, 0), item[1], item[2]))
        size = self._make_node("Gather", self._make_shape(i), self._make_constant(axis))
        if offset:
            size = self._make_node("Sub", size, self._make_constant(offset))
        return self._make_node("Div", size, self._make_constant(slope)) if slope != 1 else size

    def _make_shape(self, number: int) -> ir.Value:
        key = f"shape of {number}"
        if key not in self._known:
            self._known[key] = self._make_node("Shape", self._inputs[number], rank=len(self._spec[number].shape))
        return self._known[key]

    def _make_constant(self, number: int) -> ir.Value:
        key = f"number {number}"
        if key not in self._known:
            value = ir.tensor(np.asarray(number, np.int64))
            self._known[key] = self._make_node("Constant", attributes=[ir.AttrTensor("value", value)])
            self._known[key].const_value = value
        return self._known[key]

    def _make_node(
        self,
        operator: str,
        *inputs: ir.Value,
        dtype: ir.DataType = ir.DataType.INT64,
        attributes: Sequence[ir.Attr] = (),
        rank: int | None = None,
    ) -> ir.Value:
        node = ir.Node("", operator, inputs, attributes, name=f"{NODE_NAME_PREFIX}/{operator}_{len(self.nodes)}")
        (output,) = node.outputs
        output.name = f"{NODE_NAME_PREFIX}/{operator.lower()}_{len(self.nodes)}"
        output.dtype = dtype
        output.shape = ir.Shape([] if rank is None else [rank])
        self.nodes.append(node)
        return output
