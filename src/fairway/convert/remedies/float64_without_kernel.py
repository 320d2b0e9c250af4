"""Activations in float64 are written out, as precise as a double is.

onnxruntime 1.31 has Erf, Gelu, Softplus, Elu, Selu, LeakyRelu and Mish in float32 only, so a float64 model with one of
them cannot be loaded. Exp, Log, Tanh and arithmetic it has; erf is made of polynomials.

Refuses nothing: whether the graph has such a node shows when it is there. Convolutions and recurrent layers, which have
no float64 kernel either, are left alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from fairway.convert.remedies.contract import Case, Match, Refusal, Remedy, passing

DOUBLE = ir.DataType.DOUBLE


class Writer(ir.tape.Tape):
    """Records nodes; numbers among the inputs become float64 constants."""

    def write(self, operator: str, *inputs: Any) -> ir.Value:
        return self.op(operator, [one if isinstance(one, ir.Value) else self._number(one) for one in inputs])

    def _number(self, value: float) -> ir.Value:
        return self.op("Constant", [], {"value": ir.tensor(float(value), dtype=DOUBLE)})


def erf(w: Writer, x: Any, _: Any) -> ir.Value:
    from fairway.convert.translations.polynomials import ERF, ERFC  # imports onnxscript, so not at the top

    size = w.write("Abs", x)
    near = w.write("Mul", x, _polynomial(w, ERF, w.write("Mul", x, x)))
    t = w.write("Div", 2, w.write("Add", size, 2))
    power = w.write("Sub", _polynomial(w, ERFC, t), w.write("Mul", size, size))
    far = w.write("Mul", w.write("Sign", x), w.write("Sub", 1, w.write("Mul", t, w.write("Exp", power))))
    return w.write("Where", w.write("Less", size, 1), near, far)


def gelu(w: Writer, x: Any, given: Any) -> ir.Value:
    if given("approximate", "none") == "tanh":
        cube = w.write("Mul", 0.044715, w.write("Mul", x, w.write("Mul", x, x)))
        part = w.write("Tanh", w.write("Mul", math.sqrt(2 / math.pi), w.write("Add", x, cube)))
    else:
        part = erf(w, w.write("Mul", x, math.sqrt(0.5)), given)
    return w.write("Mul", w.write("Mul", x, 0.5), w.write("Add", part, 1))


def softplus(w: Writer, x: Any, _: Any) -> ir.Value:
    tail = w.write("Log", w.write("Add", w.write("Exp", w.write("Neg", w.write("Abs", x))), 1))
    return w.write("Add", w.write("Max", x, 0), tail)


def mish(w: Writer, x: Any, given: Any) -> ir.Value:
    return w.write("Mul", x, w.write("Tanh", softplus(w, x, given)))


def elu(w: Writer, x: Any, given: Any) -> ir.Value:
    return _below_zero(w, x, w.write("Mul", given("alpha", 1.0), _less_one(w, x)))


def selu(w: Writer, x: Any, given: Any) -> ir.Value:
    # The attributes are float32; PyTorch has these with all their digits.
    alpha, gamma = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
    return w.write("Mul", gamma, _below_zero(w, x, w.write("Mul", alpha, _less_one(w, x))))


def leaky_relu(w: Writer, x: Any, given: Any) -> ir.Value:
    return _below_zero(w, x, w.write("Mul", given("alpha", 0.01), x))


def _below_zero(w: Writer, x: Any, below: ir.Value) -> ir.Value:
    return w.write("Where", w.write("Less", x, 0), below, x)


def _less_one(w: Writer, x: Any) -> ir.Value:
    return w.write("Sub", w.write("Exp", w.write("Min", x, 0)), 1)


def _polynomial(w: Writer, of: Any, x: Any) -> ir.Value:
    t = w.write("Div", w.write("Sub", x, of.middle), of.half)
    total: Any = of.terms[-1]
    for term in reversed(of.terms[:-1]):
        total = w.write("Add", w.write("Mul", total, t), term)
    assert isinstance(total, ir.Value)
    return total


WRITTEN: dict[str, Callable[[Writer, Any, Any], ir.Value]] = {
    "Erf": erf,
    "Gelu": gelu,
    "Softplus": softplus,
    "Mish": mish,
    "Elu": elu,
    "Selu": selu,
    "LeakyRelu": leaky_relu,
}


def write_out(model: ir.Model) -> bool:
    """Replaces every such node; whether there was one."""
    nodes = [node for node in model.graph.all_nodes() if not node.domain and node.op_type in WRITTEN]
    if any(node.inputs[0] is not None and node.inputs[0].dtype is None for node in nodes):
        ShapeInferencePass(check_type=False, data_prop=False)(model)
    found = [node for node in nodes if node.inputs[0] is not None and node.inputs[0].dtype == DOUBLE]
    for node in found:
        _replace(node)
    return bool(found)


def _replace(node: ir.Node) -> None:
    def given(name: str, default: Any) -> Any:
        attribute = node.attributes.get(name)
        return default if attribute is None else _digits(attribute.value)

    writer = Writer()
    result = WRITTEN[node.op_type](writer, node.inputs[0], given)
    assert isinstance(node.graph, ir.Graph)
    ir.convenience.replace_nodes_and_values(node.graph, node, [node], list(writer.nodes), node.outputs, [result])


def _digits(value: Any) -> Any:
    """0.1 for float32's 0.100000001: an attribute has no more digits, the model's own number had."""
    return float(f"{value:.7g}") if isinstance(value, float) else value


def detect(case: Case) -> Match | Refusal:
    return Match("activations in float64 written out")


def apply(case: Case, match: Match) -> AbstractContextManager[None]:
    return passing(case, write_out)


REMEDY = Remedy(
    name="float64_without_kernel",
    cures="FW322",
    title="Writes activations in float64 out",
    stage="graph",
    affected={"onnxruntime": "<=1.31.1"},
    upstream=(),
    safety="The activations' definitions; erf's polynomials are right to the last digits of a double.",
    detect=detect,
    apply=apply,
)
