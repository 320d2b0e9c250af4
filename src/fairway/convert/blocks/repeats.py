"""A network of 36 equal blocks is one block, 36 times: finds such runs, and leaves two or three blocks of each.

What is taken out leaves a gap: the container is as long as it was, and every other block stands where it stood, since
models ask for both (`layer_types[i]`, `i == len(layers) - 1`).

Two blocks are equal where their modules are of the same classes, their weights have the same shapes and dtypes, and
their plain attributes are the same, or count up from block to block as a layer's index does. What only matters in
training (names with `drop` in them) may differ in eval mode. That is a guess about the user's code; the file is judged
against the whole model like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import torch

KEPT = 3
"""Blocks that are captured unless fewer will do: the first may differ from the others in the graph, since it computes
what all share; the second and the third must not."""
FEWEST = 2
"""Blocks that are captured where the calls tell what one hands on to the next, and what all share."""
LEAST = 6
"""Blocks in a row from which on it is worth while. Of a model that has such a run the shorter ones count too."""

_PLAIN = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device)


@dataclass(frozen=True)
class Repeat:
    """Equal blocks in a row, in a ModuleList or a Sequential."""

    container: str
    first: int
    count: int
    kept: int = KEPT
    """How many of them are captured, the first ones."""

    def block(self, number: int) -> str:
        """The path of the run's block with this number, from 0."""
        return f"{self.container}.{self.first + number}"


@dataclass
class ShortenedModel:
    """A model of which most blocks were taken out, and those blocks."""

    repeats: tuple[Repeat, ...] = ()
    removed: dict[str, torch.nn.Module] = field(default_factory=dict)
    """By their path."""

    def __bool__(self) -> bool:
        return bool(self.repeats)


def find_repeats(model: torch.nn.Module) -> tuple[Repeat, ...]:
    """The runs worth shortening, the outermost only: a long one before any short one around it or in it."""
    every: list[Repeat] = []
    for path, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList | torch.nn.Sequential) and path and _numbered(module):
            run = _longest([*module.children()])
            if run[1] > FEWEST:
                every.append(Repeat(path, *run))
    chosen: list[Repeat] = []
    for repeat in sorted(every, key=lambda one: one.count < LEAST):  # sorting keeps the order of equals
        if chosen or repeat.count >= LEAST:
            apart = all(not _within(repeat, other) and not _within(other, repeat) for other in chosen)
            chosen += [repeat] if apart else []
    return tuple(chosen)


def _within(one: Repeat, other: Repeat) -> bool:
    return one.container.startswith(f"{other.container}.")


def _numbered(container: torch.nn.Module) -> bool:
    """A Sequential may have names instead."""
    return [*container._modules] == [str(number) for number in range(len(container._modules))]


def shorten(model: torch.nn.Module, repeats: tuple[Repeat, ...]) -> ShortenedModel:
    """Takes all but the kept blocks of each run out of the model, for good: it is meant for a process of its own."""
    cut = ShortenedModel(repeats)
    for repeat in repeats:
        container = model.get_submodule(repeat.container)
        answer: list[Any] = []
        last = model.get_submodule(repeat.block(repeat.kept - 1))
        last.register_forward_hook(lambda block, given, said, answer=answer: answer.__setitem__(slice(None), [said]))
        for number in range(repeat.kept, repeat.count):
            path = repeat.block(number)
            block = model.get_submodule(path)
            cut.removed[path] = block
            container._modules[str(repeat.first + number)] = _gap(block, answer)
    return cut


def _gap(block: torch.nn.Module, answer: list[Any]) -> torch.nn.Module:
    """A block without weights that says what the last captured one said; otherwise it looks like what it was."""

    def call(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        return answer[0]

    gap, kind = copy(block), type(block)
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    gap.__class__ = type(kind.__name__, (kind,), {"__call__": call, **names})
    vars(gap).update(_parameters={}, _buffers={}, _modules={})
    return gap


def longer(repeats: tuple[Repeat, ...]) -> tuple[Repeat, ...]:
    """With three blocks of each where two were too few to tell; nothing where there were three already."""
    if all(repeat.kept == KEPT for repeat in repeats):
        return ()
    return tuple(replace(repeat, kept=KEPT) for repeat in repeats if repeat.count > KEPT)


def _longest(blocks: list[torch.nn.Module]) -> tuple[int, int]:
    """First and number of the longest run of equal blocks."""
    best = (0, 0)
    if len(blocks) <= FEWEST or len({id(block) for block in blocks}) < len(blocks):
        return best  # a block that stands there twice is one block with one set of weights
    known = [dict(_traits(block)) for block in blocks]
    start = 0
    steps: dict[str, int] = {}
    for i in range(1, len(blocks) + 1):
        step = _steps(known[i - 1], known[i]) if i < len(blocks) else None
        if step is None or (i - start > 1 and step != steps):
            best = max(best, (start, i - start), key=lambda run: run[1])
            start = i if step is None else i - 1
        if step is not None:
            steps = step
    return best


def _steps(one: dict[str, Any], other: dict[str, Any]) -> dict[str, int] | None:
    """By how much each counting attribute goes up; None where the two differ in anything else."""
    if one.keys() != other.keys():
        return None
    steps = {}
    for key, value in one.items():
        there = other[key]
        if type(value) is int and type(there) is int and there == value + 1:
            steps[key] = 1
        elif not _same(value, there):
            return None
    return steps


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:  # a class may say what it likes when it is compared, or not say yes or no
        return False


def _traits(block: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    for path, module in block.named_modules():
        yield f"{path}:", type(module)
        for name, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            yield f"{path}:{name}", (tensor.dtype, tuple(tensor.shape))
        for name, value in vars(module).items():
            drops = "drop" in name.lower() or isinstance(module, torch.nn.modules.dropout._DropoutNd)
            if not name.startswith("_") and (module.training or not drops):
                yield f"{path}.{name}", _trait(value)


def _trait(value: Any) -> Any:
    """Plain values count as they are, others by their class, or as the one object that all blocks share."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, list | tuple):
        return tuple(map(_trait, value))
    if callable(value) and hasattr(value, "__qualname__"):
        return value.__qualname__
    return type(value)
