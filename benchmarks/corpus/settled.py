"""Cases made of settings.json: types that no general rule builds, by the facts that `collect.py` wrote down."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from case import Case
from torch import nn

Facts = dict[str, Any]

PLAIN_FLOATS = ("pixel_values", "input_features", "input_values", "pixel_values_videos")
"""Floats that are drawn around zero, though the tests draw them between 0 and 1."""
BOUNDS = {"batch": (1, 4), "seq": (2, 16)}


@cache
def read_facts() -> dict[str, Facts]:
    path = Path(__file__).with_name("settings.json")
    return json.loads(path.read_text()) if path.exists() else {}


class Settled(nn.Module):
    """A model whose special tokens, grids and the like are part of it: the way a team freezes them for an export."""

    def __init__(self, model: nn.Module, constants: dict[str, tuple[torch.Tensor, bool]], columns: dict[str, Any]):
        super().__init__()
        self.model = model
        self.constants = {name: rows_follow for name, (_, rows_follow) in constants.items()}
        self.columns = list(columns)
        for name, (value, _) in constants.items():
            self.register_buffer(f"constant_{name}", value)
        for name, (places, values) in columns.items():
            self.register_buffer(f"places_{name}", places)
            self.register_buffer(f"values_{name}", values)

    def run(self, given: dict[str, torch.Tensor]) -> Any:
        rows = next(iter(given.values())).shape[0]
        for name in self.columns:
            given[name] = torch.where(getattr(self, f"places_{name}"), getattr(self, f"values_{name}"), given[name])
        for name, rows_follow in self.constants.items():
            value = getattr(self, f"constant_{name}")
            given[name] = value.expand(rows, *value.shape[1:]) if rows_follow else value
        return self.model(**given)


def with_signature(names: list[str]) -> type[Settled]:
    """`Settled` with a `forward` that takes these arguments: exporters read the names off the signature."""
    pairs = ", ".join(f"{name!r}: {name}" for name in names)
    scope: dict[str, Any] = {}
    exec(f"def forward(self, {', '.join(names)}):\n    return self.run({{{pairs}}})\n", scope)
    return type("Settled", (Settled,), {"forward": scope["forward"]})


def cases(name: str, model_type: str, family: str, build: Callable[[type, Any], nn.Module]) -> Iterator[Case]:
    """The freest domain first: batch and length, then the batch, then none; masks drawn, then all ones."""
    facts = read_facts().get(model_type)
    if facts is None:
        return
    for dims in (("batch", "seq"), ("batch",), ()):
        for drawn_masks in (True, False):
            yield make_case(name, model_type, family, build, facts, dims, drawn_masks)


def make_case(
    name: str,
    model_type: str,
    family: str,
    build: Callable[[type, Any], nn.Module],
    facts: Facts,
    dims: tuple[str, ...],
    drawn_masks: bool,
) -> Case:
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = getattr(transformers, facts["class"], None) or find_hidden(model_type, facts["class"])
    config_kind = kind.config_class or CONFIG_MAPPING[model_type]
    lines: list[str] = []
    constants: dict[str, tuple[torch.Tensor, bool]] = {}
    columns: dict[str, Any] = {}
    taken = inspect.signature(kind.forward).parameters
    for fact in facts["inputs"]:
        shape = [dim if dim in dims else size for dim, size in zip(fact["dims"], fact["sizes"], strict=True)]
        values = values_of(fact, drawn_masks)
        dtype = getattr(torch, fact["dtype"])
        if fact["values"] == "mask" and len(shape) > 2 and taken[fact["name"]].default is None:
            continue  # a mask of pixels that is all ones when it is not given
        if values is None:
            stored = fact.get("fixed")
            follows = "batch" in dims and shape[:1] == ["batch"]
            sizes = [1 if follows and place == 0 else size for place, size in enumerate(fact["sizes"])]
            value = torch.ones(sizes, dtype=dtype) if stored is None else torch.tensor(stored, dtype=dtype)
            if stored is not None and fact["rows_alike"] and not follows:
                value = value.expand(fact["sizes"]).clone()
            constants[fact["name"]] = value, follows
            continue
        if fact.get("columns"):
            places = torch.zeros(fact["sizes"][-1], dtype=torch.bool)
            special = torch.zeros(fact["sizes"][-1], dtype=dtype)
            for place, id_there in fact["columns"].items():
                places[int(place)], special[int(place)] = True, id_there
            columns[fact["name"]] = places, special
        lines.append(f"{fact['name']}: {fact['dtype']}[{', '.join(map(str, shape))}]{values}")
    names = [line.split(":")[0] for line in lines]

    def make() -> nn.Module:
        model = build(kind, config_kind.from_dict(facts["config"]))
        return with_signature(names)(model, constants, columns).eval() if constants or columns else model

    return Case(name, family, make, tuple(lines), {dim: BOUNDS[dim] for dim in dims if any_has(lines, dim)})


def any_has(lines: list[str], dim: str) -> bool:
    return any(dim in line.partition("[")[2].partition("]")[0].split(", ") for line in lines)


def find_hidden(model_type: str, name: str) -> Any:
    """A class that transformers does not show at its top."""
    import importlib

    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    module = CONFIG_MAPPING[model_type].__module__.replace("configuration_", "modeling_")
    return getattr(importlib.import_module(module), name)


def values_of(fact: Facts, drawn_masks: bool) -> str | None:
    """The end of the spec line; None where the model is to hold the values."""
    match fact["values"]:
        case "mask":
            return " = keep" if drawn_masks and len(fact["sizes"]) == 2 else None
        case "fixed":
            return None
        case "normal":
            return ""
        case "unit":
            return "" if fact["name"] in PLAIN_FLOATS else " in 0..1"
    low, high = free_span(fact["least"], fact["most"], fact["special"])
    return f" in {low}..{high}"


def free_span(least: int, most: int, special: list[int]) -> tuple[int, int]:
    """The longest run of ids that mean nothing special."""
    ends = [least - 1, *(each for each in special if least <= each <= most), most + 1]
    low, high = max(pairwise(ends), key=lambda pair: pair[1] - pair[0])
    return low + 1, high - 1
