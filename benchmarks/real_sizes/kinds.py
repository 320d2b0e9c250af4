"""Kinds of planted errors, each drawn at a random place of the scene.

A kind edits the graph and returns a label of the place, or None if the file has no place for it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import torch
from places import KINDS_OF_PLACES
from scene import Chain, Scene, is_float, read_array, read_shape

Kind = Callable[[Scene], str | None]

EPSILONS = (1e-12, 1e-8, 1e-6, 1e-5, 1e-3)
SMALL_FACTOR = 1.001
LAYER_FACTORS = (1.0003, 1.001, 1.01)


def change_epsilon(scene: Scene) -> str | None:
    norms = [node for node in scene.model.graph if "epsilon" in node.attributes]
    if not norms:
        return _change_folded_epsilon(scene)
    node = scene.rng.choice(norms)
    old = node.attributes["epsilon"].as_float()
    new = scene.rng.choice([epsilon for epsilon in EPSILONS if not 0.2 < epsilon / old < 5])
    node.attributes["epsilon"] = ir.AttrFloat32("epsilon", new)
    return f"{node.outputs[0].name}: {old:.0e} -> {new:.0e}"


def _change_folded_epsilon(scene: Scene) -> str | None:
    """A batch norm that the exporter folded into its convolution is folded again with another epsilon."""
    modules = dict(scene.source.named_modules())
    folded = {
        name: name.removesuffix("convolution.weight") + "normalization" for name in scene.model.graph.initializers
    }
    pairs = [
        (name, modules[norm]) for name, norm in folded.items() if isinstance(modules.get(norm), torch.nn.BatchNorm2d)
    ]
    if not pairs:
        return None
    name, norm = scene.rng.choice(pairs)
    new = scene.rng.choice([1e-3, 1e-2])
    variance = norm.running_var.numpy()
    factor = np.sqrt((variance + norm.eps) / (variance + new)).astype(np.float32)
    weight, bias = scene.model.graph.initializers[name], scene.model.graph.initializers[f"{name}_bias"]
    beta = norm.bias.detach().numpy()
    scene.replace_weight(weight, read_array(weight) * factor[:, None, None, None])
    scene.replace_weight(bias, beta + (read_array(bias) - beta) * factor)
    return f"{name}: batch norm {norm.eps:.0e} -> {new:.0e}"


def scale_part(scene: Scene) -> str | None:
    """One attention head, or one eighth of a convolution's channels, times 1.001."""
    heads = [value for value in scene.inner_values("MatMul") if _comes_from_softmax(value)]
    channels = scene.inner_values("Conv", "ConvTranspose")
    value = scene.pick(heads or channels)
    if value is None or value.shape is None:
        return None
    count = int(str(value.shape[1]))
    width = 1 if heads else max(1, count // 8)
    start = scene.rng.randrange(0, count - width + 1)
    factors = np.ones([1, count] + [1] * (len(value.shape) - 2), np.float32)
    factors[:, start : start + width] = SMALL_FACTOR
    scene.insert_after(value, lambda chain: chain("Mul", value, factors))
    return f"{value.name}: {start}..{start + width - 1} of {count}"


def _comes_from_softmax(value: ir.Value) -> bool:
    node = value.producer()
    source = node.inputs[0].producer() if node is not None and node.inputs[0] is not None else None
    if source is not None and source.op_type == "Where":
        source = next((v.producer() for v in source.inputs[1:] if v is not None and v.producer() is not None), None)
    return source is not None and source.op_type == "Softmax"


def shift_row(scene: Scene) -> str | None:
    """One row of a weight is off by 1e-3 of its values."""
    return _edit_rows(scene, lambda array, i, j: array.__setitem__(i, array[i] * np.float32(SMALL_FACTOR)))


def swap_rows(scene: Scene) -> str | None:
    return _edit_rows(scene, lambda array, i, j: array.__setitem__([i, j], array[[j, i]]))


def _edit_rows(scene: Scene, edit: Callable[[np.ndarray, int, int], None]) -> str | None:
    value = scene.pick([value for value in scene.weights() if read_shape(value)[0] > 1])
    if value is None:
        return None
    array = read_array(value)
    i, j = scene.rng.sample(range(len(array)), 2)
    lookup = next((user for user, place in value.uses() if user.op_type == "Gather" and place == 0), None)
    if lookup is not None and lookup.inputs[1] is not None and lookup.inputs[1].is_graph_input():
        scene.required_ids[str(lookup.inputs[1].name)] = i
    edit(array, i, j)
    scene.replace_weight(value, array)
    return f"{value.name}[{i}]"


def transpose_square(scene: Scene) -> str | None:
    value = scene.pick([value for value in scene.weights() if read_shape(value)[0] == read_shape(value)[1] > 1])
    if value is None:
        return None
    scene.replace_weight(value, np.swapaxes(read_array(value), 0, 1))
    return str(value.name)


def drop_bias(scene: Scene) -> str | None:
    value = scene.pick(scene.biases())
    if value is None:
        return None
    scene.replace_weight(value, np.zeros_like(read_array(value)))
    return str(value.name)


def round_weight(scene: Scene) -> str | None:
    """One weight went through float16."""
    value = scene.pick(scene.weights())
    if value is None:
        return None
    scene.replace_weight(value, read_array(value).astype(np.float16).astype(np.float32))
    return str(value.name)


def scale_layer(scene: Scene) -> str | None:
    value = scene.pick(scene.inner_values("MatMul", "Conv", "ConvTranspose", "Add", "LayerNormalization"))
    if value is None or (value.type is not None and value.type.dtype != ir.DataType.FLOAT):
        return None
    factor = scene.rng.choice(LAYER_FACTORS)
    scene.insert_after(value, lambda chain: chain("Mul", value, np.float32(factor)))
    return f"{value.name} × {factor}"


def change_activation(scene: Scene) -> str | None:
    """GELU by tanh for erf; a ReLU with a slope of 0.001 below zero; a piecewise linear sigmoid."""
    node = scene.pick(scene.nodes("Gelu", "Relu", "Sigmoid"))
    if node is None:
        return None
    source = node.inputs[0]
    if node.op_type == "Gelu":
        node.attributes["approximate"] = ir.AttrString("approximate", "tanh")
        return f"{node.outputs[0].name}: tanh"
    op, attributes = ("LeakyRelu", {"alpha": 0.001}) if node.op_type == "Relu" else ("HardSigmoid", {"alpha": 1 / 6})
    value = node.outputs[0]
    scene.insert_after(value, lambda chain: chain(op, source, **attributes))
    return f"{value.name}: {op}"


def change_reduction(scene: Scene) -> str | None:
    """Softmax along the axis before the last; the mean for the maximum in a pooling."""
    node = scene.pick(scene.nodes("Softmax") or scene.nodes("MaxPool"))
    if node is None:
        return None
    value = node.outputs[0]
    if node.op_type == "Softmax":
        node.attributes["axis"] = ir.AttrInt64("axis", -2)
        return f"{value.name}: axis -2"
    kept = {name: node.attributes[name].value for name in ("kernel_shape", "pads", "strides")}
    scene.insert_after(value, lambda chain: chain("AveragePool", node.inputs[0], **kept))
    return f"{value.name}: AveragePool"


def change_constant(scene: Scene) -> str | None:
    """A scalar factor of the graph, such as the scale of attention, times 1.001."""
    scalars = [
        (node, place)
        for node in scene.nodes("Mul")
        for place, value in enumerate(node.inputs)
        if value is not None and value.is_initializer() and is_float(value) and np.prod(read_shape(value)) == 1
    ]
    found = scene.pick(scalars)
    if found is None:
        return None
    node, place = found
    value = node.inputs[place]
    assert value is not None
    changed = Chain(scene.model, scene.model.graph, node)("Mul", value, np.float32(SMALL_FACTOR))
    node.replace_input_with(place, changed)
    return f"{node.outputs[0].name}: factor × {SMALL_FACTOR}"


KINDS: dict[str, Kind] = {
    "epsilon": change_epsilon,
    "head or channel group × 1.001": scale_part,
    "weight row off by 1e-3": shift_row,
    "bias dropped": drop_bias,
    **KINDS_OF_PLACES,
    "weight rows swapped": swap_rows,
    "square matrix transposed": transpose_square,
    "weight rounded to float16": round_weight,
    "layer scaled": scale_layer,
    "other activation": change_activation,
    "other axis or pooling": change_reduction,
    "constant × 1.001": change_constant,
}
