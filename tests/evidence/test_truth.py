"""The truth is computed in float64, while the model's code sees the dtypes of an ordinary run."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fairway.judge.runtimes.eager import run_eager
from fairway.judge.runtimes.truth import run_truth
from fairway.model.subject import build_subject

F32, F16, BF16, F64 = torch.float32, torch.float16, torch.bfloat16, torch.float64


class Idiom(torch.nn.Module):
    """A forward given as a function, with weights, a buffer and a note of what the code found out."""

    def __init__(self, forward: Callable[..., Any], dtype: torch.dtype = F32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(8, 8, dtype=dtype)
        self.conv = torch.nn.Conv1d(8, 8, 3, padding=1, dtype=dtype)
        self.words = torch.nn.Embedding(20, 8, dtype=dtype)
        self.bags = torch.nn.EmbeddingBag(20, 8, mode="sum", dtype=dtype)
        self.lstm = torch.nn.LSTM(8, 8, bidirectional=True, batch_first=True, dtype=dtype)
        self.gru = torch.nn.GRU(8, 8, num_layers=2, dtype=dtype)
        self.register_buffer("table", torch.randn(6, 8).to(dtype))
        self.plain = torch.randn(8, 8).to(dtype)
        self.wave = torch.polar(torch.ones(6, 4), torch.randn(6, 4))
        self._forward = forward
        self.answers: list[Any] = []

    def forward(self, x: torch.Tensor) -> Any:
        self.answers = []
        return self._forward(self, x)

    def answer(self, value: Any) -> Any:
        """Note what the code asked for, such as a dtype."""
        self.answers.append(value)
        return value


def _mask(x: torch.Tensor) -> torch.Tensor:
    return torch.ones(6, 6, dtype=torch.bool).tril()[None].expand(len(x), -1, -1)


def _attend(m: Idiom, x: torch.Tensor, low: float) -> torch.Tensor:
    return F.softmax((x @ x.mT).masked_fill(~_mask(x), low), -1) @ x


def _fill(m: Idiom, x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(x.shape)
    out.copy_(x)
    out[:, 0] = 0.5
    out[:, 1] = x[:, 2] * 2
    out[x > 1] = 1.0
    out.index_put_((torch.tensor([0]), torch.tensor([3])), x[:1, 4])
    return m.linear(out)


def _fill_by_hand(m: Idiom, x: torch.Tensor) -> torch.Tensor:
    out = x.clone()
    out[:, 0] = 0.5
    out[:, 1] = x[:, 2] * 2
    out[x > 1] = 1.0
    out[0, 3] = x[0, 4]
    return m.linear(out)


def _rotate(m: Idiom, x: torch.Tensor) -> torch.Tensor:
    pairs = torch.view_as_complex(x.float().reshape(len(x), 6, 4, 2))
    m.answer(pairs.dtype)
    return torch.view_as_real(pairs * m.wave).flatten(2).type_as(x)


def _autocast(m: Idiom, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=BF16):
        h = m.linear(x)
        m.answer(h.dtype)
        return F.softmax(h, -1) + m.answer(h.float()).mean()


def _gradient(m: Idiom, x: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        place = x.detach().requires_grad_(True)
        energy = m.linear(place).pow(2).sum()
        return torch.autograd.grad(energy, place)[0]


def _store(m: Idiom, x: torch.Tensor) -> torch.Tensor:
    m.table[:2] = x[0, :2]
    m.table.add_(1)
    return m.table + m.linear(m.table)


def _in_place_shapes(m: Idiom, x: torch.Tensor) -> torch.Tensor:
    h = m.linear(x)
    h.unsqueeze_(1).transpose_(0, 1)
    m.answer(h.shape)
    h.squeeze_(0)
    return h + x


def _seeded(m: Idiom, x: torch.Tensor) -> torch.Tensor:
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(3))
    more = torch.empty(8).uniform_(generator=torch.Generator().manual_seed(4))
    return x + noise * more


def _seeded_by_hand(m: Idiom, x: torch.Tensor) -> torch.Tensor:
    with _default(F32):
        noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(3))
        more = torch.empty(8).uniform_(generator=torch.Generator().manual_seed(4))
    return x + noise.double() * more.double()


def _numpy(m: Idiom, x: torch.Tensor) -> torch.Tensor:
    scale = np.sqrt(x.numpy().shape[-1]) + m.answer(np.asarray(x[0, 0]).dtype == np.float32)
    return m.linear(x * float(scale) + torch.from_numpy(np.arange(8, dtype=np.float32)))


@contextlib.contextmanager
def _default(dtype: torch.dtype) -> Any:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@dataclass
class Row:
    """An idiom, and the same written for a model that is float64 throughout; None if that is the same text."""

    name: str
    forward: Callable[..., Any]
    by_hand: Callable[..., Any] | None = None
    dtype: torch.dtype = F32


def _same(m: Idiom, x: torch.Tensor) -> torch.Tensor:
    return m.linear(x)


ROWS = [
    Row("float", lambda m, x: m.linear(x.float()), _same),
    Row("to_dtype", lambda m, x: m.linear(x.to(torch.float32)), _same),
    Row("to_keyword", lambda m, x: m.linear(x.to(dtype=torch.float32, device="cpu")), _same),
    Row("to_weight", lambda m, x: m.linear(x.half().to(m.linear.weight.dtype)), _same),
    Row("to_tensor", lambda m, x: m.linear(x.double().to(x)), _same),
    Row("type", lambda m, x: m.linear(x.type(torch.float32)), _same),
    Row("type_name", lambda m, x: m.linear(x.type(m.answer(x.type()))), _same),
    Row("type_as", lambda m, x: m.linear(x.double().type_as(m.table)), _same),
    Row("half_and_back", lambda m, x: m.linear(x.half().float()), _same),
    Row("bfloat16_and_back", lambda m, x: m.linear(x.to(torch.bfloat16).to(torch.float32)), _same),
    Row("long", lambda m, x: (x * 10).long().float() / 3, lambda m, x: (x * 10).long().double() / 3),
    Row("zeros", lambda m, x: m.linear(x + torch.zeros(8)), _same),
    Row(
        "arange",
        lambda m, x: m.linear(x * torch.arange(8, dtype=torch.float32) / 3),
        lambda m, x: m.linear(x * torch.arange(8, dtype=F64) / 3),
    ),
    Row(
        "arange_of_integers",
        lambda m, x: m.linear(x * (1 / (10000 ** (torch.arange(8) / 8)))),
        lambda m, x: m.linear(x * (1 / (10000 ** (torch.arange(8, dtype=F64) / 8)))),
    ),
    Row(
        "linspace",
        lambda m, x: m.linear(x * torch.linspace(0, 1, 8)),
        lambda m, x: m.linear(x * torch.linspace(0, 1, 8, dtype=F64)),
    ),
    Row(
        "tensor",
        lambda m, x: m.linear(x * torch.tensor(0.5) + torch.tensor([0.25])),
        lambda m, x: m.linear(x * 0.5 + 0.25),
    ),
    Row("legacy_tensor", lambda m, x: m.linear(x + torch.FloatTensor([0.5, 1.5])[0]), lambda m, x: m.linear(x + 0.5)),
    Row("full", lambda m, x: m.linear(x * torch.full((8,), 0.5, dtype=torch.float32)), lambda m, x: m.linear(x * 0.5)),
    Row(
        "new_zeros",
        lambda m, x: m.linear(x.new_zeros(x.shape) + x + x.new_tensor([0.5]) + x.new_full((8,), 0.5)),
        lambda m, x: m.linear(x + 1),
    ),
    Row("zeros_like", lambda m, x: m.linear(torch.zeros_like(x, dtype=torch.float32) + x), _same),
    Row(
        "finfo_min",
        lambda m, x: _attend(m, x, m.answer(torch.finfo(x.dtype).min)),
        lambda m, x: _attend(m, x, torch.finfo(F32).min),
    ),
    Row(
        "finfo_eps",
        lambda m, x: x / (x.abs().sum(-1, keepdim=True) + m.answer(torch.finfo(torch.float32).eps)),
        lambda m, x: x / (x.abs().sum(-1, keepdim=True) + torch.finfo(F32).eps),
    ),
    Row("finfo_of_a_result", lambda m, x: m.linear(x) + m.answer(torch.finfo(m.linear(x).dtype).tiny)),
    Row("minus_infinity", lambda m, x: _attend(m, x, float("-inf"))),
    Row("dtype_branch", lambda m, x: m.linear(x) if m.answer(x.dtype == torch.float32) else x, _same),
    Row("dtype_of_a_result", lambda m, x: m.linear(x) if m.answer(m.conv(x.mT).dtype) == torch.float32 else x, _same),
    Row("is_floating_point", lambda m, x: m.linear(x) if m.answer(x.element_size()) == 4 else x, _same),
    Row("default_dtype", lambda m, x: m.linear(x.to(m.answer(torch.get_default_dtype()))), _same),
    Row("softmax_dtype", lambda m, x: F.softmax(x, -1, dtype=torch.float32).to(x.dtype), lambda m, x: F.softmax(x, -1)),
    Row("sum_dtype", lambda m, x: m.linear(x) / x.sum(dtype=torch.float32), lambda m, x: m.linear(x) / x.sum()),
    Row("autocast", _autocast, lambda m, x: F.softmax(m.linear(x), -1) + m.linear(x).mean()),
    Row("numpy", _numpy, lambda m, x: m.linear(x * (float(np.sqrt(8)) + 1) + torch.arange(8, dtype=F64))),
    Row(
        "tolist",
        lambda m, x: m.linear(x) * max(x[0, 0].tolist()) + float(f"{x.max():.2f}"),
        lambda m, x: m.linear(x) * max(x[0, 0].tolist()) + float(f"{x.max().item():.2f}"),
    ),
    Row("item", lambda m, x: m.linear(x) * x.max().item() if x.sum() > -1e9 else x),
    Row("writes", _fill, _fill_by_hand),
    Row("buffer_written", _store),
    Row("shapes_in_place", _in_place_shapes),
    Row("out", lambda m, x: torch.matmul(x, m.plain, out=torch.empty(len(x), 6, 8)), lambda m, x: x @ m.plain),
    Row("plain_attribute", lambda m, x: (x @ m.plain.float()).contiguous()),
    Row("weight_cast", lambda m, x: F.linear(x.float(), m.linear.weight.float(), m.linear.bias.float()), _same),
    Row("module_cast", lambda m, x: m.linear.float()(x), _same),
    Row("lstm", lambda m, x: m.lstm(x.float(), (torch.zeros(2, len(x), 8), torch.zeros(2, len(x), 8)))[0]),
    Row("gru", lambda m, x: m.gru(x.float())[0]),
    Row("conv", lambda m, x: m.conv(x.float().mT)),
    Row("embedding", lambda m, x: m.words((x.abs() * 3).long().clamp(max=19)).sum(-2).float()),
    Row("bag", lambda m, x: m.bags((x[0].abs() * 3).long().clamp(max=19)).float() + x),
    Row(
        "complex",
        _rotate,
        lambda m, x: torch.view_as_real(torch.view_as_complex(x.reshape(len(x), 6, 4, 2)) * m.wave).flatten(2),
    ),
    Row("fourier", lambda m, x: torch.fft.irfft(torch.fft.rfft(x.float(), dim=1) * 0.5, n=6, dim=1)),
    Row("linalg", lambda m, x: torch.linalg.solve((m.plain @ m.plain.T).float() + 9 * torch.eye(8), x.mT).mT),
    Row("norms", lambda m, x: F.layer_norm(x.float(), (8,)) + F.normalize(x, dim=-1) + torch.linalg.norm(x)),
    Row("attention", lambda m, x: F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], is_causal=True)),
    Row("einsum", lambda m, x: torch.einsum("btc,dc->bdt", x.float(), m.linear.weight).unflatten(1, (2, 4)).flatten(1)),
    Row("gradient", _gradient),
    Row("seeded_noise", _seeded, _seeded_by_hand),
    Row(
        "cond",
        lambda m, x: torch.cond(x.sum() > 0, lambda x: m.linear(x.float()), lambda x: x.cumsum(1).float(), (x,)),
        lambda m, x: m.linear(x) if x.sum() > 0 else x.cumsum(1),
    ),
    Row("vmap", lambda m, x: torch.vmap(lambda row: row.float() @ m.plain)(x), lambda m, x: x @ m.plain),
    Row(
        "half_upcast",
        lambda m, x: m.linear((x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True))).to(x.dtype)),
        lambda m, x: m.linear(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True))),
        F16,
    ),
    Row(
        "half_finfo",
        lambda m, x: _attend(m, x, m.answer(torch.finfo(x.dtype).min)),
        lambda m, x: _attend(m, x, torch.finfo(F16).min),
        F16,
    ),
    Row(
        "bfloat16_softmax",
        lambda m, x: F.softmax(m.linear(x), -1, dtype=torch.float32).to(m.answer(x.dtype)),
        lambda m, x: F.softmax(m.linear(x), -1),
        BF16,
    ),
    Row(
        "bfloat16_mixed",
        lambda m, x: (
            m.linear(x).float() * m.answer((x * torch.ones(8)).dtype == F32)
            + m.answer((x * torch.tensor(2.0)).dtype == BF16)
        ),
        lambda m, x: m.linear(x) + 1,
        BF16,
    ),
    Row("bfloat16_conv", lambda m, x: m.conv(x.mT).float(), None, BF16),
    Row(
        "tensor_of_elements",
        lambda m, x: x + torch.tensor([x.max(), x.min()]).sum() + x.new_tensor([x[0, 0, 0], 1.0])[0],
        lambda m, x: x + x.max() + x.min() + x[0, 0, 0],
    ),
    Row("deepcopy", lambda m, x: copy.deepcopy(x).mul_(2) + x, lambda m, x: x * 3),
    Row("sparse", lambda m, x: torch.sparse.mm(m.plain.relu().to_sparse(), x[0].T.float())),
    Row("bits", lambda m, x: (x.view(torch.int32) & 0x7FFFFFFF).view(torch.float32) * 0.1, lambda m, x: x.abs() * 0.1),
    Row("literal_compared", lambda m, x: m.linear(x) * (m.table[0, 0].new_tensor(0.7) >= 0.7), _same),
    Row("scripted", lambda m, x: _multiply_scripted(x, m.plain), lambda m, x: x @ m.plain),
]


@torch.jit.script
def _multiply_scripted(x, y):
    if x.dtype == torch.float32:
        return x.to(torch.float32) @ y
    return x


def _subject(row: Row) -> Any:
    name = str(row.dtype).removeprefix("torch.")
    return build_subject(Idiom(row.forward, row.dtype).eval(), [f"x: {name}[batch, 6, 8]"])


def _twin(row: Row) -> Idiom:
    """The model in float64 from the start, written by hand where the text differs."""
    twin = Idiom(row.by_hand or row.forward, row.dtype).eval()
    twin.plain = twin.plain.double()
    twin.wave = twin.wave.to(torch.complex128)
    return twin.double()


@pytest.mark.parametrize("piecewise", [False, True])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_truth_is_that_of_the_float64_model(row: Row, piecewise: bool) -> None:
    subject = _subject(row)
    tensors = subject.make({"batch": 3}, 1, "normal")
    (truth,) = run_truth(subject, tensors, piecewise=piecewise)
    twin = _twin(row)
    # `.float()` keeps float64 there, so that most rows need no second text.
    with torch.no_grad(), _default(F64), patch.object(torch.Tensor, "float", torch.Tensor.double):
        expected = twin(tensors[0].double())
    assert truth.dtype == F64
    torch.testing.assert_close(truth, expected.to(F64), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_code_gets_the_answers_of_an_ordinary_run(row: Row) -> None:
    subject = _subject(row)
    tensors = subject.make({"batch": 3}, 1, "normal")
    before = {name: (tensor.dtype, tensor.data_ptr()) for name, tensor in subject.model.state_dict().items()}
    run_truth(subject, tensors)
    asked = [answer for answer in subject.model.answers if not isinstance(answer, torch.Tensor)]
    assert {name: (t.dtype, t.data_ptr()) for name, t in subject.model.state_dict().items()} == before
    assert torch.get_default_dtype() == F32
    run_eager(subject, tensors)
    assert asked == [answer for answer in subject.model.answers if not isinstance(answer, torch.Tensor)]


class ReadsArray(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bright = float(np.mean(np.asarray(x.detach()) > 0.5)) + float((x.numpy() > 0.5).mean())
        return x * bright


def test_numpy_reads_the_numbers_of_the_truth() -> None:
    x = torch.tensor([[0.1, 0.9, 0.8, 0.2]])
    (truth,) = run_truth(build_subject(ReadsArray(), ["x: float32[1, 4]"]), [x])
    torch.testing.assert_close(truth, x.double())
