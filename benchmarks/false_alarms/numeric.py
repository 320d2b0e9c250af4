"""Families whose numbers are hard: cancellation, large logits, long sums, denormals, overflow, NaN, nothing at all."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from family import family

X = "x: {f}[batch, n]"
FULL = ("float32",)
LONG = {"n": (1, 10_000)}
MILLION = {"n": (1, 1_000_000)}
BY_MATHS = "the same operators in the same order; what differs is rounding that the operation itself magnifies"

# Differences of large numbers and other cancellation.
family("large_difference", X, dtypes=FULL, scale=100, why=BY_MATHS)(lambda x: (x + 1e3) - 1e3)
family("squares_difference", X, scale=100, why=BY_MATHS)(lambda x: (x + 100.0) ** 2 - x**2 - 1e4)
family("variance_one_pass", X, {"n": (2, 40)}, scale=1000, dtypes=FULL, why=BY_MATHS)(
    lambda x: ((x + 100) ** 2).mean(-1) - (x + 100).mean(-1) ** 2
)
family("centered_twice", X)(lambda x: (x - x.mean(-1, keepdim=True)) - (x - x.mean(-1, keepdim=True)).mean(-1, True))
family("polynomial_near_root", X, dtypes=FULL, scale=100, why=BY_MATHS)(lambda x: x**3 - 3 * x**2 + 3 * x - 1)
family("one_minus_tanh", X, scale=10, why=BY_MATHS)(lambda x: 1 - torch.tanh(x * 3))
family("sine_of_large", X, scale=1000, dtypes=FULL, why=BY_MATHS)(lambda x: torch.sin(x * 1e3))
family("acos_near_one", X, scale=100, dtypes=FULL, why=BY_MATHS)(
    lambda x: torch.acos((1 - x.abs() * 1e-4).clamp(-1, 1))
)
family("sqrt_of_difference", X, scale=100, dtypes=FULL)(lambda x: torch.sqrt(((x + 1) ** 2 - x**2 - 2 * x).abs()))
family("reciprocal_near_zero", X, dtypes=FULL)(lambda x: 1 / (x * 1e-3))
family("quotient_of_small", X, dtypes=FULL)(lambda x: (x * 1e-6) / (x * 1e-6 + 1e-7).abs().clamp(min=1e-9))
family("power", X, dtypes=FULL)(lambda x: (x.abs() + 0.1) ** 7.3)
family("wide_range", X, dtypes=FULL)(lambda x: torch.exp(x * 12))


@family("inverse_by_adjugate", "x: {f}[batch, 2, 2]", dtypes=FULL, scale=100, why=BY_MATHS)
def adjugate(x):
    det = x[:, 0, 0] * x[:, 1, 1] - x[:, 0, 1] * x[:, 1, 0]
    turned = torch.stack([x[:, 1, 1], -x[:, 0, 1], -x[:, 1, 0], x[:, 0, 0]], -1).reshape(-1, 2, 2)
    return turned / det[:, None, None]


@family("inverse_by_newton", "x: {f}[batch, 3, 3]", dtypes=FULL, scale=100, why=BY_MATHS)
def newton(x):
    a = x @ x.transpose(-1, -2) + torch.eye(3)
    y = a.transpose(-1, -2) / (a.abs().sum((-1, -2), keepdim=True) ** 2)
    for _ in range(12):
        y = y @ (2 * torch.eye(3) - a @ y)
    return y


@family("gram_schmidt", "x: {f}[batch, 3, 3]", dtypes=FULL, scale=100, why=BY_MATHS)
def gram_schmidt(x):
    a = F.normalize(x[:, 0], dim=-1)
    b = F.normalize(x[:, 1] - (a * x[:, 1]).sum(-1, keepdim=True) * a, dim=-1)
    return torch.stack([a, b, torch.linalg.cross(a, b)], 1)


# Softmax and its kin at large logits.
family("softmax_large", X, scale=10)(lambda x: torch.softmax(x * 300, -1))
family("log_softmax_large", X)(lambda x: F.log_softmax(x * 100, dim=-1))
family("logsumexp_large", X)(lambda x: torch.logsumexp(x * 100, -1))
family("softmax_of_equal", X)(lambda x: torch.softmax(x * 0, -1))
family("softplus_large", X)(lambda x: F.softplus(x * 30))
family("sigmoid_saturated", X)(lambda x: torch.sigmoid(x * 40))
family("cross_entropy", X, dtypes=FULL)(lambda x: -(torch.softmax(x, -1) * F.log_softmax(x * 5, -1)).sum(-1))

# Long sums and scans.
family("cumsum_long", X, LONG, scale=10)(lambda x: torch.cumsum(x, -1))
family("cumsum_cancels", X, LONG, scale=100, dtypes=FULL, why=BY_MATHS)(
    lambda x: torch.cumsum(x - x.mean(-1, keepdim=True), -1)
)
family("moving_average", X, {"n": (4, 5000)}, scale=10, dtypes=FULL)(
    lambda x: (F.pad(x.cumsum(-1), (1, 0))[:, 3:] - F.pad(x.cumsum(-1), (1, 0))[:, :-3]) / 3
)
family("sum_million", "x: {f}[n]", MILLION, dtypes=FULL, scale=100)(lambda x: x.sum())
family("sum_million_positive", "x: {f}[n]", MILLION, dtypes=FULL)(lambda x: x.abs().sum())
family("mean_million", "x: {f}[n]", MILLION, dtypes=FULL, scale=100)(lambda x: x.mean())
family("var_million", "x: {f}[n]", {"n": (2, 1_000_000)}, dtypes=FULL)(lambda x: x.var(unbiased=False))
family("norm_million", "x: {f}[n]", MILLION, dtypes=FULL)(lambda x: torch.linalg.vector_norm(x, dim=0))
family("logsumexp_million", "x: {f}[n]", MILLION, dtypes=FULL)(lambda x: torch.logsumexp(x, 0))
family("max_million", "x: {f}[n]", MILLION, dtypes=FULL)(lambda x: (x.max(), x.min()))
family("softmax_million", "x: {f}[n]", MILLION, dtypes=FULL)(lambda x: torch.softmax(x, 0))
family("dot_million", ("x: {f}[n]", "y: {f}[n]"), MILLION, dtypes=FULL, scale=100)(lambda x, y: (x * y).sum())
family("product_long", X, {"n": (1, 400)}, dtypes=FULL)(lambda x: (1 + x * 1e-2).prod(-1))

# Denormals, overflow, infinities, NaN.
family("denormal", X, dtypes=FULL)(lambda x: x * 1e-40)
family("denormal_sum", X, dtypes=FULL)(lambda x: (x * 1e-41).sum(-1))
family("gauss_underflow", X)(lambda x: torch.exp(-(x**2) * 9))
family("square_overflow", X, dtypes=("float16",))(lambda x: (x * 200) ** 2)
family("sum_overflow", X, dtypes=("float16",))(lambda x: (x.abs() * 3e4).sum(-1))
family("exp_overflow", X)(lambda x: torch.exp(x * 60))
family("log_of_negative", X)(torch.log)
family("sqrt_of_negative", X)(torch.sqrt)
family("nought_by_nought", X)(lambda x: torch.relu(x) / torch.relu(x))
family("infinite_minus_infinite", X, dtypes=FULL)(lambda x: torch.exp(x.abs() * 500) - torch.exp(x.abs() * 500))
family("asin_beyond", X, dtypes=FULL)(torch.asin)
family("masked_rows", (X, "y: bool[batch, n]"))(lambda x, y: torch.softmax(x.masked_fill(y, float("-inf")), -1))
family("mean_of_masked", (X, "y: bool[batch, n]"))(lambda x, y: (x * y).sum(-1) / y.sum(-1))
family("maximum_with_nan", X, dtypes=FULL)(lambda x: torch.log(x) + torch.clamp(x, 0, 1))

# Nothing there: lower bounds of 0, outputs without elements.
EMPTY = {"n": (0, 12), "batch": (0, 3)}
family("empty_sum", X, EMPTY)(lambda x: x.sum(-1))
family("empty_mean", X, EMPTY, dtypes=FULL)(lambda x: x.mean(-1))
family("empty_elementwise", X, EMPTY)(lambda x: torch.tanh(x) * 2 + 1)
family("empty_cat", X, EMPTY)(lambda x: torch.cat([x, x * 2], -1))
family("empty_softmax", X, {"n": (1, 12), "batch": (0, 3)})(lambda x: torch.softmax(x, -1))
family("empty_prod", X, EMPTY, dtypes=FULL)(lambda x: x.prod(-1))
family("empty_transpose", X, EMPTY)(lambda x: x.transpose(0, 1) + 1)
family("no_elements_out", X)(lambda x: (x[:, :0], x + 1))
family("empty_matmul", X, EMPTY, dtypes=FULL)(lambda x: x @ x.transpose(0, 1))
