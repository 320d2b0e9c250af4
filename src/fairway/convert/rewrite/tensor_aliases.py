"""Scans that read two tensors of one memory, such as a weight and its transpose, are captured all the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Private names, seen in torch 2.13; where one is missing, torch refuses such scans as before.
from torch._dynamo.variables import higher_order_ops
from torch._higher_order_ops import utils


@contextmanager
def inputs_may_share_memory() -> Iterator[None]:
    """Let scans read tensors that share memory.

    torch refuses that, because a step might write into one of them; writing is still refused here. What a step hands on
    is a copy (`repeat.py`), so it shares memory with nothing.
    """
    in_dynamo: Any = getattr(higher_order_ops, "check_aliasing_and_input_mutation", None)
    later: Any = getattr(utils, "_check_alias_and_mutation", None)

    def check(tracer: Any, graph: Any, mutation: bool, aliasing: bool, target: Any) -> None:
        in_dynamo(tracer, graph, mutation, True, target)

    def check_later(graph: Any, inputs: Any, name: str, pre_dispatch: bool) -> None:
        look: Any = utils.has_potential_input_alias_or_mutation
        _, writes = look(graph, inputs, pre_dispatch=pre_dispatch)
        if writes:
            raise RuntimeError(f"{name} might be modifying the input!")

    patches = [
        (higher_order_ops, "check_aliasing_and_input_mutation", in_dynamo, check),
        (utils, "_check_alias_and_mutation", later, check_later),
    ]
    present = [patch for patch in patches if patch[2] is not None]
    try:
        for module, name, _, new in present:
            setattr(module, name, new)
        yield
    finally:
        for module, name, original, _ in present:
            setattr(module, name, original)
