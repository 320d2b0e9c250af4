"""The prover: a mutant counts only where it clearly differs from the right file on a legal input.

It shares nothing with Fairway's judge but the spec: values, sizes and tolerances are its own. Both files run in ONNX
Runtime. A difference is another shape or dtype, an error, NaN or infinity elsewhere, another integer or bool, or a
float off by more than 1e-4 of the output's scale (2e-2 where the model computes in 16 bits).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
from graph import Know

from fairway.model.dims import Domain
from fairway.model.spec import TensorSpec

TOLERANCE, TOLERANCE_16 = 1e-4, 2e-2
STYLES = ("plain", "plain", "plain", "zeros", "sparse", "edge", "high", "low", "rows", "wide")
RANDOM_POINTS = 250

Feeds = dict[str, np.ndarray]


@dataclass(frozen=True)
class Witness:
    """An input at which a mutant differs, and the difference."""

    index: int
    point: dict[str, int]
    style: str
    what: str


@dataclass
class Pool:
    """Legal inputs over the whole domain, with the right file's answers."""

    points: list[dict[str, int]]
    styles: list[str]
    feeds: list[Feeds]
    answers: list[list[np.ndarray]]
    scales: list[float]
    tolerance: float


def make_feeds(spec: tuple[TensorSpec, ...], point: dict[str, int], style: str, rng: np.random.Generator) -> Feeds:
    return {item.name: _tensor(item, point, style, rng) for item in spec}


def _tensor(item: TensorSpec, point: dict[str, int], style: str, rng: np.random.Generator) -> np.ndarray:
    shape = item.sizes(point)
    if item.values.mask:
        return _mask(item.values.mask, shape, style, rng).astype(item.dtype)
    if item.values.lengths is not None:
        return _lengths(shape, item.values.lengths.at(point), style, rng).astype(item.dtype)
    if item.dtype == "bool":
        share = {"zeros": 0.0, "low": 0.0, "high": 1.0, "edge": 0.9, "sparse": 0.1}.get(style, 0.5)
        plain = rng.random(shape) < share
        return _by_rows(plain, np.full(shape, bool(rng.integers(2))), style, rng)
    if item.dtype.startswith("float"):
        return _floats(item, shape, style, rng).astype(item.dtype)
    low = int(item.values.low or 0)
    high = item.values.below - 1 if item.values.below else int(9 if item.values.high is None else item.values.high)
    plain = rng.integers(low, high + 1, shape)
    ends = np.full(shape, high if style != "low" else low)
    if style in ("high", "low"):
        return ends.astype(item.dtype)
    if style in ("edge", "sparse"):
        plain = np.where(rng.random(shape) < 0.3, rng.choice([low, high, max(high - 1, low)], shape), plain)
    return _by_rows(plain, ends, style, rng).astype(item.dtype)


def _floats(item: TensorSpec, shape: tuple[int, ...], style: str, rng: np.random.Generator) -> np.ndarray:
    low, high = item.values.low, item.values.high
    if low is not None and high is not None:
        plain = rng.uniform(low, high, shape)
        ends = {"high": high, "low": low, "zeros": min(max(0.0, low), high)}
        if style in ends:
            return np.full(shape, ends[style])
        if style in ("edge", "sparse"):
            picked = rng.choice([low, high, min(max(0.0, low), high)], shape)
            plain = np.where(rng.random(shape) < 0.3, picked, plain)
        return _by_rows(plain, np.full(shape, rng.choice([low, high, min(max(0.0, low), high)])), style, rng)
    plain = rng.standard_normal(shape)
    if style == "zeros":
        return np.zeros(shape)
    if style == "sparse":
        return np.where(rng.random(shape) < 0.3, 0.0, plain)
    if style in ("edge", "wide"):
        return plain * np.where(rng.random(shape) < 0.3, 20.0, 1.0)
    if style in ("high", "low"):
        return np.abs(plain) * (15.0 if style == "high" else -15.0)
    return _by_rows(plain, np.zeros(shape) + rng.choice([0.0, 27.0, -27.0]), style, rng)


def _by_rows(plain: np.ndarray, edge: np.ndarray, style: str, rng: np.random.Generator) -> np.ndarray:
    if style != "rows" or plain.ndim == 0:
        return plain
    hit = (rng.random(plain.shape[0]) < 0.4).reshape([-1] + [1] * (plain.ndim - 1))
    return np.where(hit, edge, plain)


def _mask(kind: str, shape: tuple[int, ...], style: str, rng: np.random.Generator) -> np.ndarray:
    rows, length = shape[:-1], shape[-1]
    real = _lengths(rows, length, style, rng)
    place = np.arange(length)
    left = "left" in kind or ("right" not in kind and rng.random() < 0.5)
    keep = place >= length - real[..., None] if left else place < real[..., None]
    return keep if kind.startswith("keep") else ~keep


def _lengths(rows: tuple[int, ...], most: int, style: str, rng: np.random.Generator) -> np.ndarray:
    real = rng.integers(min(1, most), most + 1, rows)
    if style in ("zeros", "high"):
        return np.full(rows, most)
    if style == "low":
        return np.full(rows, min(1, most))
    if style in ("rows", "edge"):
        picked = rng.choice([min(1, most), most, max(most - 1, min(1, most))], rows)
        return np.where(rng.random(rows) < 0.5, picked, real)
    return real


def points_of(domain: Domain, example: dict[str, int], rng: np.random.Generator) -> list[dict[str, int]]:
    """The example; every size of every dim, the others drawn; then points drawn from the whole domain."""

    def drawn() -> dict[str, int]:
        return {d.name: int(rng.choice(d.sizes)) for d in domain}

    swept = [{**drawn(), d.name: n} for d in domain for n in d.sizes for _ in range(2)]
    corners = [{d.name: int(rng.choice([d.sizes[0], d.sizes[-1]])) for d in domain} for _ in range(8)]
    order = rng.permutation(len(swept))
    return [dict(example), *corners, *[swept[i] for i in order], *[drawn() for _ in range(RANDOM_POINTS)]]


def open_session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def build_pool(path: Path, spec: tuple[TensorSpec, ...], domain: Domain, example: dict[str, int]) -> Pool:
    rng = np.random.default_rng(20260)
    session = open_session(path)
    points = points_of(domain, example, rng)
    styles = ["plain", *(str(rng.choice(STYLES)) for _ in points[1:])]
    feeds = [make_feeds(spec, point, style, rng) for point, style in zip(points, styles, strict=True)]
    answers = [list(session.run(None, one)) for one in feeds]
    scales = []
    for column in zip(*answers, strict=True):
        tops = [_top(y) for y in column if y.dtype.kind == "f"]
        scales.append(float(np.median(tops)) if tops else 0.0)
    sixteen = any(item.dtype in ("float16", "bfloat16") for item in spec)
    return Pool(points, styles, feeds, answers, scales, TOLERANCE_16 if sixteen else TOLERANCE)


def _top(y: np.ndarray) -> float:
    return float(np.abs(y[np.isfinite(y)]).max(initial=0.0))


def prove(path: Path, pool: Pool) -> Witness | str | None:
    """The first input of the pool at which the file differs; None where none does; a text where it does not load."""
    try:
        session = open_session(path)
    except Exception as error:
        return f"refused: {str(error)[:80]}"
    for index, feeds in enumerate(pool.feeds):
        try:
            got = list(session.run(None, feeds))
            what = difference(pool.answers[index], got, pool.scales, pool.tolerance)
        except Exception as error:
            what = f"error: {str(error)[:80]}"
        if what:
            return Witness(index, pool.points[index], pool.styles[index], what)
    return None


def difference(right: list[np.ndarray], got: list[np.ndarray], scales: list[float], tolerance: float) -> str:
    """In words, what differs clearly; empty where nothing does."""
    for i, (a, b) in enumerate(zip(right, got, strict=True)):
        if not isinstance(b, np.ndarray) or a.shape != b.shape or a.dtype != b.dtype:
            return f"output {i}: shape or dtype"
        if a.dtype.kind != "f":
            if not np.array_equal(a, b):
                return f"output {i}: {int((a != b).sum())} of {a.size} integers or bools"
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        if not np.array_equal(np.isfinite(x), np.isfinite(y)):
            return f"output {i}: NaN or infinity elsewhere"
        finite = np.isfinite(x)
        off = float(np.abs(x - y)[finite].max(initial=0.0))
        # An output that happens to be next to nothing everywhere has no scale by itself.
        scale = max(_top(a), 1e-3 * scales[i])
        if off > tolerance * scale:
            return f"output {i}: off by {off / scale:.2g} of its scale"
    return ""


def inner_values(path: Path, feeds: Feeds) -> dict[str, Any]:
    """Every value of the outer graph at one input."""
    model = ir.load(path)
    names = [v.name for v in model.graph.outputs]
    more = [v for node in model.graph for v in node.outputs if v.name and v.name not in names]
    for value in more:
        value.shape = None
    model.graph.outputs.extend(more)
    probe = path.with_suffix(".probe.onnx")
    ir.save(model, probe)
    try:
        session = open_session(probe)
        found = session.run(None, feeds)
        return dict(zip([o.name for o in session.get_outputs()], found, strict=True))
    finally:
        probe.unlink()


def know(path: Path, spec: tuple[TensorSpec, ...], domain: Domain, example: dict[str, int], feeds: Feeds) -> Know:
    return Know(spec, domain, example, inner_values(path, feeds) | feeds)
