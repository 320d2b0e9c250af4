"""Mutations of the graph's structure: operators, attributes, axes, outputs, branches, opsets.

Each proposes (place, edit) pairs on the model it is handed; the edit changes that model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, permutations

import numpy as np
import onnx_ir as ir
from graph import Know, before, computed, constant, edges, nodes, replace_output, set_attribute, set_constant

Edit = Callable[[], None]
Proposals = Iterator[tuple[str, Edit]]

SWAPS = {
    "Add": ("Sub", "Mul", "Max"),
    "Sub": ("Add", "Min"),
    "Mul": ("Div", "Add", "Max"),
    "Div": ("Mul", "Sub"),
    "Relu": ("Abs", "Softplus", "LeakyRelu"),
    "Sigmoid": ("Tanh", "HardSigmoid"),
    "Tanh": ("Sigmoid", "Softsign"),
    "Erf": ("Tanh",),
    "Greater": ("GreaterOrEqual", "Less"),
    "Less": ("LessOrEqual", "Greater"),
    "GreaterOrEqual": ("Greater", "LessOrEqual"),
    "LessOrEqual": ("Less",),
    "And": ("Or", "Xor"),
    "Or": ("And", "Xor"),
    "Xor": ("Or", "And", "Equal"),
    "Equal": ("GreaterOrEqual", "LessOrEqual"),
    "ReduceMean": ("ReduceSum", "ReduceMax"),
    "ReduceSum": ("ReduceMean", "ReduceMax"),
    "ReduceMax": ("ReduceMin", "ReduceMean"),
    "ReduceMin": ("ReduceMax",),
    "ReduceL2": ("ReduceL1", "ReduceSumSquare"),
    "ArgMax": ("ArgMin",),
    "Max": ("Min",),
    "Min": ("Max",),
    "Softmax": ("LogSoftmax", "Hardmax"),
    "Floor": ("Ceil", "Round"),
    "Sqrt": ("Abs", "Exp"),
    "Neg": ("Identity",),
    "Not": ("Identity",),
    "Abs": ("Identity", "Neg"),
    "MaxPool": ("AveragePool",),
    "AveragePool": ("MaxPool",),
    "Elu": ("Celu", "Selu", "Relu"),
    "Gelu": ("Relu", "Softplus"),
    "HardSwish": ("Relu", "Mish"),
    "Softplus": ("Relu",),
    "Clip": ("Identity",),
    "Mod": ("Div",),
}

SEMANTICS = {
    "Resize": {"coordinate_transformation_mode": ("asymmetric", "align_corners"), "mode": ("nearest", "cubic")},
    "AveragePool": {"count_include_pad": (0, 1), "ceil_mode": (1,)},
    "MaxPool": {"ceil_mode": (1,)},
    "GRU": {"linear_before_reset": (0,), "direction": ("reverse",)},
    "LSTM": {"input_forget": (1,)},
    "Gelu": {"approximate": ("tanh",)},
    "CumSum": {"exclusive": (1,), "reverse": (1,)},
    "TopK": {"largest": (0,)},
    "ArgMax": {"select_last_index": (1,), "keepdims": (1,)},
    "Gemm": {"transB": (0, 1), "beta": (0.0,)},
    "ScatterND": {"reduction": ("none", "max")},
    "Mod": {"fmod": (1,)},
    "Softmax": {"axis": (0, 1)},
    "LayerNormalization": {"epsilon": (1e-12, 1e-3)},
    "Reshape": {"allowzero": (1,)},
    "Cast": {"saturate": (0,)},
    "Elu": {"alpha": (0.5,)},
    "HardSigmoid": {"alpha": (0.5,)},
    "Conv": {"auto_pad": ("SAME_UPPER", "SAME_LOWER")},
    "ReduceMean": {"keepdims": (0, 1)},
    "ReduceSum": {"keepdims": (0, 1)},
    "ReduceMax": {"keepdims": (0, 1)},
}

AXES_INPUT = {
    "ReduceSum": 1,
    "ReduceMean": 1,
    "ReduceMax": 1,
    "ReduceMin": 1,
    "ReduceL2": 1,
    "Squeeze": 1,
    "Unsqueeze": 1,
    "Slice": 3,
    "CumSum": 1,
}


def operator_swapped(model: ir.Model, know: Know) -> Proposals:
    for i, node in enumerate(nodes(model)):
        for other in SWAPS.get(node.op_type, ()):

            def edit(node: ir.Node = node, other: str = other) -> None:
                keep = ("axis", "axes", "keepdims", "kernel_shape", "pads", "strides", "ceil_mode")
                for name in [n for n in node.attributes if n not in keep]:
                    del node.attributes[name]
                if other == "Identity":
                    node.resize_inputs(1)
                node.op_type = other

            yield f"{i}.{node.op_type}->{other}", edit
        if node.op_type in ("Sub", "Div", "Concat", "Less", "Greater", "Pow") or node.op_type == "MatMul":

            def turn(node: ir.Node = node) -> None:
                first, second = node.inputs[0], node.inputs[1]
                node.replace_input_with(0, second)
                node.replace_input_with(1, first)

            if len(node.inputs) > 1:
                yield f"{i}.{node.op_type} turned", turn
        if node.op_type in ("Add", "Mul", "Sub", "Div"):
            for j in (0, 1):

                def drop(node: ir.Node = node, j: int = j) -> None:
                    node.replace_input_with(0, node.inputs[j])
                    node.resize_inputs(1)
                    node.op_type = "Identity"

                yield f"{i}.{node.op_type} only {j}", drop


def attribute_off(model: ir.Model, know: Know) -> Proposals:
    for i, node in enumerate(nodes(model)):
        for name, attribute in list(node.attributes.items()):
            if name in ("axis", "axes", "perm", "to", "keepdims"):
                continue
            value = attribute.value
            for step in (1, -1):
                if attribute.type is ir.AttributeType.INT:
                    yield f"{i}.{node.op_type}.{name}{step:+}", _setter(node, name, value + step)
                elif attribute.type is ir.AttributeType.INTS:
                    for k in range(len(value)):
                        moved = [v + step * (k == n) for n, v in enumerate(value)]
                        yield f"{i}.{node.op_type}.{name}[{k}]{step:+}", _setter(node, name, moved)
                elif attribute.type is ir.AttributeType.FLOAT:
                    yield f"{i}.{node.op_type}.{name}×{1 + step / 10:g}", _setter(node, name, value * (1 + step / 10))
        for j, given in enumerate(node.inputs):
            fixed = None if given is None or computed(given) else know.of(given)
            if fixed is None or fixed.dtype not in (np.int64, np.int32) or not 0 < fixed.size <= 6:
                continue
            if AXES_INPUT.get(node.op_type) == j:
                continue
            for k in range(fixed.size):
                for step in (1, -1):
                    moved = fixed.copy()
                    moved.reshape(-1)[k] += step

                    def edit(node: ir.Node = node, j: int = j, moved: np.ndarray = moved) -> None:
                        set_constant(model, node, j, moved)

                    yield f"{i}.{node.op_type}.in{j}[{k}]{step:+}", edit


def _setter(node: ir.Node, name: str, value: object) -> Edit:
    return lambda: set_attribute(node, name, value)


def axis_changed(model: ir.Model, know: Know) -> Proposals:
    for i, node in enumerate(nodes(model)):
        if "axis" in node.attributes:
            old = node.attributes["axis"].as_int()
            for new in sorted({old - 1, old + 1, 0, 1} - {old}):
                yield f"{i}.{node.op_type}.axis={new}", _setter(node, "axis", new)
        if "perm" in node.attributes:
            perm = list(node.attributes["perm"].as_ints())
            for a, b in combinations(range(len(perm)), 2):
                swapped = list(perm)
                swapped[a], swapped[b] = perm[b], perm[a]
                yield f"{i}.Transpose.perm={swapped}", _setter(node, "perm", swapped)
        place = AXES_INPUT.get(node.op_type)
        axes = know.of(node.inputs[place]) if place is not None and len(node.inputs) > place else None
        if axes is None or axes.dtype != np.int64:
            continue
        for k in range(axes.size):
            for new in sorted({-1, 0, 1, 2} - set(axes.reshape(-1).tolist())):
                moved = axes.copy()
                moved.reshape(-1)[k] = new

                def edit(node: ir.Node = node, place: int = place or 0, moved: np.ndarray = moved) -> None:
                    set_constant(model, node, place, moved)

                yield f"{i}.{node.op_type}.axes[{k}]={new}", edit


def outputs_permuted(model: ir.Model, know: Know) -> Proposals:
    graph = model.graph
    for a, b in permutations(range(len(graph.outputs)), 2):
        if a < b and graph.outputs[a].dtype == graph.outputs[b].dtype:

            def swap(a: int = a, b: int = b) -> None:
                first, second = graph.outputs[a], graph.outputs[b]
                first.name, second.name = second.name, first.name
                graph.outputs[a], graph.outputs[b] = second, first

            yield f"outputs {a},{b} swapped", swap
    for i in range(len(graph.outputs)):
        rank = len(graph.outputs[i].shape or ())
        for axis in range(rank):
            flip = lambda c, v, axis=axis: c("Slice", v, [-1], [-(2**60)], [axis], [-1])  # noqa: E731
            yield f"output {i} reversed along {axis}", lambda i=i, f=flip: replace_output(model, i, f)  # type: ignore[misc]
            roll = lambda c, v, axis=axis: c(  # noqa: E731
                "Concat", c("Slice", v, [-1], [2**60], [axis]), c("Slice", v, [0], [-1], [axis]), axis=axis
            )
            yield f"output {i} rolled along {axis}", lambda i=i, f=roll: replace_output(model, i, f)  # type: ignore[misc]
    for a, b in combinations(range(len(graph.inputs)), 2):
        if know.spec[a].dtype == know.spec[b].dtype and str(know.spec[a].shape) == str(know.spec[b].shape):

            def exchange(a: int = a, b: int = b) -> None:
                first, second = graph.inputs[a], graph.inputs[b]
                uses = [(n, j, second) for n, j in first.uses()] + [(n, j, first) for n, j in second.uses()]
                for node, j, value in uses:
                    node.replace_input_with(j, value)

            yield f"inputs {a},{b} exchanged", exchange


def branch_frozen(model: ir.Model, know: Know) -> Proposals:
    for i, node in enumerate(nodes(model)):
        if node.op_type == "If":
            for way in (True, False):
                yield f"{i}.If always {way}", lambda n=node, w=way: set_constant(model, n, 0, np.array(w))  # type: ignore[misc]
        if node.op_type == "Where":
            for op, way in (("Or", True), ("And", False)):

                def edit(node: ir.Node = node, op: str = op, way: bool = way) -> None:
                    node.replace_input_with(0, before(model, node)(op, node.inputs[0], np.array(way)))

                yield f"{i}.Where always {way}", edit
        if node.op_type in ("Clip", "Relu", "Abs", "Max", "Min"):

            def skip(node: ir.Node = node) -> None:
                node.attributes.clear()
                node.resize_inputs(1)
                node.op_type = "Identity"

            yield f"{i}.{node.op_type} skipped", skip
        if node.op_type == "Loop":
            trips = know.of(node.inputs[0])
            if trips is not None:
                yield f"{i}.Loop of {int(trips)}", lambda n=node, t=trips: set_constant(model, n, 0, t)  # type: ignore[misc]
            for op in ("Sub", "Add"):

                def fewer(node: ir.Node = node, op: str = op) -> None:
                    one = constant(model, np.array(1, np.int64))
                    node.replace_input_with(0, before(model, node)(op, node.inputs[0], one))

                yield f"{i}.Loop {op} 1", fewer
    for label, node, j in edges(model):
        seen = know.of(node.inputs[j])
        if seen is not None and seen.dtype == bool and seen.size == 1 and node.op_type != "If":
            yield f"{label} decided", lambda n=node, j=j, s=seen: set_constant(model, n, j, s)  # type: ignore[misc]


def opset_mixed(model: ir.Model, know: Know) -> Proposals:
    now = model.graph.opset_imports[""]
    for version in range(7, 24):
        if version != now:
            yield f"opset {version}", lambda v=version: model.graph.opset_imports.update({"": v})  # type: ignore[misc]
    for i, node in enumerate(nodes(model)):
        for name, values in SEMANTICS.get(node.op_type, {}).items():
            for value in values:
                yield f"{i}.{node.op_type}.{name}={value}", _setter(node, name, value)
        if node.op_type == "Softmax":

            def flatten(node: ir.Node = node) -> None:
                """Give Softmax its meaning before opset 13: over everything from the axis on, here axis 1."""
                chain = before(model, node)
                given = node.inputs[0]
                assert given is not None
                flat = chain("Softmax", chain("Flatten", given, axis=1), axis=1)
                made = chain("Reshape", flat, chain("Shape", given))
                node.op_type, node.attributes = "Identity", {}  # type: ignore[misc,assignment]
                node.replace_input_with(0, made)

            yield f"{i}.Softmax of opset 12", flatten
