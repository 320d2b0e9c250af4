"""Finds runs of equal blocks, such as the 36 layers of a network, and removes all but two or three of each.

A removed block leaves a gap: the container keeps its length and every other block its place, since models use both
(`layer_types[i]`, `i == len(layers) - 1`).

Two blocks are equal if their modules are of the same classes, their weights have the same shapes and dtypes, and
their plain attributes are the same, or count up from block to block like a layer's index. Attributes for training
alone (names with `drop` in them) may differ in eval mode. This is a guess about the user's code; the file is judged
against the complete model like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from fairway.torch_internals import DropoutNd, module_children

DEFAULT_KEPT_BLOCKS = 3
"""Blocks that are captured unless fewer are enough. The first may differ from the others in the graph, since it
computes what all share; the second and the third must not."""
MIN_KEPT_BLOCKS = 2
"""Blocks that are captured if the calls show what a block passes to the next, and what all share."""
MIN_BLOCKS = 6
"""Length of a run that is worth shortening. If a model has such a run, its shorter ones are shortened too."""

_PLAIN = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device)


@dataclass(frozen=True)
class Repeat:
    """Equal blocks in a row, in a ModuleList or a Sequential."""

    container: str
    first: int
    count: int
    kept: int = DEFAULT_KEPT_BLOCKS
    """The number of blocks that are captured: the first ones."""

    def block(self, number: int) -> str:
        """Return the path of the run's block with this number, counted from 0."""
        return f"{self.container}.{self.first + number}"


@dataclass
class ShortenedModel:
    """The runs of a model from which blocks were removed, and those blocks."""

    repeats: tuple[Repeat, ...] = ()
    removed: dict[str, torch.nn.Module] = field(default_factory=dict)
    """By their path."""

    def __bool__(self) -> bool:
        return bool(self.repeats)


def find_repeats(model: torch.nn.Module) -> tuple[Repeat, ...]:
    """Return the outermost runs that are worth shortening. A long run is chosen before a short one around or in it."""
    every: list[Repeat] = []
    for path, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList | torch.nn.Sequential) and path and _is_numbered(module):
            run = _find_longest_run([*module.children()])
            if run[1] > MIN_KEPT_BLOCKS:
                every.append(Repeat(path, *run))
    chosen: list[Repeat] = []
    for repeat in sorted(every, key=lambda repeat: repeat.count < MIN_BLOCKS):  # sorting keeps the order of equals
        if chosen or repeat.count >= MIN_BLOCKS:
            apart = all(not _is_within(repeat, other) and not _is_within(other, repeat) for other in chosen)
            chosen += [repeat] if apart else []
    return tuple(chosen)


def _is_within(repeat: Repeat, other: Repeat) -> bool:
    return repeat.container.startswith(f"{other.container}.")


def _is_numbered(container: torch.nn.Module) -> bool:
    """Return whether the blocks are named by numbers. A Sequential may have other names."""
    return [*module_children(container)] == [str(number) for number in range(len(module_children(container)))]


def shorten_model(model: torch.nn.Module, repeats: tuple[Repeat, ...]) -> ShortenedModel:
    """Remove all but the kept blocks of each run. The model stays changed, so this must run in a worker process."""
    cut = ShortenedModel(repeats)
    for repeat in repeats:
        container = model.get_submodule(repeat.container)
        output: list[object] = []
        last = model.get_submodule(repeat.block(repeat.kept - 1))
        last.register_forward_hook(partial(_store_output, output))
        for number in range(repeat.kept, repeat.count):
            path = repeat.block(number)
            block = model.get_submodule(path)
            cut.removed[path] = block
            module_children(container)[str(repeat.first + number)] = _make_gap(block, output)
    return cut


def _store_output(store: list[object], block: torch.nn.Module, inputs: object, output: object) -> None:
    store[:] = [output]


def _make_gap(block: torch.nn.Module, output: list[object]) -> torch.nn.Module:
    """Return a block of the same class without weights that returns the output of the last captured block."""

    def call(self: torch.nn.Module, *args: object, **kwargs: object) -> object:
        return output[0]

    gap, kind = copy(block), type(block)
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    gap.__class__ = type(kind.__name__, (kind,), {"__call__": call, **names})
    vars(gap).update(_parameters={}, _buffers={}, _modules={})
    return gap


def keep_more_blocks(repeats: tuple[Repeat, ...]) -> tuple[Repeat, ...]:
    """Return the runs with three captured blocks each, to try if two were too few. Empty if all have three already."""
    if all(repeat.kept == DEFAULT_KEPT_BLOCKS for repeat in repeats):
        return ()
    return tuple(replace(repeat, kept=DEFAULT_KEPT_BLOCKS) for repeat in repeats if repeat.count > DEFAULT_KEPT_BLOCKS)


def _find_longest_run(blocks: list[torch.nn.Module]) -> tuple[int, int]:
    """Return the start and the length of the longest run of equal blocks."""
    best = (0, 0)
    if len(blocks) <= MIN_KEPT_BLOCKS or len({id(block) for block in blocks}) < len(blocks):
        return best  # a block that occurs twice is one block with one set of weights
    known = [dict(_find_traits(block)) for block in blocks]
    start = 0
    steps: dict[str, int] = {}
    for i in range(1, len(blocks) + 1):
        step = _find_steps(known[i - 1], known[i]) if i < len(blocks) else None
        if step is None or (i - start > 1 and step != steps):
            best = max(best, (start, i - start), key=lambda run: run[1])
            start = i if step is None else i - 1
        if step is not None:
            steps = step
    return best


def _find_steps(traits: dict[str, object], other: dict[str, object]) -> dict[str, int] | None:
    """Return the step of each counting attribute, or None if the blocks differ in anything else."""
    if traits.keys() != other.keys():
        return None
    steps = {}
    for key, value in traits.items():
        next_value = other[key]
        if isinstance(value, int) and type(value) is type(next_value) is int and next_value == value + 1:
            steps[key] = 1
        elif not _is_equal(value, next_value):
            return None
    return steps


def _is_equal(value: object, other: object) -> bool:
    if value is other:
        return True
    try:
        return type(value) is type(other) and bool(value == other)
    except Exception:  # a class's own comparison may fail, or return something that is neither true nor false
        return False


def _find_traits(block: torch.nn.Module) -> Iterator[tuple[str, object]]:
    for path, module in block.named_modules():
        yield f"{path}:", type(module)
        for name, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            yield f"{path}:{name}", (tensor.dtype, tuple(tensor.shape))
        for name, value in vars(module).items():
            is_dropout = "drop" in name.lower() or isinstance(module, DropoutNd)
            if not name.startswith("_") and (module.training or not is_dropout):
                yield f"{path}.{name}", _describe_value(value)


def _describe_value(value: object) -> object:
    """Return a plain value itself, a function's name, and for other objects the class."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, list | tuple):
        return tuple(map(_describe_value, value))
    if callable(value) and hasattr(value, "__qualname__"):
        return value.__qualname__
    return type(value)
