"""Score a file with none of Fairway's code: other seeds and sizes, and the corpus' plain comparison."""

from __future__ import annotations

import copy
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from case import Case, NoCase, list_tensors
from torch.utils._pytree import tree_leaves

CORPUS = Path(__file__).parents[1] / "corpus"
SEEDS = (0, 101, 102, 103)


def _load_comparison() -> Any:
    """The corpus' `compare`. Its module imports others by short names, so they are found first."""
    sys.path.append(str(CORPUS))
    spec = importlib.util.spec_from_file_location("corpus_check", CORPUS / "check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    mine = sys.modules.pop("case", None)
    try:
        sys.path.insert(0, str(CORPUS))
        sys.modules["corpus_check"] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(CORPUS))
        if mine is not None:
            sys.modules["case"] = mine
    return module


compare = _load_comparison().compare


def list_points(case: Case) -> Iterator[dict[str, int]]:
    """The sizes to run: the example's, then both ends, then between."""
    yield dict(choose_example(case))
    for end in (0, 1):
        if case.bounds:
            yield {name: bounds[end] for name, bounds in case.bounds.items()}
    if case.bounds:
        yield {name: min(bounds[1], bounds[0] + 3 + place) for place, (name, bounds) in enumerate(case.bounds.items())}


def choose_example(case: Case) -> Mapping[str, int]:
    return {name: min(high, low + 2 + place) for place, (name, (low, high)) in enumerate(case.bounds.items())}


def run_eager(case: Case, seed: int, sizes: Mapping[str, int]) -> list[torch.Tensor]:
    args, kwargs = case.make_inputs(seed, **sizes)
    torch.manual_seed(0)
    with torch.no_grad():
        return [tensor.detach().clone() for tensor in list_tensors(copy.deepcopy(case.module)(*args, **kwargs))]


def refuse(case: Case) -> None:
    """Raise `NoCase` if there is nothing to compare a file with."""
    for sizes in list_points(case):
        first = run_eager(case, 0, sizes)
        if not first:
            raise NoCase("it returns no tensor")
        if any(result.layout != torch.strided or result.is_quantized for result in first):
            raise NoCase("it returns sparse or quantized tensors")
        torch.rand(1)
        with torch.random.fork_rng():
            args, kwargs = case.make_inputs(0, **sizes)
            torch.manual_seed(1)
            with torch.no_grad():
                again = list_tensors(copy.deepcopy(case.module)(*args, **kwargs))
        for a, b in zip(first, again, strict=True):
            if a.shape != b.shape or not torch.equal(torch.nan_to_num(a.float()), torch.nan_to_num(b.float())):
                raise NoCase("its results are random")


def score(case: Case, path: Path) -> tuple[str, str]:
    """Return `right`, or how the file is not right, and a note."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        return "refuses", _shorten(error)
    for sizes in list_points(case):
        for seed in SEEDS:
            expected = run_eager(case, seed, sizes)
            args, kwargs = case.make_inputs(seed, **sizes)
            leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
            place = f"seed {seed}{f' at {sizes}' if sizes else ''}"
            try:
                got = session.run(None, _match_inputs(session, leaves))
            except Exception as error:
                return "refuses", f"{place}: {_shorten(error)}"
            difference = compare(expected, got)
            if difference is not None:
                return "wrong", f"{place}: {difference}"
    return "right", ""


def _match_inputs(session: Any, leaves: list[torch.Tensor]) -> dict[str, Any]:
    """Return the feeds, in order. Exporters drop inputs that nothing reads, and keep the order of the others."""
    names = [item.name for item in session.get_inputs()]
    arrays = [_to_array(leaf) for leaf in leaves]
    if len(names) == len(arrays):
        return dict(zip(names, arrays, strict=True))
    numbers = [int(digits) if (digits := name.rpartition("_")[2]).isdigit() else None for name in names]
    if all(number is not None and number < len(arrays) for number in numbers):
        return {name: arrays[number] for name, number in zip(names, numbers, strict=True) if number is not None}
    raise ValueError(f"the file has the inputs {names}, the call {len(arrays)} tensors")


def _to_array(tensor: torch.Tensor) -> Any:
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.detach().contiguous().numpy()


def _shorten(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
