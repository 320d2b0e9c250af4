"""Mutations of what the graph holds or hands on: weights, baked constants, masks, state, dims, casts."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx_ir as ir
from graph import Know, before, computed, edges, nodes, set_constant
from structural import Proposals

from fairway.model.spec import TensorSpec

SHAPE_INPUTS = {
    "Reshape": (1,),
    "Expand": (1,),
    "ConstantOfShape": (0,),
    "Tile": (1,),
    "Range": (0, 1, 2),
    "Slice": (1, 2),
    "Pad": (1,),
    "Resize": (3,),
    "Loop": (0,),
    "Split": (1,),
}
MOST_BAKED = 2000


def weight_perturbed(model: ir.Model, know: Know) -> Proposals:
    """By 1e-2 or 1e-3 of the tensor's scale: one element, one row, or all of it."""
    held = [(n, v) for n, v in model.graph.initializers.items() if v.const_value is not None]
    for name, value in held:
        tensor = value.const_value
        if tensor is None or not tensor.dtype.is_floating_point() or tensor.size == 0:
            continue
        for scale, where in product((1e-2, 1e-3), ("one", "one again", "row", "row again", "all")):

            def edit(value: ir.Value = value, scale: float = scale, where: str = where, name: str = name) -> None:
                old = value.const_value
                assert old is not None
                rng = np.random.default_rng(list(f"{name}{where}".encode()))
                wide = old.numpy().astype(np.float64)
                hit = np.zeros(wide.shape, bool)
                flat = hit.reshape(-1) if "one" in where or wide.ndim < 2 else hit.reshape(wide.shape[0], -1)
                flat[... if where == "all" else int(rng.integers(len(flat)))] = True
                sign = rng.choice([-1.0, 1.0], wide.shape)
                moved = wide + hit * sign * scale * np.abs(wide).max()
                value.const_value = ir.tensor(moved.astype(old.numpy().dtype), dtype=old.dtype)

            yield f"{name} {where} {scale:g}", edit


def constant_baked(model: ir.Model, know: Know) -> Proposals:
    """A computed value becomes what it was at the example."""
    for label, node, j in edges(model):
        seen = know.of(node.inputs[j])
        value = node.inputs[j]
        if seen is None or seen.size > MOST_BAKED or value is None or value.is_graph_input():
            continue
        yield label, lambda n=node, j=j, s=seen: set_constant(model, n, j, s)  # type: ignore[misc]
        if seen.dtype.kind == "f" and seen.size > 1 and seen.ndim > 1:
            mean = seen.astype(np.float64).mean(0, keepdims=True).astype(seen.dtype)
            if mean.size <= 64:

                def settle(node: ir.Node = node, j: int = j, mean: np.ndarray = mean) -> None:
                    chain = before(model, node)
                    zero = chain("Mul", node.inputs[j], np.zeros((), mean.dtype))
                    if all(n == 1 for n in mean.shape[1:-1]):
                        node.replace_input_with(j, chain("Add", zero, mean))

                yield f"{label} mean row", settle


def mask_lost(model: ir.Model, know: Know) -> Proposals:
    """A condition inverted or made constant; an input that says what counts, ignored."""
    for label, node, j in edges(model):
        seen = know.of(node.inputs[j])
        if seen is None or seen.dtype != bool:
            continue
        for op, extra in (("Not", ()), ("Or", (np.array(True),)), ("And", (np.array(False),))):

            def edit(node: ir.Node = node, j: int = j, op: str = op, extra: tuple[object, ...] = extra) -> None:
                node.replace_input_with(j, before(model, node)(op, node.inputs[j], *extra))

            yield f"{label} {op}", edit
    for index, spec in enumerate(know.spec):
        if not (spec.values.mask or spec.values.lengths):
            continue
        for node, j in list(model.graph.inputs[index].uses()):
            for way in ("all kept", "inverted", "first row", "shifted"):

                def ignore(node: ir.Node = node, j: int = j, way: str = way, spec: TensorSpec = spec) -> None:
                    chain = before(model, node)
                    value = node.inputs[j]
                    number = chain("Cast", value, to=7)
                    if way == "all kept":
                        keep = 0 if str(spec.values.mask).startswith("padding") else 1
                        made = chain("Add", chain("Mul", number, np.int64(0)), np.int64(keep))
                        if spec.values.lengths:
                            longest = chain("ReduceMax", number, keepdims=1)
                            made = chain("Add", chain("Mul", number, np.int64(0)), longest)
                    elif way == "inverted":
                        made = chain("Sub", np.int64(1), number)
                    elif way == "first row":
                        first = chain("Slice", number, [0], [1], [0])
                        made = chain("Expand", first, chain("Shape", number))
                    else:
                        tail, head = chain("Slice", number, [-1], [9999], [-1]), chain("Slice", number, [0], [-1], [-1])
                        made = chain("Concat", tail, head, axis=-1)
                    target = {"bool": 9, "int64": 7}[spec.dtype]
                    node.replace_input_with(j, chain("Cast", made, to=target))

                yield f"{spec.name} at {node.op_type}.{j} {way}", ignore


def state_dropped(model: ir.Model, know: Know) -> Proposals:
    """Replace a state that is carried on by zero, by half of it, or by its value one step before."""
    for i, node in enumerate(nodes(model)):
        if node.op_type in ("GRU", "LSTM", "RNN"):
            for j in (5, 6):
                if len(node.inputs) > j and computed(node.inputs[j]):
                    for factor in (0.0, 0.5):

                        def edit(node: ir.Node = node, j: int = j, factor: float = factor) -> None:
                            node.replace_input_with(j, before(model, node)("Mul", node.inputs[j], np.float32(factor)))

                        yield f"{i}.{node.op_type}.{j}×{factor:g}", edit
        if node.op_type in ("Loop", "Scan"):
            body = node.attributes["body"].as_graph()
            skip = 2 if node.op_type == "Loop" else 0
            for k in range(min(len(body.inputs) - skip, len(body.outputs) - (skip > 0))):

                def stay(body: ir.Graph = body, k: int = k, skip: int = skip) -> None:
                    same = ir.node("Identity", [body.inputs[skip + k]])
                    same.outputs[0].name = "planted_state"
                    same.outputs[0].type = body.outputs[k + (skip > 0)].type
                    body.append(same)
                    body.outputs[k + (skip > 0)] = same.outputs[0]

                yield f"{i}.{node.op_type} state {k} stays", stay
    for index, value in enumerate(model.graph.inputs):
        dtype = know.spec[index].dtype
        if not dtype.startswith("float"):
            continue
        for node, j in list(value.uses()):
            for factor in (0.0, 0.5, 1.01):

                def fade(node: ir.Node = node, j: int = j, factor: float = factor, dtype: str = dtype) -> None:
                    by = np.asarray(factor, dtype)
                    node.replace_input_with(j, before(model, node)("Mul", node.inputs[j], by))

                yield f"{value.name} at {node.op_type}.{j}×{factor:g}", fade
            if len(know.spec[index].shape) > 1:

                def earlier(node: ir.Node = node, j: int = j) -> None:
                    chain = before(model, node)
                    given = node.inputs[j]
                    tail, head = chain("Slice", given, [-1], [9999], [1]), chain("Slice", given, [0], [-1], [1])
                    node.replace_input_with(j, chain("Concat", tail, head, axis=1))

                yield f"{value.name} at {node.op_type}.{j} a step late", earlier


def dim_fixed(model: ir.Model, know: Know) -> Proposals:
    """A size that the graph computes is the example's; a declared size is a number."""
    for i, node in enumerate(nodes(model)):
        for j in SHAPE_INPUTS.get(node.op_type, ()):
            value = node.inputs[j] if len(node.inputs) > j else None
            seen = know.of(value)
            if value is None or seen is None or seen.dtype != np.int64:
                continue
            label = f"{i}.{node.op_type}.{j}"
            if computed(value):
                yield label, lambda n=node, j=j, s=seen: set_constant(model, n, j, s)  # type: ignore[misc]
                for k in range(seen.size if seen.ndim and seen.size > 1 else 0):

                    def pin(node: ir.Node = node, j: int = j, k: int = k, seen: np.ndarray = seen) -> None:
                        chain, one = before(model, node), np.eye(seen.size, dtype=np.int64)[k]
                        node.replace_input_with(j, chain("Add", chain("Mul", node.inputs[j], 1 - one), one * seen))

                    yield f"{label}[{k}]", pin
            elif node.op_type == "Reshape" and (seen == -1).any():
                real = know.of(node.outputs[0])
                if real is not None and real.ndim == seen.size:
                    whole = np.where(seen == -1, real.shape, seen)
                    yield f"{label} -1", lambda n=node, j=j, s=whole: set_constant(model, n, j, s)  # type: ignore[misc]
    for label, node, j in edges(model):
        given = node.inputs[j]
        source = given.producer() if given is not None else None
        if source is not None and source.op_type in ("Shape", "Size"):
            seen = know.of(given)
            if seen is not None:
                yield f"{label} shape", lambda n=node, j=j, s=seen: set_constant(model, n, j, s)  # type: ignore[misc]
    for value, spec in zip(model.graph.inputs, know.spec, strict=True):
        for axis, size in enumerate(spec.shape):
            if size.names:

                def declare(value: ir.Value = value, axis: int = axis, n: int = size.at(know.example)) -> None:
                    assert value.shape is not None
                    value.shape = ir.Shape([n if a == axis else d for a, d in enumerate(value.shape)])

                yield f"{spec.name} axis {axis} declared", declare


NARROW = {"float32": (10, 16, 6), "float16": (16, 17), "int64": (3, 5, 2), "int32": (3, 2)}
"""ONNX dtype numbers: 10 float16, 16 bfloat16, 17 float8, 6 int32, 3 int8, 5 int16, 2 uint8."""
BACK = {"float32": 1, "float16": 10, "int64": 7, "int32": 6}


def cast_narrowed(model: ir.Model, know: Know) -> Proposals:
    """A value goes through a narrower dtype on its way."""
    for label, node, j in edges(model):
        seen = know.of(node.inputs[j])
        for to in NARROW.get(str(seen.dtype), ()) if seen is not None else ():

            def edit(node: ir.Node = node, j: int = j, to: int = to, back: int = BACK[str(seen.dtype)]) -> None:
                chain = before(model, node)
                node.replace_input_with(j, chain("Cast", chain("Cast", node.inputs[j], to=to), to=back))

            yield f"{label} via {ir.DataType(to).name}", edit
