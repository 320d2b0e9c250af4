"""Conditions on sizes: what is read out of guards, and how ONNX computes them."""

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from fairway.convert.pieces.arithmetic import CannotRead, SizeArithmetic
from fairway.convert.pieces.piece import guards_by_piece
from fairway.convert.pieces.piece_conditions import (
    find_comparisons,
    find_divisors,
    is_computable,
    negate_condition,
    parse_condition,
)
from fairway.model.dims import Size
from fairway.model.spec import TensorSpec


def compute(condition, spec, sizes):
    """The condition as ONNX Runtime answers it for an input of these sizes."""
    given = ir.Value(name="x", shape=ir.Shape([None] * len(sizes)), type=ir.TensorType(ir.DataType.FLOAT))
    arithmetic = SizeArithmetic([given], [spec])
    answer = arithmetic.make_condition(condition)
    graph = ir.Graph([given], [answer], nodes=arithmetic.nodes, opset_imports={"": 18}, name="g")
    model = ir.serde.serialize_model(ir.Model(graph, ir_version=10)).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return bool(session.run(None, {"x": np.zeros(sizes, np.float32)})[0])


@pytest.mark.parametrize(
    "condition",
    [
        "time % 8 == 0",
        "-time % 8 != 3",
        "-time // 4 <= -5",
        "2 * time + 1 > 20",
        "(time - 9) // 4 < 0",
        "time >= 7",
        "max(time, 5) - min(time, 9) == 0",
        "time > 3 and time % 2 == 0 or time == 1",
    ],
)
def test_onnx_answers_as_python_does(condition):
    spec = TensorSpec("x", "float32", (Size("time"), Size("3")))
    for time in range(1, 30):
        assert compute(condition, spec, (time, 3)) == bool(eval(condition, {"time": time, "max": max, "min": min}))


def test_a_dim_is_read_off_a_multiple_of_it():
    spec = TensorSpec("x", "float32", (Size("2*time+1"),))
    for time in range(1, 10):
        assert compute("time == 4", spec, (2 * time + 1,)) == (time == 4)


def test_a_dim_that_no_axis_shows_is_refused():
    with pytest.raises(CannotRead):
        compute("time == 4", TensorSpec("x", "float32", (Size("time+batch"),)), (5,))


def test_guards_are_taken_apart_into_positive_comparisons():
    assert find_comparisons(["time % 8 != 0 and time < 21", "not time >= 21", "batch > 1"]) == [
        "time % 8 == 0",
        "time <= 20",
        "batch <= 1",
    ]


@pytest.mark.parametrize("guard", ["time / 2 == 3", "time % batch == 0", "math.sqrt(time) < 3", "1 < time < 3"])
def test_what_is_no_whole_number_arithmetic_is_left_out(guard):
    assert not is_computable(parse_condition(guard))


def test_a_negation_is_a_comparison_again():
    assert [negate_condition(one) for one in ("a == 1", "a <= 2")] == ["a != 1", "a > 2"]


def test_the_numbers_that_divide_are_found():
    assert find_divisors(["time % 8 == 0", "(time + 1) // 3 == 2", "time == 9"]) == [8, 3]


def test_each_piece_answers_for_its_own_guards_where_it_serves():
    guards = guards_by_piece(["time <= 4", "time % 2 == 0", "otherwise"], [["a == 1"], ["b == 2"], ["c == 3"]])
    assert guards == (
        "not ((time <= 4)) or (a == 1)",
        "not (not (time <= 4) and (time % 2 == 0)) or (b == 2)",
        "not (not (time <= 4) and not (time % 2 == 0)) or (c == 3)",
    )
