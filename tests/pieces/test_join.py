"""One graph out of several: the right arm, shared weights and nodes, honest declarations."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from fairway.convert.pieces.join import CannotJoin, join_models
from fairway.convert.pieces.separate import Region
from fairway.model.dims import Size
from fairway.model.spec import TensorSpec

SPEC = [TensorSpec("x", "float32", (Size("time"), Size("4")))]
HEAD = '<ir_version: 10, opset_import: ["" : 18]> g (float[time,4] x) => ({out} y) {{ '
WEIGHTS = {"w": np.arange(16, dtype=np.float32).reshape(4, 4), "two": np.asarray(2, np.float32)}


def model(body, out="float[time,4]", weights=WEIGHTS):
    proto = onnx.parser.parse_model(HEAD.format(out=out) + body + " }")
    used = {name for node in proto.graph.node for name in node.input}
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(weights[n], n) for n in weights if n in used)
    return ir.from_proto(proto)


def run(joined, times):
    if joined.graph.outputs[0].shape is not None:  # onnx demands a shape, and there is none for several ranks
        onnx.checker.check_model(ir.to_proto(joined), full_check=True)
    session = onnxruntime.InferenceSession(ir.to_proto(joined).SerializeToString(), providers=["CPUExecutionProvider"])
    return [session.run(None, {"x": np.ones((time, 4), np.float32)})[0] for time in times]


def joined(models, *regions, fixed=None):
    chain = [Region(i, (tuple(text.split(" and ")),)) for i, text in enumerate(regions)]
    return join_models(models, [*chain, Region(len(regions), ())], SPEC, fixed or [{}] * len(models), {})


def test_each_size_takes_its_own_arm():
    bodies = ("h = MatMul(x, w) y = Mul(h, two)", "h = MatMul(x, w) y = Add(h, two)", "h = MatMul(x, w) y = Neg(h)")
    plain = np.ones((1, 4), np.float32) @ WEIGHTS["w"]
    whole = joined([model(body) for body in bodies], "time % 2 == 0", "time > 5")
    even, high, low = run(whole, (6, 7, 3))
    np.testing.assert_allclose(even[:1], plain * 2)
    np.testing.assert_allclose(high[:1], plain + 2)
    np.testing.assert_allclose(low[:1], -plain)


def test_what_all_arms_compute_is_computed_once_before_them():
    whole = joined([model("h = MatMul(x, w) y = Mul(h, two)"), model("h = MatMul(x, w) y = Neg(h)")], "time > 5")
    operators = [node.op_type for node in whole.graph]
    assert operators[0] == "MatMul"
    assert [node.op_type for node in whole.graph.all_nodes()].count("MatMul") == 1


def test_equal_weights_are_stored_once_and_others_are_kept_apart():
    other = {**WEIGHTS, "w": WEIGHTS["w"] + 1}
    body = "h = MatMul(x, w) y = Mul(h, two)"
    whole = joined([model(body), model(body, weights=other), model(body)], "time > 5", "time == 3")
    assert sorted(whole.graph.initializers) == ["two", "w", "w_piece1"]
    first, second, third = run(whole, (6, 3, 2))
    np.testing.assert_allclose(first[0] + 8, second[0])
    np.testing.assert_allclose(first[0], third[0])


def test_an_output_that_all_arms_share_is_given_by_each():
    body = "h = MatMul(x, w) y = Mul(h, two)"
    high, low = run(joined([model(body), model(body)], "time > 5"), (6, 3))
    np.testing.assert_allclose(high[0], low[0])


def test_arms_with_outputs_of_other_lengths_declare_a_name():
    short = model(
        "one = Constant<value_ints=[1]>() zero = Constant<value_ints=[0]>() y = Slice(x, zero, one)", "float[1,4]"
    )
    whole = joined([short, model("y = Neg(x)")], "time > 5")
    assert [str(dim) for dim in whole.graph.outputs[0].shape] == ["y_0", "4"]
    assert [one.shape for one in run(whole, (9, 3))] == [(1, 4), (3, 4)]


def test_a_number_that_a_fixed_dim_explains_keeps_the_name():
    whole = joined([model("y = Neg(x)", "float[1,4]"), model("y = Abs(x)")], "time == 1", fixed=[{"time": 1}, {}])
    assert str(whole.graph.outputs[0].shape[0]) == "time"


def test_arms_with_outputs_of_other_ranks_declare_none():
    flat = model("minus = Constant<value_ints=[-1]>() y = Reshape(x, minus)", "float[n]")
    whole = joined([flat, model("y = Neg(x)")], "time > 5")
    assert whole.graph.outputs[0].shape is None
    assert [one.ndim for one in run(whole, (9, 3))] == [1, 2]


def test_arms_with_outputs_of_other_dtypes_are_refused():
    with pytest.raises(CannotJoin, match="FLOAT in one region of sizes and INT64"):
        joined([model("y = Neg(x)"), model("y = Cast<to=7>(x)", "int64[time,4]")], "time > 5")


def test_captures_in_other_opsets_are_refused():
    newer = model("y = Neg(x)")
    newer.graph.opset_imports[""] = 20
    with pytest.raises(CannotJoin, match="opsets 18 and 20"):
        joined([model("y = Neg(x)"), newer], "time > 5")


def test_an_if_inside_an_arm_keeps_its_own_names():
    body = (
        "n = Size(x) eight = Constant<value_int=8>() many = Greater(n, eight) "
        "y = If(many) <then_branch = a () => (float[time,4] z) { z = Neg(x) }, "
        "else_branch = b () => (float[time,4] z) { z = Abs(x) }>"
    )
    high, low, lowest = run(joined([model("y = Add(x, x)"), model(body)], "time > 5"), (6, 3, 2))
    assert (high[0, 0], low[0, 0], lowest[0, 0]) == (2, -1, 1)


def test_random_operators_are_never_one():
    body = "h = RandomUniformLike(x) y = Mul(h, two)"
    whole = joined([model(body), model(body)], "time > 5")
    assert [node.op_type for node in whole.graph.all_nodes()].count("RandomUniformLike") == 2


def test_a_shared_value_and_a_weight_may_have_one_name():
    shared = model("h = MatMul(x, w) y = Mul(h, two)")
    other = model("h2 = MatMul(x, w) y = Add(h2, h)", weights={**WEIGHTS, "h": np.asarray(5, np.float32)})
    whole = joined([shared, other], "time > 5")
    high, low = run(whole, (6, 3))
    plain = np.ones((1, 4), np.float32) @ WEIGHTS["w"]
    np.testing.assert_allclose(high[:1], plain * 2)
    np.testing.assert_allclose(low[:1], plain + 5)
