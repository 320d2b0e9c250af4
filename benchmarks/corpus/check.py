"""The checker that scores the corpus: other points, other seeds and plain tolerances, and none of Fairway's code."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from case import Case
from draw import Sizes, draw, points

TOLERANCE = {"float16": 3e-2, "bfloat16": 1.5e-1, "float32": 1e-3, "float64": 1e-5, "complex64": 1e-3}
"""Relative to the largest magnitude of the output at that sample."""

FLOOR = 1e-6
COARSE = 2e-3
"""Added to that; the larger for 16 bits, where a small number is what is left of larger ones."""

SEEDS = (101, 102)
MORE = (101, 102, 103, 104, 105, 106)
"""At the example's sizes, so that a file wrong for some values there is not taken for one wrong elsewhere only."""


@dataclass(frozen=True)
class Score:
    """`right`, or how it is not: refuses, wrong (at the example's sizes), baked, wrong elsewhere."""

    outcome: str
    note: str = ""


def call(model: torch.nn.Module, roots: Mapping[str, Any], only: Sequence[str] = ()) -> list[torch.Tensor]:
    """The model's tensors, in order, with the arguments given as its signature asks; or `only` some, by name."""
    args, kwargs = arrange(model, roots)
    with torch.no_grad():
        answer = model(*args, **kwargs)
    return tensors([answer[name] for name in only] if only else answer)


def arrange(model: torch.nn.Module, roots: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments, both in the order of the signature."""
    taken = inspect.signature(model.forward).parameters
    order = [name for name in dict.fromkeys((*taken, *roots)) if name in roots]
    plain = [name for name, one in taken.items() if one.kind == one.POSITIONAL_OR_KEYWORD]
    leading = plain[: next((i for i, name in enumerate(plain) if name not in roots), len(plain))]
    return tuple(roots[name] for name in leading), {name: roots[name] for name in order if name not in leading}


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    elif is_dataclass(value):
        value = [getattr(value, field.name) for field in fields(value)]
    if isinstance(value, list | tuple):
        return [one for each in value for one in tensors(each)]
    if hasattr(value, "to_legacy_cache"):
        return tensors(value.to_legacy_cache())
    return []


def legal(case: Case) -> str:
    """Return why a case is not legal: PyTorch refuses it, returns nothing, or differs from run to run. Empty if it is
    one."""
    model = case.build()
    if not case.impossible and _random(case):
        return "in eval mode, too, it answers otherwise each time: no file can be right or wrong"
    for sizes in points(case, seed=5):
        for seed in SEEDS:
            try:
                answer = call(model, draw(case, sizes, seed)[1])
            except Exception as error:
                return f"PyTorch refuses {dict(sizes)}: {type(error).__name__}: {_line(error)}"
            if not answer:
                return "it answers with no tensor"
    return ""


def _random(case: Case) -> bool:
    model = case.build().eval()
    inputs = draw(case, next(iter(points(case, seed=5))), SEEDS[0])[1]
    try:
        first, second = call(model, inputs), call(model, inputs)
    except Exception:
        return False  # for `legal` to say
    return any(not torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) for a, b in zip(first, second, strict=True))


def score(case: Case, model: torch.nn.Module, path: Path, example: Sizes, some: bool = False) -> Score:
    """Runs the file all over the domain; `example` are the sizes it was exported at.

    A tool that chooses what to return is judged by what it returned: `some`, by name.
    """
    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        return Score("refuses", _line(error))
    only = [one.name for one in session.get_outputs()] if some else []
    here = _at(case, model, session, example, only, MORE)
    if here is not None:
        return Score("refuses" if here.startswith("runtime") else "wrong", here)
    first = ""
    numbers = False
    for sizes in points(case, seed=5):
        found = _at(case, model, session, sizes, only)
        if found is not None:
            first = first or f"at {dict(sizes)}: {found}"
            numbers = numbers or found.startswith("numbers")
    if first:
        return Score("wrong elsewhere" if numbers else "baked", first)
    return Score("right")


def _at(
    case: Case, model: torch.nn.Module, session: Any, sizes: Sizes, only: Sequence[str], seeds: Sequence[int] = SEEDS
) -> str | None:
    """Return a line on what is wrong at these sizes. It begins with the kind of error."""
    wanted = {one.name: one for one in session.get_inputs()}
    for seed in seeds:
        flat, roots = draw(case, sizes, seed)
        expected = [one.detach().clone() for one in call(model, roots, only)]
        with ties_in_order():
            otherwise = [one.detach().clone() for one in call(model, draw(case, sizes, seed)[1], only)]
        flat, _ = draw(case, sizes, seed)  # drawn again: a model may write into its inputs
        flat |= {name: made for name in set(wanted) - set(flat) if (made := _filled_in(name, flat)) is not None}
        if not set(wanted) <= set(flat):
            return f"runtime: the file asks for {', '.join(sorted(set(wanted) - set(flat)))}"
        try:
            got = session.run(None, {name: _array(flat[name]) for name in wanted})
        except Exception as error:
            return f"runtime: {_line(error)}"
        real = _real(flat)
        found = compare(expected, got, coarsest(model), real)
        if found is not None and compare(otherwise, got, coarsest(model), real) is not None:
            return found
    return None


def _filled_in(name: str, flat: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
    """Return the defaults of arguments of a transformers model that some exporters turn into inputs."""
    ids = flat.get("input_ids")
    if ids is not None and name == "token_type_ids":
        return torch.zeros_like(ids)
    if ids is not None and name == "position_ids":
        return torch.arange(ids.shape[1]).expand_as(ids)
    return None


def _real(flat: Mapping[str, torch.Tensor]) -> Any:
    """Return the positions without padding of a transformer with one sequence. Outputs at the others are not used."""
    mask = flat.get("attention_mask")
    return None if mask is None or "decoder_input_ids" in flat else mask.bool().numpy()


@contextmanager
def ties_in_order() -> Iterator[None]:
    """`topk` with the first of equal elements first. PyTorch promises no order, so that answer is right too."""
    original, method = torch.topk, torch.Tensor.topk

    def topk(x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
        found = torch.sort(x, dim=dim, descending=largest, stable=True)
        return torch.return_types.topk((found[0].narrow(dim, 0, k), found[1].narrow(dim, 0, k)))

    torch.topk, torch.Tensor.topk = topk, topk
    try:
        yield
    finally:
        torch.topk, torch.Tensor.topk = original, method


def coarsest(model: torch.nn.Module) -> float:
    """The tolerance for the narrowest weights: what was computed with them has no more digits, whatever it became."""
    return max((TOLERANCE.get(str(p.dtype).removeprefix("torch."), 0.0) for p in model.parameters()), default=0.0)


def compare(expected: Sequence[torch.Tensor], got: Sequence[Any], least: float = 0.0, real: Any = None) -> str | None:
    if len(expected) != len(got):
        return f"shape: {len(expected)} outputs expected, {len(got)} there"
    for number, (ours, theirs) in enumerate(zip(expected, got, strict=True)):
        kind = str(ours.dtype).removeprefix("torch.")
        if tuple(ours.shape) != tuple(theirs.shape):
            return f"shape of output {number}: {list(ours.shape)} expected, {list(theirs.shape)} there"
        if ours.dtype.is_complex:
            ours, theirs = torch.view_as_real(ours), np.stack([theirs.real, theirs.imag], -1)
        a, b = _array(ours).astype(np.float64), np.asarray(theirs).astype(np.float64)
        if real is not None and a.shape[:2] == real.shape:
            a, b = a[real], b[real]
        if kind not in TOLERANCE:
            if not np.array_equal(a, b):
                return f"numbers of output {number}: {int((a != b).sum())} of {a.size} differ"
            continue
        finite = a[np.isfinite(a)]
        relative = max(TOLERANCE[kind], least)
        allowed = relative * (np.abs(finite).max() if finite.size else 0.0) + (FLOOR if relative < 1e-2 else COARSE)
        if not np.allclose(b, a, rtol=0, atol=allowed, equal_nan=True):
            if np.isnan(b).sum() > np.isnan(a).sum():
                return f"numbers of output {number}: NaN at {int(np.isnan(b).sum())} of {b.size} places"
            with np.errstate(invalid="ignore"):
                return f"numbers of output {number}: off by {np.nanmax(np.abs(a - b)):.3g}, {allowed:.3g} allowed"
    return None


def _array(tensor: torch.Tensor) -> Any:
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        return tensor.detach().contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.detach().contiguous().numpy()


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
