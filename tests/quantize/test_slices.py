"""A path through the slices gives the numbers of the file it stands for.

Not to the last bit: a runtime fuses less in a part than in the whole, and float sums then have another order.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.quantize.nets import convnet, floats, mlp, ready, recurrent, save, turned

from fairway.tune.quantize.accuracy import Session
from fairway.tune.quantize.error_metrics import Array, compare
from fairway.tune.quantize.schemes import make
from fairway.tune.quantize.slices import Sliced

NETS: dict[str, tuple[Callable[[Path], Path], dict[str, tuple[int, int]]]] = {
    "mlp": (mlp, {"batch": (1, 4)}),
    "turned": (turned, {"batch": (1, 4)}),
    "convnet": (convnet, {"batch": (1, 4)}),
    "recurrent": (recurrent, {"time": (2, 9), "batch": (1, 3)}),
}


def same(right: list[Array], candidate: list[Array]) -> bool:
    """Far closer than bytes are to floats, where the drop is above 1e-5 in these nets."""
    names = [str(number) for number in range(len(right))]
    return compare(names, right, candidate).drop("sqnr") < 1e-11


@pytest.mark.parametrize("name", NETS)
def test_every_mix_is_the_file_it_stands_for(name: str, tmp_path: Path) -> None:
    net, bounds = NETS[name]
    making, samples = ready(net(tmp_path / "net.onnx"), tmp_path / "work", **bounds)
    sliced = Sliced(making)
    names = [unit.name for unit in sliced.units]
    assert names == [unit.name for unit in making.prepared.units]
    mixes = [[], names[:1], names[1:], *([n for n in names if n != one] for one in names)]
    for keep in mixes:
        file = Session(make("int8-static", making, keep).path)
        for sample in samples.held_back:
            assert same(file(sample), sliced.mixed(sample, keep)), keep
    for sample in samples.held_back:
        assert same(Session(tmp_path / "net.onnx")(sample), sliced.mixed(sample, names))


@pytest.mark.parametrize("quantised", [False, True])
def test_a_trial_from_a_cut_is_the_mix_from_the_beginning(quantised: bool, tmp_path: Path) -> None:
    making, samples = ready(convnet(tmp_path / "net.onnx"), tmp_path / "work")
    sliced = Sliced(making)
    names = [unit.name for unit in sliced.units]
    sample = samples.typical
    cuts = sliced.cuts(sample, quantised)
    for place, one in enumerate(sliced.slices):
        if one.unit is not None:
            keep = [one.unit.name] if quantised else [n for n in names if n != one.unit.name]
            assert np.array_equal(sliced.toggled(cuts, {place}, quantised)[0], sliced.mixed(sample, keep)[0])


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
    making, samples = ready(path, tmp_path / "work")
    sliced = Sliced(making)
    assert len(sliced.units) == 3
    right = Session(path)(samples.typical)
    assert same(right, sliced.mixed(samples.typical, ["first", "second", "third"]))
