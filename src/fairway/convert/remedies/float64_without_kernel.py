"""Activations in float64 are written out to the precision of a double.

onnxruntime 1.31 has Erf, Gelu, Softplus, Elu, Selu, LeakyRelu and Mish in float32 only, so a float64 model with one of
them cannot be loaded. It has Exp, Log, Tanh and arithmetic. Erf is computed with polynomials.

Never refuses, because the graph does not exist yet when remedies are chosen. Convolutions and recurrent layers, which
have no float64 kernel either, are left alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from fairway.convert.remedies.contract import Case, Match, Refusal, Remedy, add_pass
from fairway.diagnostics import Code

if TYPE_CHECKING:
    from fairway.convert.translations.polynomials import Polynomial

DOUBLE = ir.DataType.DOUBLE

Operand = ir.Value | float
ReadAttribute = Callable[[str, Any], Any]
"""Returns a node's attribute by its name, or the default."""


class NodeWriter(ir.tape.Tape):
    """Records nodes; numbers among the inputs become float64 constants."""

    def write(self, operator: str, *inputs: Operand) -> ir.Value:
        values = [operand if isinstance(operand, ir.Value) else self._write_number(operand) for operand in inputs]
        return self.op(operator, values)

    def _write_number(self, value: float) -> ir.Value:
        return self.op("Constant", [], {"value": ir.tensor(float(value), dtype=DOUBLE)})


def erf(w: NodeWriter, x: ir.Value, _: ReadAttribute) -> ir.Value:
    from fairway.convert.translations.polynomials import ERF, ERFC  # its package imports onnxscript, which is slow

    size = w.write("Abs", x)
    near = w.write("Mul", x, _write_polynomial(w, ERF, w.write("Mul", x, x)))
    t = w.write("Div", 2, w.write("Add", size, 2))
    power = w.write("Sub", _write_polynomial(w, ERFC, t), w.write("Mul", size, size))
    far = w.write("Mul", w.write("Sign", x), w.write("Sub", 1, w.write("Mul", t, w.write("Exp", power))))
    return w.write("Where", w.write("Less", size, 1), near, far)


def gelu(w: NodeWriter, x: ir.Value, read_attribute: ReadAttribute) -> ir.Value:
    if read_attribute("approximate", "none") == "tanh":
        cube = w.write("Mul", 0.044715, w.write("Mul", x, w.write("Mul", x, x)))
        part = w.write("Tanh", w.write("Mul", math.sqrt(2 / math.pi), w.write("Add", x, cube)))
    else:
        part = erf(w, w.write("Mul", x, math.sqrt(0.5)), read_attribute)
    return w.write("Mul", w.write("Mul", x, 0.5), w.write("Add", part, 1))


def softplus(w: NodeWriter, x: ir.Value, _: ReadAttribute) -> ir.Value:
    tail = w.write("Log", w.write("Add", w.write("Exp", w.write("Neg", w.write("Abs", x))), 1))
    return w.write("Add", w.write("Max", x, 0), tail)


def mish(w: NodeWriter, x: ir.Value, read_attribute: ReadAttribute) -> ir.Value:
    return w.write("Mul", x, w.write("Tanh", softplus(w, x, read_attribute)))


def elu(w: NodeWriter, x: ir.Value, read_attribute: ReadAttribute) -> ir.Value:
    return _select_below_zero(w, x, w.write("Mul", read_attribute("alpha", 1.0), _exp_minus_one(w, x)))


def selu(w: NodeWriter, x: ir.Value, _: ReadAttribute) -> ir.Value:
    # The attributes are float32, and PyTorch has these numbers with all their digits.
    alpha, gamma = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
    return w.write("Mul", gamma, _select_below_zero(w, x, w.write("Mul", alpha, _exp_minus_one(w, x))))


def leaky_relu(w: NodeWriter, x: ir.Value, read_attribute: ReadAttribute) -> ir.Value:
    return _select_below_zero(w, x, w.write("Mul", read_attribute("alpha", 0.01), x))


def _select_below_zero(w: NodeWriter, x: ir.Value, below: ir.Value) -> ir.Value:
    return w.write("Where", w.write("Less", x, 0), below, x)


def _exp_minus_one(w: NodeWriter, x: ir.Value) -> ir.Value:
    return w.write("Sub", w.write("Exp", w.write("Min", x, 0)), 1)


def _write_polynomial(w: NodeWriter, polynomial: Polynomial, x: ir.Value) -> ir.Value:
    t = w.write("Div", w.write("Sub", x, polynomial.middle), polynomial.half)
    total: Operand = polynomial.terms[-1]
    for term in reversed(polynomial.terms[:-1]):
        total = w.write("Add", w.write("Mul", total, t), term)
    assert isinstance(total, ir.Value)
    return total


ACTIVATIONS: dict[str, Callable[[NodeWriter, ir.Value, ReadAttribute], ir.Value]] = {
    "Erf": erf,
    "Gelu": gelu,
    "Softplus": softplus,
    "Mish": mish,
    "Elu": elu,
    "Selu": selu,
    "LeakyRelu": leaky_relu,
}


def write_out(model: ir.Model) -> bool:
    """Replace every such node, and return whether there was one."""
    nodes = [node for node in model.graph.all_nodes() if not node.domain and node.op_type in ACTIVATIONS]
    if any(node.inputs[0] is not None and node.inputs[0].dtype is None for node in nodes):
        ShapeInferencePass(check_type=False, data_prop=False)(model)
    double = [node for node in nodes if node.inputs[0] is not None and node.inputs[0].dtype == DOUBLE]
    for node in double:
        _replace(node)
    return bool(double)


def _replace(node: ir.Node) -> None:
    def read_attribute(name: str, default: object) -> object:
        attribute = node.attributes.get(name)
        return default if attribute is None else _restore_digits(attribute.value)

    writer = NodeWriter()
    assert node.inputs[0] is not None
    result = ACTIVATIONS[node.op_type](writer, node.inputs[0], read_attribute)
    assert isinstance(node.graph, ir.Graph)
    ir.convenience.replace_nodes_and_values(node.graph, node, [node], list(writer.nodes), node.outputs, [result])


def _restore_digits(value: object) -> object:
    """Return 0.1 for float32's 0.100000001: an attribute has no more digits, but the model's own number had."""
    return float(f"{value:.7g}") if isinstance(value, float) else value


def detect(case: Case) -> Match | Refusal:
    return Match("activations in float64 written out")


def apply(case: Case, match: Match) -> AbstractContextManager[None]:
    return add_pass(case, write_out)


REMEDY = Remedy(
    name="float64_without_kernel",
    cures=Code.FLOAT64_WITHOUT_KERNEL,
    title="Writes activations in float64 out",
    stage="graph",
    affected={"onnxruntime": "<=1.31.1"},
    upstream=(),
    safety="The activations' definitions; erf's polynomials are right to the last digits of a double.",
    detect=detect,
    apply=apply,
    order=40,
)
