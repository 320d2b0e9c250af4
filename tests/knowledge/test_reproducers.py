"""Every bug that is said to be seen on the pinned versions still happens; upstream's fix turns its test red.

Each reproducer gives what the exporter or the runtime says, or what comes out beside what PyTorch gives.
"""

import io
import warnings

import numpy as np
import onnx
import onnx.checker
import onnx.parser
import onnx.shape_inference
import onnx.version_converter
import onnxruntime
import pytest
import torch
import torch.nn.functional as F

from fairway.diagnostics.knowledge.entry import load_entries

FLOATS = torch.tensor([[0.5, -1.5, 2.0], [-30.0, 100.0, -200.0]])
WHOLE = torch.arange(-3, 3).reshape(2, 3)


class Call(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def export(function, x, path, dynamo):
    """By torch itself, with every axis dynamic."""
    axes = range(x.dim())
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if not dynamo:
            names = {"x": {a: f"d{a}" for a in axes}}
            torch.onnx.export(Call(function), (x,), path, dynamo=False, input_names=["x"], dynamic_axes=names)
            return
        program = torch.export.export(Call(function), (x,), dynamic_shapes=((dict.fromkeys(axes, _DYNAMIC),),))
        torch.onnx.export(program, dynamo=True, verbose=False, input_names=["x"]).save(path)


_DYNAMIC = torch.export.Dim.DYNAMIC


def said(function, x, path, dynamo=True):
    """Return the message of the exporter or runtime that refuses, with its causes."""

    def to_the_end():
        export(function, x, path, dynamo)
        onnxruntime.InferenceSession(path)

    return words(to_the_end)


def words(call):
    """Return the text of the exception that a call raises, and of its causes."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception) as caught:  # noqa: PT011  # its words are compared with the signature
            call()
    chain, error = [], caught.value
    while error is not None:
        chain.append(f"{type(error).__name__}: {error}")
        error = error.__cause__ or error.__context__
    return "\n".join(chain)


def traced(function, *args, **options):
    """By TorchScript, with what `export` above does not set."""
    return words(lambda: torch.onnx.export(Call(function).eval(), args, io.BytesIO(), dynamo=False, **options))


def captured(function, *args, **options):
    """By torch.export alone."""
    return words(lambda: torch.export.export(Call(function), args, **options))


def converted(function, *args, **options):
    """By torch.onnx.export as users call it."""
    return words(lambda: torch.onnx.export(Call(function), args, dynamo=True, verbose=False, **options))


def model(body, opset=18):
    """A model from the text form of its inputs, outputs and nodes."""
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]> g {body}')


def loaded(body):
    """By the runtime alone."""
    return words(lambda: onnxruntime.InferenceSession(model(body).SerializeToString()))


def both(function, x, path, dynamo=True, at=None):
    """PyTorch's answer and the file's."""
    export(function, x, path, dynamo)
    at = x if at is None else at
    return function(at).numpy(), onnxruntime.InferenceSession(path).run(None, {"x": at.numpy()})[0]


def outer(x):
    return torch.jit.script(torch.nn.ReLU())(x)


class Squeezed(torch.autograd.Function):
    @staticmethod
    def symbolic(g, x, dim):
        return g.op("Squeeze", x, axes_i=[0])

    @staticmethod
    def forward(ctx, x, dim):
        return x.squeeze(dim)


class Unknown:
    """Neither a tensor nor a container of them."""


def gradient(x):
    with torch.enable_grad():
        return torch.autograd.grad(x[:1].sum(), x, create_graph=True)[0]


def vmap_in_a_mask(path):
    """transformers itself maps over a predicate that a caller brings along."""
    masking = pytest.importorskip("transformers.masking_utils")
    config = pytest.importorskip("transformers").LlamaConfig(attn_implementation="sdpa")

    def mask(x, keep):
        return masking.create_causal_mask(
            config, x, keep, past_key_values=None, and_mask_function=lambda b, h, q, k: keep[b, k]
        )

    return traced(mask, torch.randn(2, 5, 2), torch.ones(2, 5, dtype=torch.bool))


def caches(path):
    return pytest.importorskip("transformers.cache_utils")


def static_cache():
    config = pytest.importorskip("transformers").LlamaConfig(
        hidden_size=4, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1
    )
    return caches(None).StaticCache(config, max_cache_len=4)


def imported(line):
    return words(lambda: exec(line, {}))


WEIGHT = torch.ones(3, 3, requires_grad=True)
IMAGE = torch.zeros(1, 1, 8, 8)
HEADS = torch.zeros(1, 4, 3, 8)

REFUSED = {
    "trace-vmap-lost": vmap_in_a_mask,
    "trace-autograd-function-lost": lambda p: traced(Squeezed.apply, torch.randn(1, 3), torch.tensor(0)),
    "trace-fft-refused": lambda p: traced(lambda x: torch.fft.fft2(x).real, IMAGE),
    "trace-antialias-refused": lambda p: traced(
        lambda x: F.interpolate(x, size=(5, 5), mode="bilinear", antialias=True), IMAGE
    ),
    "trace-adaptive-pool-refused": lambda p: traced(lambda x: F.adaptive_avg_pool2d(x, 3), IMAGE),
    "trace-adaptive-pool-dynamic": lambda p: traced(
        lambda x: F.adaptive_avg_pool2d(x, 4), IMAGE, input_names=["x"], dynamic_axes={"x": {2: "h", 3: "w"}}
    ),
    "trace-odd-output-refused": lambda p: traced(lambda x: Unknown(), FLOATS),
    "dynamic-axes-not-converted": lambda p: converted(
        lambda xs: xs[0] + xs[1], [FLOATS, FLOATS], input_names=["a"], dynamic_axes={"a": {0: "b"}}
    ),
    "trace-compiled-by-dynamo": lambda p: traced(torch.compile(torch.nn.ReLU()), FLOATS),
    "trace-causal-flag-a-tensor": lambda p: traced(
        lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=x.shape[1] > 1), FLOATS[None]
    ),
    "causal-flag-symbolic": lambda p: captured(
        lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=x.shape[1] > 2),
        FLOATS[None],
        dynamic_shapes=(({1: _DYNAMIC},),),
    ),
    "inverse-not-translated": lambda p: traced(torch.linalg.inv, torch.eye(3)),
    "solve-not-translated": lambda p: traced(torch.linalg.solve, torch.eye(3), torch.eye(3)),
    "trace-stft-complex": lambda p: traced(
        lambda x: torch.stft(x, 16, window=torch.ones(16), return_complex=True).abs(), torch.randn(64)
    ),
    "searchsorted-not-translated": lambda p: traced(lambda x: torch.searchsorted(torch.arange(3.0), x), FLOATS),
    "cumprod-not-translated": lambda p: traced(lambda x: x.cumprod(-1), FLOATS),
    "trace-grid-sample-volumetric": lambda p: traced(
        lambda x, at: F.grid_sample(x, at, align_corners=False),
        torch.zeros(1, 1, 3, 3, 3),
        torch.zeros(1, 2, 2, 2, 3),
        opset_version=16,
    ),
    "trace-weight-not-a-parameter": lambda p: traced(lambda x: x @ WEIGHT, FLOATS),
    "trace-opset-too-old": lambda p: traced(
        lambda x: x.clone().index_put_((x > 0,), IMAGE[0, 0, 0, 0]), FLOATS, opset_version=9
    ),
    "trace-attention-fast-path": lambda p: traced(
        torch.nn.TransformerEncoderLayer(4, 2, 4, batch_first=True).eval(), torch.zeros(2, 3, 4)
    ),
    "trace-grouped-attention-refused": lambda p: traced(
        lambda x: F.scaled_dot_product_attention(x, x, x, enable_gqa=True), HEADS
    ),
    "trace-complex-refused": lambda p: traced(lambda x: torch.view_as_complex(x).abs(), torch.zeros(3, 2)),
    "trace-rms-norm-refused": lambda p: traced(lambda x: F.rms_norm(x, (3,)), FLOATS),
    "trace-gradient-inside": lambda p: traced(gradient, torch.zeros(2, 2, requires_grad=True)),
    "batch-of-one-specialized": lambda p: captured(
        lambda x: x * 2, FLOATS[:1], dynamic_shapes=(({0: torch.export.Dim("batch")},),)
    ),
    "reason-hidden-by-refining": lambda p: converted(
        lambda x: x * 2, FLOATS[:1], input_names=["x"], dynamic_axes={"x": {0: "batch"}}
    ),
    "downgrade-without-adapter": lambda p: words(
        lambda: onnx.version_converter.convert_version(
            model("(float[a] x) => (float[a] y) { y = Identity(x) }", 16), 15
        )
    ),
    "downgrade-axes-not-constant": lambda p: words(
        lambda: onnx.version_converter.convert_version(
            model("(float[2] x, int64[1] a) => (float[1] y) { y = ReduceMean(x, a) }"), 13
        )
    ),
    "mapping-module-removed": lambda p: imported("import onnx.mapping"),
    "conversion-helpers-removed": lambda p: imported("import onnx; onnx.helper.float32_to_bfloat16"),
    "nodes-not-sorted": lambda p: words(
        lambda: onnx.checker.check_model(model("(float[2] x) => (float[2] y) { y = Relu(z) z = Abs(x) }"))
    ),
    "declared-shape-contradicted": lambda p: words(
        lambda: onnx.shape_inference.infer_shapes(
            model("(float[2] x) => (float[3] y) { y = Relu(x) }"), strict_mode=True
        )
    ),
    "inputs-of-another-opset": lambda p: words(
        lambda: onnx.checker.check_model(model("(float[2] x, int64[1] a) => (float[1] y) { y = ReduceMean(x, a) }", 16))
    ),
    "max-of-16-bit-missing": lambda p: loaded("(int16[2] x, int16[2] z) => (int16[2] y) { y = Max(x, z) }"),
    "bfloat16-product-missing": lambda p: loaded("(bfloat16[2, 2] x) => (bfloat16[2, 2] y) { y = MatMul(x, x) }"),
    "import-from-newer-transformers": lambda p: imported("from transformers.utils import is_tf_available"),
    "cache-in-the-output": lambda p: captured(lambda x: caches(p).DynamicCache(), FLOATS),
    "cache-in-the-input": lambda p: captured(lambda x, cache: x, FLOATS, static_cache()),
    "cache-lists-removed": lambda p: words(lambda: caches(p).DynamicCache().key_cache),
    "cache-counters-removed": lambda p: words(lambda: caches(p).DynamicCache().seen_tokens),
    "onnx-module-removed": lambda p: imported("import transformers.onnx"),
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


QUOTIENTS = torch.tensor([[3.0, 6.0], [9.0, 12.0]]).half()


def half_sum(path):
    """By the runtime alone: a 1 added to what float16 cannot tell from its successor, and taken away again."""
    session = onnxruntime.InferenceSession(
        model("(float16[1] x, float16[1] one) => (float16[1] y) { a = Add(x, one) y = Sub(a, x) }").SerializeToString()
    )
    x, one = np.array([2048], np.float16), np.array([1], np.float16)
    return x + one - x, session.run(None, {"x": x, "one": one})[0]


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.MultiheadAttention(4, 2)

    def forward(self, x):
        return self.inner(x, x, x, need_weights=False)[0]


def attention_at_another_length(path):
    """The file refuses to run where PyTorch answers; the fast path is another bug."""
    net, x = Attention().eval(), torch.zeros(5, 2, 4)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        export(net, x, path, dynamo=False)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    session = onnxruntime.InferenceSession(path)
    assert session.run(None, {"x": x.numpy()})[0].shape == (5, 2, 4)
    with pytest.raises(Exception, match="cannot be reshaped"):
        session.run(None, {"x": np.zeros((7, 2, 4), np.float32)})
    return np.zeros((7, 2, 4), np.float32), np.zeros(0, np.float32)


WRONG = {
    "trace-attention-length-baked": attention_at_another_length,
    "half-truncating-division-off-by-one": lambda p: both(
        lambda x: torch.div(x, 0.3 * torch.ones_like(x), rounding_mode="trunc"), QUOTIENTS, p
    ),
    "half-computed-in-float": half_sum,
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
    [entry] = [entry for entry in load_entries() if entry.id == name]
    assert entry.matches(REFUSED[name](str(tmp_path / "net.onnx")))


@pytest.mark.parametrize("name", WRONG)
def test_it_is_still_wrong_without_a_word(name, tmp_path):
    [entry] = [entry for entry in load_entries() if entry.id == name]
    assert entry.signature == ""
    ours, theirs = WRONG[name](str(tmp_path / "net.onnx"))
    same = ours.shape == theirs.shape and ours.dtype == theirs.dtype
    near = 1e-9 if ours.dtype == np.float64 else 1e-4
    assert not (same and np.allclose(ours, theirs, rtol=near, atol=0, equal_nan=True))


def test_every_bug_said_to_be_seen_has_a_reproducer():
    assert {entry.id for entry in load_entries() if entry.seen} == {*REFUSED, *WRONG}
