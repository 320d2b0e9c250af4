"""Every bug that is said to be seen on the pinned versions still happens; upstream's fix turns its test red.

Each reproducer gives what the exporter or the runtime says, or what comes out beside what PyTorch gives.
"""

import warnings

import numpy as np
import onnx.parser
import onnxruntime
import pytest
import torch
import torch.nn.functional as F

from fairway.knowledge.entry import entries

FLOATS = torch.tensor([[0.5, -1.5, 2.0], [-30.0, 100.0, -200.0]])
WHOLE = torch.arange(-3, 3).reshape(2, 3)


class Call(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def export(function, x, path, dynamo):
    """By torch itself, with every axis dynamic."""
    axes = range(x.dim())
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if not dynamo:
            names = {"x": {a: f"d{a}" for a in axes}}
            torch.onnx.export(Call(function), (x,), path, dynamo=False, input_names=["x"], dynamic_axes=names)
            return
        program = torch.export.export(Call(function), (x,), dynamic_shapes=(dict.fromkeys(axes, _DYNAMIC),))
        torch.onnx.export(program, dynamo=True, verbose=False, input_names=["x"]).save(path)


_DYNAMIC = torch.export.Dim.DYNAMIC


def said(function, x, path, dynamo=True):
    """The words of whoever refuses, exporter or runtime, causes included."""

    def to_the_end():
        export(function, x, path, dynamo)
        onnxruntime.InferenceSession(path)

    with pytest.raises(Exception) as caught:  # noqa: PT011  # its words are compared with the signature
        to_the_end()
    chain, error = [], caught.value
    while error is not None:
        chain.append(str(error))
        error = error.__cause__ or error.__context__
    return "\n".join(chain)


def both(function, x, path, dynamo=True, at=None):
    """PyTorch's answer and the file's."""
    export(function, x, path, dynamo)
    at = x if at is None else at
    return function(at).numpy(), onnxruntime.InferenceSession(path).run(None, {"x": at.numpy()})[0]


def outer(x):
    return torch.jit.script(torch.nn.ReLU())(x)


REFUSED = {
    "trace-sort-stable-refused": lambda p: said(lambda x: x.sort(stable=True).values, FLOATS, p, dynamo=False),
    "trace-bitwise-of-whole-numbers-refused": lambda p: said(lambda x: x | 9, WHOLE, p, dynamo=False),
    "trace-operator-missing": lambda p: said(torch.trunc, FLOATS, p, dynamo=False),
    "trace-compiled-module-inside": lambda p: said(outer, FLOATS, p, dynamo=False),
    "hypot-not-translated": lambda p: said(lambda x: torch.hypot(x, x), FLOATS, p),
    "fake-quantize-not-captured": lambda p: said(
        lambda x: torch.fake_quantize_per_tensor_affine(x, 0.05, 3, -128, 127), FLOATS, p
    ),
    "remainder-by-a-size": lambda p: said(lambda x: x % x.shape[1], WHOLE, p),
    "sort-stable-not-translated": lambda p: said(lambda x: x.sort(stable=True).values, FLOATS, p),
    "shift-by-a-tensor-not-translated": lambda p: said(lambda x: x << (x & 1), WHOLE, p),
    "erf-in-double-missing": lambda p: said(torch.erf, FLOATS.double(), p, dynamo=False),
    "activation-in-double-missing": lambda p: said(F.leaky_relu, FLOATS.double(), p, dynamo=False),
    "atan-in-double-missing": lambda p: said(torch.atan, FLOATS.double(), p, dynamo=False),
}


def without_elements(path):
    """By the runtime alone: a sum over the last axis of a tensor of shape [0, 3]."""
    text = '<ir_version: 8, opset_import: ["" : 18]> g (float[a, b] x) => (float[a] y) ' + (
        "{ k = Constant<value_ints=[-1]>() y = ReduceSum<keepdims=0>(x, k) }"
    )
    session = onnxruntime.InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    return np.zeros(0, np.float32), session.run(None, {"x": np.zeros((0, 3), np.float32)})[0]


WRONG = {
    "trace-floor-divide-truncates": lambda p: both(lambda x: x // 4, WHOLE, p, dynamo=False),
    "trace-right-shift-rounds-up": lambda p: both(lambda x: x >> 1, WHOLE, p, dynamo=False),
    "trace-cumsum-not-promoted": lambda p: both(lambda x: x.cumsum(-1), WHOLE.int(), p, dynamo=False),
    "trace-full-of-a-size-is-float": lambda p: both(
        lambda x: torch.full((1,), x.shape[1]) + 0 * x[0, 0], WHOLE, p, dynamo=False
    ),
    "power-of-a-size-in-float32": lambda p: both(lambda x: x / x.shape[1] ** 0.5, FLOATS.double(), p),
    "logsigmoid-vanishes": lambda p: both(F.logsigmoid, FLOATS, p),
    "logaddexp-overflows": lambda p: both(lambda x: torch.logaddexp(x, x), FLOATS, p),
    "shift-of-uint8-becomes-int8": lambda p: both(lambda x: x >> 2, WHOLE.abs().to(torch.uint8), p),
    "half-reduction-comes-out-float": lambda p: both(lambda x: x.sum(-1), FLOATS.half(), p),
    "sigmoid-tail-vanishes": lambda p: both(torch.sigmoid, torch.tensor([[-18.0, -30.0]]), p, dynamo=False),
    "reduction-of-nothing-keeps-its-axes": without_elements,
    "small-constant-dropped": lambda p: both(lambda x: x / (x.abs() + 1e-8), torch.zeros(2, 3), p),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_still_refused_in_these_words(name, tmp_path):
    [entry] = [entry for entry in entries() if entry.id == name]
    assert entry.matches(REFUSED[name](str(tmp_path / "net.onnx")))


@pytest.mark.parametrize("name", WRONG)
def test_it_is_still_wrong_without_a_word(name, tmp_path):
    [entry] = [entry for entry in entries() if entry.id == name]
    assert entry.signature == ""
    ours, theirs = WRONG[name](str(tmp_path / "net.onnx"))
    same = ours.shape == theirs.shape and ours.dtype == theirs.dtype
    near = 1e-9 if ours.dtype == np.float64 else 1e-4
    assert not (same and np.allclose(ours, theirs, rtol=near, atol=0, equal_nan=True))


def test_every_bug_said_to_be_seen_has_a_reproducer():
    assert {entry.id for entry in entries() if entry.seen} == {*REFUSED, *WRONG}
