"""Capture scans that read two tensors that share memory, such as a weight and its transpose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fairway import torch_internals
from fairway.torch_internals import is_available, read_internal, replace_internals


@contextmanager
def allow_shared_inputs() -> Iterator[None]:
    """Let scans read tensors that share memory.

    torch refuses that, because a step might write into one of them. Writing is still refused here. A step returns
    copies (`repeat.py`), which share memory with nothing.
    """

    def check(tracer: object, graph: object, mutation: bool, aliasing: bool, target: object) -> None:
        check_in_dynamo(tracer, graph, mutation, True, target)

    def check_later(graph: object, inputs: object, name: str, pre_dispatch: bool) -> None:
        _, writes = torch_internals.has_potential_input_alias_or_mutation(graph, inputs, pre_dispatch=pre_dispatch)
        if writes:
            raise RuntimeError(f"{name} might be modifying the input!")

    replacements: dict[str, object] = {}
    if is_available("check_aliasing_and_input_mutation"):
        check_in_dynamo = read_internal("check_aliasing_and_input_mutation")
        replacements["check_aliasing_and_input_mutation"] = check
    if is_available("check_alias_and_mutation"):
        replacements["check_alias_and_mutation"] = check_later
    with replace_internals(replacements):
        yield
