"""torch's own modules with its own samples: up to three cases for each, and one more in training where that differs."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from case import Call, Calls, Case, NoCase, flatten_samples
from torch_tests import import_torch_tests

PREFIX = "module/"
SAMPLES = 3


@functools.cache
def load_modules() -> dict[str, Any]:
    return {info.name: info for info in import_torch_tests("common_modules").module_db}


def list_names() -> list[str]:
    names = []
    for name, info in load_modules().items():
        names += [f"{PREFIX}{name}/{number}" for number in range(len(list(islice(_draw(info, 0, False), SAMPLES))))]
        if info.train_and_eval_differ:
            names.append(f"{PREFIX}{name}/training")
    return names


def _draw(info: Any, seed: int, training: bool) -> Iterator[Any]:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    drawn = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=training)
    yield from (sample for sample in drawn if sample.forward_input is not None)


def build(name: str) -> Case:
    short, _, which = name.removeprefix(PREFIX).rpartition("/")
    info = load_modules()[short]
    training = which == "training"
    number = 0 if training else int(which)

    def draw(seed: int) -> tuple[Any, Call]:
        sample = next(islice(_draw(info, seed, training), number, None), None)
        if sample is None:
            raise NoCase("no such sample")
        return sample, (tuple(sample.forward_input.args), dict(sample.forward_input.kwargs))

    sample, call = draw(0)
    torch.manual_seed(0)
    module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs)
    module = module.to(torch.float32).train(training)
    _spread(module)
    if info.is_lazy:
        with torch.no_grad():
            module(*call[0], **call[1])

    def make_inputs(seed: int) -> Call:
        tensors = flatten_samples([draw(seed)[1]])
        first = flatten_samples([call])
        alike = [(t.shape, t.dtype) for t in tensors] == [(t.shape, t.dtype) for t in first]
        return (tensors if alike else first), {}

    return Case(name, Calls(module, [call], [lambda result: result]), make_inputs)


def _spread(module: torch.nn.Module) -> None:
    """Draw weights that start all alike, such as a norm's, behind which errors do not show."""
    with torch.no_grad():
        for parameter in module.parameters():
            if isinstance(parameter, torch.nn.UninitializedParameter) or parameter.numel() < 2:
                continue
            if bool((parameter == parameter.flatten()[0]).all()):
                parameter.uniform_(0.5, 1.5)
