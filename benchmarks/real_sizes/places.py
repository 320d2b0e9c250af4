"""Kinds of planted errors that depend on a position: masks, borders, tables of positions, parts beyond a size."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
from scene import Chain, Scene, is_float, read_array, read_shape

OUTSIDE_FACTOR = 0.99


def ignore_mask_beyond(scene: Scene) -> str | None:
    """From half of the longest sequence on, such as 256 of 512, or from a random later place, nothing is masked."""
    mask = next((value for value in scene.model.graph.inputs if "mask" in str(value.name)), None)
    if mask is None or mask.shape is None:
        return None
    longest = scene.largest_size(mask.shape[1])
    assert longest is not None
    limit = scene.rng.choice([longest // 2, scene.rng.randrange(longest // 4, longest * 7 // 8)])

    def open_mask(chain: Chain) -> ir.Value:
        return chain("Where", _is_beyond(chain, mask, 1, limit), np.int64(1), mask)

    scene.insert_after(mask, open_mask)
    return f"{mask.name} from {limit}"


def weaken_mask(scene: Scene) -> str | None:
    """Masked scores get a finite number instead of minus infinity, in one layer."""
    if not any("mask" in str(value.name) for value in scene.model.graph.inputs):
        return None
    places = [
        (node, place)
        for node in scene.nodes("Where")
        for place, value in enumerate(node.inputs)
        if value is not None and value.is_initializer() and is_float(value) and float(read_array(value).min()) < -1e4
    ]
    found = scene.pick(places)
    if found is None:
        return None
    node, place = found
    fill = scene.rng.choice([-5.0, -8.0])
    chain = Chain(scene.model, scene.model.graph, node)
    node.replace_input_with(place, chain("Identity", np.float32(fill)))
    return f"{node.outputs[0].name}: {fill:g} for minus infinity"


def change_beyond(scene: Scene) -> str | None:
    """One layer's output is 1% too small beyond a place along the batch, the sequence, the height or the width."""
    values = scene.inner_values("Add", "LayerNormalization", "Conv", "Gelu", "Relu", "ReduceMean")
    candidates = []
    for value in values:
        shape = value.shape
        if (
            shape is None
            or value.dtype != ir.DataType.FLOAT
            or len(shape) not in (3, 4)
            or "batch" not in str(shape[0])
        ):
            continue
        axes = (0, 1) if len(shape) == 3 else (0, 2, 3)
        sizes = [(axis, scene.largest_size(shape[axis])) for axis in axes]
        candidates += [(value, axis, size) for axis, size in sizes if size is not None and size > 3]
    found = scene.pick(candidates)
    if found is None:
        return None
    value, axis, size = found
    limit = scene.rng.randrange(size // 2, max(size // 2 + 1, size * 7 // 8))

    def shrink(chain: Chain) -> ir.Value:
        rank = len(value.shape)
        beyond = _is_beyond(chain, value, axis, limit)
        factors = chain("Where", beyond, np.float32(OUTSIDE_FACTOR), np.float32(1.0))
        shape = [1] * rank
        shape[axis] = -1
        return chain("Mul", value, chain("Reshape", factors, np.array(shape)))

    scene.insert_after(value, shrink)
    return f"{value.name}: axis {axis} from {limit} of {size}"


def _is_beyond(chain: Chain, value: ir.Value, axis: int, limit: int) -> ir.Value:
    """One bool for each place along the axis."""
    length = chain("Gather", chain("Shape", value), np.int64(axis))
    return chain("GreaterOrEqual", chain("Range", np.int64(0), length, np.int64(1)), np.int64(limit))


def change_border(scene: Scene) -> str | None:
    """A convolution pads with the outermost values instead of zeros."""
    node = scene.pick([node for node in scene.nodes("Conv") if any(node.attributes["pads"].as_ints())])
    if node is None:
        return None
    pads = list(node.attributes["pads"].as_ints())
    half = len(pads) // 2
    every = np.array([0, 0, *pads[:half], 0, 0, *pads[half:]])
    chain = Chain(scene.model, scene.model.graph, node)
    node.replace_input_with(0, chain("Pad", node.inputs[0], every, mode="edge"))
    node.attributes["pads"] = ir.AttrInt64s("pads", [0] * len(pads))
    return f"{node.outputs[0].name}: edge padding"


def shift_table(scene: Scene) -> str | None:
    """Positions are looked up one place off; a convolution's kernel is mirrored if the model has no positions."""
    tables = [
        value
        for value in scene.model.graph.initializers.values()
        if is_float(value)
        and len(read_shape(value)) in (2, 3)
        and read_shape(value)[-2] > 1
        and _is_position_table(value)
    ]
    kernels = [value for value in scene.weights(4) if read_shape(value)[-1] > 1]
    value = scene.pick(tables or kernels)
    if value is None:
        return None
    array = read_array(value)
    scene.replace_weight(value, np.roll(array, 1, axis=-2) if tables else array[..., ::-1])
    return f"{value.name}: {'shifted by one' if tables else 'mirrored'}"


def _is_position_table(value: ir.Value) -> bool:
    looked_up = any(user.op_type == "Gather" for user, _ in value.uses()) and "position" in str(value.name)
    return looked_up or any(user.op_type == "Add" for user, _ in value.uses())


KINDS_OF_PLACES: dict[str, Callable[[Scene], str | None]] = {
    "mask ignored beyond a position": ignore_mask_beyond,
    "mask too weak": weaken_mask,
    "wrong beyond a size or place": change_beyond,
    "border padded differently": change_border,
    "positions shifted or kernel mirrored": shift_table,
}
