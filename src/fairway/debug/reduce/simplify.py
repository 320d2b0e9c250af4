"""What is left of a program in smaller sizes, ordinary dtypes and fewer constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from fairway.debug.reduce.draw import draw
from fairway.debug.reduce.program import Program, Ref

Fails = Callable[[Program], bool]

_ORDINARY = {
    torch.float64: torch.float32,
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.complex128: torch.complex64,
    torch.int32: torch.int64,
    torch.int16: torch.int64,
    torch.int8: torch.int64,
    torch.uint8: torch.int64,
}


def plain_dtypes(program: Program, fails: Fails, enough: Callable[[], bool]) -> Program:
    """The ordinary dtype in place of a rare one, everywhere."""
    for rare in _ORDINARY.keys() & _dtypes(program):
        part = _cast(program, rare, _ORDINARY[rare])
        if not enough() and fails(part):
            program = part
    return program


def _cast(program: Program, rare: torch.dtype, ordinary: torch.dtype) -> Program:
    def cast(tensor: torch.Tensor, ref: Ref) -> torch.Tensor:
        if tensor.dtype != rare:
            return tensor
        fresh = tensor.detach().to(ordinary)
        return draw(fresh) if torch.equal(tensor, draw(tensor)) else fresh

    return _reshaped(program, cast, lambda item: ordinary if item is rare else item)


def small_sizes(program: Program, fails: Fails, enough: Callable[[], bool]) -> Program:
    """A few in place of each fixed size, in tensors and in what calls are given."""
    few = [n for n in range(2, 9) if n not in program.dims][:2]
    fixed = {n for tensor in _tensors(program) for n in tensor.shape} - program.dims.keys()
    for old in sorted(fixed, reverse=True):
        for new in few:
            if enough() or old <= new:
                continue
            part = _resized(program, old, new)
            if fails(part):
                program = part
                break
    return program


def plain_constants(program: Program, fails: Fails, enough: Callable[[], bool]) -> Program:
    """Without what calls are given by name or at the end, and with 1.0 for other numbers, where nothing hangs on it."""
    for place in range(len(program.calls)):
        while not enough():
            for call in _plainer(program.calls[place]):
                part = replace(program, calls=(*program.calls[:place], call, *program.calls[place + 1 :]))
                if not enough() and fails(part):
                    program = part
                    break
            else:
                break
    return program


def _plainer(call: Any) -> Iterator[Any]:
    for name in call.kwargs:
        yield replace(call, kwargs={key: value for key, value in call.kwargs.items() if key != name})
    operands = not call.computes or call.name.split(".")[-1].startswith("__")  # `v1 - 2`, `v1[0]`: not without the 2
    if len(call.args) > 1 and not operands and not isinstance(call.args[-1], Ref | tuple | list):
        yield replace(call, args=call.args[:-1])
    for i, item in enumerate(call.args):
        if isinstance(item, float) and item != 1.0:
            yield replace(call, args=(*call.args[:i], 1.0, *call.args[i + 1 :]))


def _resized(program: Program, old: int, new: int) -> Program:
    """The program with another size; axes are those that have the old one at the example."""
    at_example = {**program.seen, **program.weights}

    def cut(tensor: torch.Tensor, ref: Ref) -> torch.Tensor:
        kept = tensor.detach()
        for axis, n in enumerate(at_example[ref].shape):
            if n == old and kept.shape[axis] == old:
                kept = kept.narrow(axis, 0, new)
        fresh = draw(kept) if torch.equal(tensor, draw(tensor)) else kept.clone()
        return fresh.requires_grad_(tensor.requires_grad)

    return _reshaped(program, cut, lambda item: new if type(item) is int and item == old else item)


def _reshaped(
    program: Program, tensor: Callable[[torch.Tensor, Ref], torch.Tensor], constant: Callable[[Any], Any]
) -> Program:
    """Every input and weight, and every constant of a call, through a function."""

    def table(values: Mapping[Ref, Any]) -> dict[Ref, Any]:
        return {**values, **{ref: tensor(values[ref], ref) for ref in program.inputs}}

    calls = tuple(
        replace(call, args=_mapped(call.args, constant), kwargs=_mapped(dict(call.kwargs), constant))
        for call in program.calls
    )
    return replace(
        program,
        calls=calls,
        seen=table(program.seen),
        others=tuple(map(table, program.others)),
        weights={ref: tensor(value, ref) for ref, value in program.weights.items()},
    )


def _mapped(tree: Any, constant: Callable[[Any], Any]) -> Any:
    if isinstance(tree, dict):
        return {key: _mapped(value, constant) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        made = [_mapped(item, constant) for item in tree]
        return made if isinstance(tree, list) else tuple(made)
    return tree if isinstance(tree, Ref | slice) else constant(tree)


def _tensors(program: Program) -> list[torch.Tensor]:
    return [*(program.seen[ref] for ref in program.inputs), *program.weights.values()]


def _dtypes(program: Program) -> set[torch.dtype]:
    given = [item for call in program.calls for item in (*call.args, *call.kwargs.values())]
    return {t.dtype for t in _tensors(program)} | {item for item in given if isinstance(item, torch.dtype)}
