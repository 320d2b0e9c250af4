"""A path through the slices gives the same numbers as the file of that mix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.quantize.nets import convnet, floats, mlp, ready, recurrent, save, turned

from fairway.tune.quantize.accuracy import OrtFile
from fairway.tune.quantize.error_metrics import Array, score_outputs
from fairway.tune.quantize.schemes import make_variant
from fairway.tune.quantize.slices import SlicedModel

NETS: dict[str, tuple[Callable[[Path], Path], dict[str, tuple[int, int]]]] = {
    "mlp": (mlp, {"batch": (1, 4)}),
    "turned": (turned, {"batch": (1, 4)}),
    "convnet": (convnet, {"batch": (1, 4)}),
    "recurrent": (recurrent, {"time": (2, 9), "batch": (1, 3)}),
}


def same(right: list[Array], candidate: list[Array]) -> bool:
    """Far closer than bytes are to floats, where the drop is above 1e-5 in these nets."""
    names = [str(number) for number in range(len(right))]
    return score_outputs(names, right, candidate).compute_drop("sqnr") < 1e-11


@pytest.mark.parametrize("name", NETS)
def test_every_mix_is_the_file_it_stands_for(name: str, tmp_path: Path) -> None:
    net, bounds = NETS[name]
    context, samples = ready(net(tmp_path / "net.onnx"), tmp_path / "work", **bounds)
    sliced = SlicedModel(context)
    names = [unit.name for unit in sliced.units]
    assert names == [unit.name for unit in context.prepared.units]
    mixes = [[], names[:1], names[1:], *([n for n in names if n != item] for item in names)]
    for keep in mixes:
        file = OrtFile(make_variant("int8-static", context, keep).path)
        for sample in samples.held_back:
            assert same(file(sample), sliced.run_mix(sample, keep)), keep
    for sample in samples.held_back:
        assert same(OrtFile(tmp_path / "net.onnx")(sample), sliced.run_mix(sample, names))


@pytest.mark.parametrize("quantized", [False, True])
def test_a_trial_from_a_cut_is_the_mix_from_the_beginning(quantized: bool, tmp_path: Path) -> None:
    context, samples = ready(convnet(tmp_path / "net.onnx"), tmp_path / "work")
    sliced = SlicedModel(context)
    names = [unit.name for unit in sliced.units]
    sample = samples.typical
    cuts = sliced.compute_cuts(sample, quantized)
    for place, item in enumerate(sliced.slices):
        if item.unit is not None:
            keep = [item.unit.name] if quantized else [n for n in names if n != item.unit.name]
            assert np.array_equal(sliced.run_toggled(cuts, {place}, quantized)[0], sliced.run_mix(sample, keep)[0])


def test_what_a_loop_reads_from_around_it_is_carried_over_the_cut(tmp_path: Path) -> None:
    """A branch reads a value that was made before the cut, by name alone."""
    path = mlp(tmp_path / "net.onnx")
    model = onnx.load(path)
    take = helper.make_graph([helper.make_node("Neg", ["r0"], ["n"])], "then", [], [floats("n", "batch", 3, 48)])
    other = helper.make_graph([helper.make_node("Abs", ["r0"], ["p"])], "else", [], [floats("p", "batch", 3, 48)])
    branch = helper.make_node("If", ["flag"], ["z"], "branch", then_branch=take, else_branch=other)
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    weights = {i.name: onnx.numpy_helper.to_array(i) for i in model.graph.initializer}
    path = save(
        path,
        [*model.graph.node, branch],
        weights,
        [floats("x", "batch", 3, 48), flag],
        [floats("y", "batch", 3, 48), floats("z", "batch", 3, 48)],
    )
    context, samples = ready(path, tmp_path / "work")
    sliced = SlicedModel(context)
    assert len(sliced.units) == 3
    right = OrtFile(path)(samples.typical)
    assert same(right, sliced.run_mix(samples.typical, ["first", "second", "third"]))
