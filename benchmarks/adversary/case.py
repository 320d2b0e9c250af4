"""The three kinds of cases and their tables: traps, wrong files, right files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn

Call = dict[str, Any]
"""Keyword arguments of `forward`: tensors, lists of tensors, Python numbers."""

Probes = Callable[[], list[Call]]
"""Makes legal inputs. The first is an ordinary one; stock exporters get it as their example."""

Bounds = Mapping[str, tuple[int, int]]
Route = Literal["dynamo", "trace", "script"]

_LINE = re.compile(r"\s*([\w.]+)\s*:\s*(\w+)\[([^\]]*)\]\s*(.*)")


@dataclass(frozen=True)
class Line:
    """One spec line, read without Fairway's parser."""

    name: str
    dtype: str
    sizes: tuple[str, ...]
    values: str


def read_line(text: str) -> Line:
    match = _LINE.match(text)
    assert match is not None, text
    sizes = tuple(part.strip() for part in match[3].split(",") if part.strip())
    return Line(match[1], match[2], sizes, match[4].strip())


@dataclass(frozen=True)
class Declared:
    """The inputs that a user declares: spec lines, example tensors with dims, or a function that makes inputs."""

    lines: tuple[str, ...] = ()
    example: Callable[[], Any] | None = None
    function: Callable[..., Any] | None = None
    dims: Mapping[str, str] | None = None
    bounds: Bounds = field(default_factory=dict)
    multiples: Mapping[str, int] = field(default_factory=dict)

    def make_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments for `fairway.export` and `fairway.verify`."""
        torch.manual_seed(0)
        inputs: Any = list(self.lines)
        if self.function is not None:
            inputs = self.function
        elif self.example is not None:
            inputs = self.example()
        return {
            "inputs": inputs,
            "dims": dict(self.dims) if self.dims else None,
            "bounds": dict(self.bounds) or None,
            "multiples": dict(self.multiples) or None,
        }

    def find_axes(self) -> dict[str, dict[int, str]]:
        """Return the named axes of each input."""
        shapes = {line.name: line.sizes for line in map(read_line, self.lines)}
        shapes |= {name: tuple(words.split()) for name, words in (self.dims or {}).items()}
        return {n: {i: s for i, s in enumerate(sizes) if not s.isdigit()} for n, sizes in shapes.items()}


@dataclass(frozen=True)
class Trap:
    """A model to export, and legal inputs at which a wrong file shows.

    `sequence`: the file must also agree with one model that answers all probes in order, for models with state.
    `no_right_file`: the reason why every verified file is wrong (the model's answers are not a function of its inputs).
    `rows`: "dependent" if a row's answer depends on the other rows. The record must then not call rows independent.
    `must_name`: an argument that is constant in the file; the result must name it.
    """

    name: str
    category: str
    build: Callable[[], nn.Module]
    declared: Declared
    probes: Probes
    why: str
    sequence: bool = False
    no_right_file: str = ""
    rows: Literal["", "dependent"] = ""
    must_name: str = ""
    elementwise: bool = False
    tolerance: float = 1e-3


@dataclass(frozen=True)
class WrongFile:
    """A right model and a wrong file, made from the model by one of three mistakes.

    `forward` replaces the model's, `alter` changes the model's weights, `mutate` changes the exported graph.
    """

    name: str
    category: str
    build: Callable[[], nn.Module]
    declared: Declared
    probes: Probes
    mistake: str
    route: Route
    forward: Callable[..., Any] | None = None
    alter: Callable[[Any], None] | None = None
    mutate: Callable[[Any], None] | None = None
    elementwise: bool = False
    sequence: bool = False
    tolerance: float = 1e-3


@dataclass(frozen=True)
class RightFile:
    """A model whose stock export is right; `check` replaces the plain comparison where decisions may differ at ties."""

    name: str
    category: str
    build: Callable[[], nn.Module]
    declared: Declared
    probes: Probes
    route: Route
    why: str
    check: Callable[[Call, Sequence[Any], Sequence[Any]], str] | None = None
    draw: bool = True
    tolerance: float = 1e-3


TRAPS: dict[str, Trap] = {}
WRONG_FILES: dict[str, WrongFile] = {}
RIGHT_FILES: dict[str, RightFile] = {}


def build_seeded(kind: Callable[[], nn.Module], training: bool = False) -> Callable[[], nn.Module]:
    """Return a factory that builds the same model each time."""

    def build() -> nn.Module:
        torch.manual_seed(0)
        return kind().train(training)

    return build


def trap(
    category: str,
    why: str,
    *lines: str,
    probes: Probes,
    name: str = "",
    example: Callable[[], Any] | None = None,
    function: Callable[..., Any] | None = None,
    dims: Mapping[str, str] | None = None,
    bounds: Bounds | None = None,
    multiples: Mapping[str, int] | None = None,
    training: bool = False,
    **settings: Any,
) -> Callable[[type[nn.Module]], type[nn.Module]]:
    """Enter a module class as a trap under its own name, or under `name`."""
    declared = Declared(lines, example, function, dims, bounds or {}, multiples or {})

    def enter(kind: type[nn.Module]) -> type[nn.Module]:
        key = name or kind.__name__
        assert key not in TRAPS, key
        TRAPS[key] = Trap(key, category, build_seeded(kind, training), declared, probes, why, **settings)
        return kind

    return enter


def wrong(
    right: Callable[[], nn.Module],
    category: str,
    *lines: str,
    probes: Probes,
    forwards: Mapping[str, Callable[..., Any]] | None = None,
    alters: Mapping[str, Callable[[Any], None]] | None = None,
    mutations: Mapping[str, Callable[[Any], None]] | None = None,
    route: Route = "dynamo",
    example: Callable[[], Any] | None = None,
    dims: Mapping[str, str] | None = None,
    bounds: Bounds | None = None,
    prefix: str = "",
    **settings: Any,
) -> None:
    """Enter one wrong file for each mistake; the mapping's keys say what the mistake is."""
    declared = Declared(lines, example, None, dims, bounds or {})
    prefix = prefix or getattr(right, "__name__", "")
    kinds = (("forward", forwards), ("alter", alters), ("mutate", mutations))
    for kind, mistakes in kinds:
        for mistake, function in (mistakes or {}).items():
            name = f"{prefix}/{mistake}"
            assert name not in WRONG_FILES, name
            options = {**settings, kind: function}
            WRONG_FILES[name] = WrongFile(
                name, category, build_seeded(right), declared, probes, mistake, route, **options
            )


def right(
    category: str,
    why: str,
    *lines: str,
    probes: Probes,
    routes: Sequence[Route] = ("dynamo", "trace"),
    name: str = "",
    example: Callable[[], Any] | None = None,
    dims: Mapping[str, str] | None = None,
    bounds: Bounds | None = None,
    **settings: Any,
) -> Callable[[type[nn.Module]], type[nn.Module]]:
    """Enter a module class as right files, one for each route."""
    declared = Declared(lines, example, None, dims, bounds or {})

    def enter(kind: type[nn.Module]) -> type[nn.Module]:
        for route in routes:
            key = f"{name or kind.__name__}/{route}"
            assert key not in RIGHT_FILES, key
            RIGHT_FILES[key] = RightFile(key, category, build_seeded(kind), declared, probes, route, why, **settings)
        return kind

    return enter
