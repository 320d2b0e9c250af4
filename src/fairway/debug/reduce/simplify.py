"""Simplify what is left of a program: smaller sizes, common dtypes and fewer constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import torch

from fairway.debug.reduce.draw import draw_like
from fairway.debug.reduce.program import Program, Ref, Value

FailureTest = Callable[[Program], bool]

_ORDINARY_DTYPES = {
    torch.float64: torch.float32,
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.complex128: torch.complex64,
    torch.int32: torch.int64,
    torch.int16: torch.int64,
    torch.int8: torch.int64,
    torch.uint8: torch.int64,
}


def use_plain_dtypes(program: Program, fails: FailureTest, is_time_up: Callable[[], bool]) -> Program:
    """Replace rare dtypes by common ones, everywhere."""
    for rare in _ORDINARY_DTYPES.keys() & _list_dtypes(program):
        part = _cast(program, rare, _ORDINARY_DTYPES[rare])
        if not is_time_up() and fails(part):
            program = part
    return program


def _cast(program: Program, rare: torch.dtype, ordinary: torch.dtype) -> Program:
    def cast(tensor: torch.Tensor, ref: Ref) -> torch.Tensor:
        if tensor.dtype != rare:
            return tensor
        fresh = tensor.detach().to(ordinary)
        return draw_like(fresh) if torch.equal(tensor, draw_like(tensor)) else fresh

    return _map_values(program, cast, lambda item: ordinary if item is rare else item)


def use_small_sizes(program: Program, fails: FailureTest, is_time_up: Callable[[], bool]) -> Program:
    """Replace each fixed size by a small one, in tensors and arguments."""
    small = [n for n in range(2, 9) if n not in program.dims][:2]
    fixed = {n for tensor in _list_tensors(program) for n in tensor.shape} - program.dims.keys()
    for old in sorted(fixed, reverse=True):
        for new in small:
            if is_time_up() or old <= new:
                continue
            part = _resize(program, old, new)
            if fails(part):
                program = part
                break
    return program


def use_plain_constants(program: Program, fails: FailureTest, is_time_up: Callable[[], bool]) -> Program:
    """Drop keyword arguments and last arguments, and replace numbers by 1.0, if the failure stays the same."""
    for place in range(len(program.calls)):
        while not is_time_up():
            for call in _list_plainer_calls(program.calls[place]):
                part = replace(program, calls=(*program.calls[:place], call, *program.calls[place + 1 :]))
                if not is_time_up() and fails(part):
                    program = part
                    break
            else:
                break
    return program


def _list_plainer_calls(call: Value) -> Iterator[Value]:
    for name in call.kwargs:
        yield replace(call, kwargs={key: value for key, value in call.kwargs.items() if key != name})
    # `v1 - 2` and `v1[0]` need their operands.
    needs_operands = not call.is_operator or call.name.split(".")[-1].startswith("__")
    if len(call.args) > 1 and not needs_operands and not isinstance(call.args[-1], Ref | tuple | list):
        yield replace(call, args=call.args[:-1])
    for i, item in enumerate(call.args):
        if isinstance(item, float) and item != 1.0:
            yield replace(call, args=(*call.args[:i], 1.0, *call.args[i + 1 :]))


def _resize(program: Program, old: int, new: int) -> Program:
    """Replace a size; an axis is affected if it has the old size at the example."""
    at_example = {**program.seen, **program.weights}

    def cut(tensor: torch.Tensor, ref: Ref) -> torch.Tensor:
        kept = tensor.detach()
        for axis, n in enumerate(at_example[ref].shape):
            if n == old and kept.shape[axis] == old:
                kept = kept.narrow(axis, 0, new)
        fresh = draw_like(kept) if torch.equal(tensor, draw_like(tensor)) else kept.clone()
        return fresh.requires_grad_(tensor.requires_grad)

    return _map_values(program, cut, lambda item: new if type(item) is int and item == old else item)


def _map_values(
    program: Program, tensor: Callable[[torch.Tensor, Ref], torch.Tensor], constant: Callable[[Value], Value]
) -> Program:
    """Pass every input, every weight and every constant of a call through a function."""

    def table(values: Mapping[Ref, Value]) -> dict[Ref, Value]:
        return {**values, **{ref: tensor(values[ref], ref) for ref in program.inputs}}

    calls = tuple(
        replace(call, args=_map_constants(call.args, constant), kwargs=_map_constants(dict(call.kwargs), constant))
        for call in program.calls
    )
    return replace(
        program,
        calls=calls,
        seen=table(program.seen),
        others=tuple(map(table, program.others)),
        weights={ref: tensor(value, ref) for ref, value in program.weights.items()},
    )


def _map_constants(tree: Value, constant: Callable[[Value], Value]) -> Value:
    if isinstance(tree, dict):
        return {key: _map_constants(value, constant) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        made = [_map_constants(item, constant) for item in tree]
        return made if isinstance(tree, list) else tuple(made)
    return tree if isinstance(tree, Ref | slice) else constant(tree)


def _list_tensors(program: Program) -> list[torch.Tensor]:
    return [*(program.seen[ref] for ref in program.inputs), *program.weights.values()]


def _list_dtypes(program: Program) -> set[torch.dtype]:
    given = [item for call in program.calls for item in (*call.args, *call.kwargs.values())]
    return {t.dtype for t in _list_tensors(program)} | {item for item in given if isinstance(item, torch.dtype)}
