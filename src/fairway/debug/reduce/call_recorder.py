"""Record the calls that a model makes at one input."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import torch
from torch.overrides import TorchFunctionMode, resolve_name

from fairway.debug.reduce.program import LOOP_RANGE, TENSOR_QUESTIONS, Program, ProgramCall, Ref, Value
from fairway.debug.reduce.tracked_numbers import Tracked, TrackedRead, release_numbers, track_number, unwrap_number
from fairway.judge.runtimes.eager import disable_compilation
from fairway.model.outputs import find_output_leaves
from fairway.model.subject import Subject
from fairway.torch_internals import PRIVATE_TENSOR_READS, OpOverload, OpOverloadPacket, tree_leaves, tree_map

PLAIN_QUESTIONS = (
    "torch.Tensor.__hash__",
    "torch.Tensor.__repr__",
    *PRIVATE_TENSOR_READS,
    "torch.Tensor.data_ptr",
    "torch.Tensor.device",
    "torch.Tensor.dim",
    "torch.Tensor.dtype",
    "torch.Tensor.element_size",
    "torch.Tensor.grad",
    "torch.Tensor.is_",
    "torch.Tensor.itemsize",
    "torch.Tensor.layout",
    "torch.Tensor.names",
    "torch.Tensor.ndim",
    "torch.Tensor.requires_grad",
    "torch.Tensor.storage",
    "torch.Tensor.stride",
    "torch.Tensor.untyped_storage",
    "torch.finfo",
    "torch.get_default",
    "torch.iinfo",
    "torch.is_",
)
"""Questions about a tensor with the same answer at every size; they are not part of a program."""


READING_CALLS = ("torch.Tensor.item", "torch.Tensor.tolist")
"""Calls that return a number which an exporter leaves open. `int(tensor)` does not: Python accepts only an `int`."""


def get_call_name(func: Value) -> str:
    """Return the name by which a script can call a function of torch; empty if there is none."""
    if isinstance(func, OpOverload | OpOverloadPacket):
        return f"torch.ops.{str(func).replace('::', '.')}"
    short = getattr(func, "__name__", "")
    for holder, place in ((torch, "torch"), (torch.nn.functional, "torch.nn.functional")):
        if short and getattr(holder, short, None) is func:
            return f"{place}.{short}"
    return str(resolve_name(func) or "")


MAX_SOURCE_LINES = 30
"""Lines stored for each call: enough to get from a helper, through decorators, to the model's own forward."""

_SKIPPED_FOLDERS = (str(Path(torch.__file__).parent), str(Path(__file__).parent))


def _list_source_lines() -> tuple[tuple[str, int], ...]:
    """Return the running lines outside torch and this package, from the innermost outwards."""
    lines: list[tuple[str, int]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(lines) < MAX_SOURCE_LINES:
        if not frame.f_code.co_filename.startswith(_SKIPPED_FOLDERS):
            lines.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(lines)


class Recorder(TorchFunctionMode):
    """Records every call of torch's functions, and the computations with sizes between them."""

    def __init__(self, model: torch.nn.Module, reads: bool) -> None:
        super().__init__()
        self._reads = reads
        self.calls: list[ProgramCall] = []
        self.seen: dict[Ref, Value] = {}
        self.weights: dict[Ref, torch.Tensor] = {}
        self._ref_by_id: dict[int, Ref] = {}
        self._held_tensors: list[torch.Tensor] = []
        self._count = 0
        self._paused = 0
        self._names = {id(module): name for name, module in model.named_modules()}
        self.stack = [""]

    def __torch_function__(self, func: Value, types: Value, args: Value = (), kwargs: Value = None) -> Value:
        kwargs = kwargs or {}
        name = get_call_name(func)
        plain = tree_map(unwrap_number, (args, kwargs))
        with self.pause():
            result = func(*plain[0], **plain[1])
        if not name.startswith("torch.") or name.startswith(PLAIN_QUESTIONS) or self._paused:
            return result
        return self.note(name, args, kwargs, result)

    def note(self, name: str, args: Value, kwargs: Value, result: Value) -> Value:
        """Record a call; sizes in its result are tracked from here on."""
        if self._paused:
            return result
        arguments = self._write_arguments((args, kwargs))
        var = self._new_variable()
        self.calls.append(
            ProgramCall(var, name, tuple(arguments[0]), arguments[1], self.stack[-1], _list_source_lines())
        )
        if name in TENSOR_QUESTIONS:
            self.seen[Ref(var)] = result
            return result  # Python accepts only a plain number here
        read = self._reads and (name in READING_CALLS or any(isinstance(leaf, TrackedRead) for leaf in args))
        return self._track_result(result, Ref(var), read)

    def input(self, tensor: torch.Tensor) -> Ref:
        ref = Ref(self._new_variable())
        self._track_tensor(tensor, ref)
        return ref

    def find(self, tensor: torch.Tensor) -> Ref | None:
        return self._ref_by_id.get(id(tensor))

    def release_values(self) -> None:
        """Release all values.

        Tracked numbers and the replacement of `range` hold them in reference cycles, and dozens of recordings would
        fill the memory.
        """
        self.seen, self.weights, self._ref_by_id, self._held_tensors = {}, {}, {}, []

    def _new_variable(self) -> int:
        self._count += 1
        return self._count

    def _track_tensor(self, tensor: torch.Tensor, ref: Ref) -> None:
        self._held_tensors.append(tensor)  # keeps its id from being reused
        self._ref_by_id[id(tensor)] = ref
        with self.pause():
            self.seen[ref] = tensor.detach().clone()

    def _track_result(self, result: Value, ref: Ref, read: bool = False) -> Value:
        if isinstance(result, torch.Tensor):
            if id(result) not in self._ref_by_id:
                self._track_tensor(result, ref)
            else:
                self.seen[ref] = self.seen[self._ref_by_id[id(result)]]
                self._ref_by_id[id(result)] = ref  # changed in place: from now on it is the result of this call
            return result
        if type(result) in (int, float, bool):
            self.seen[ref] = result
            return track_number(result, ref, self, read)
        if isinstance(result, tuple | list):
            made = [self._track_result(item, Ref(ref.var, (*ref.path, i)), read) for i, item in enumerate(result)]
            if isinstance(result, torch.Size):
                return torch.Size(made)
            if hasattr(result, "_fields") or type(result) not in (tuple, list):
                return result  # named results keep their type; their tensors are tracked anyway
            return type(result)(made)
        return result

    def _write_arguments(self, tree: Value) -> Value:
        if isinstance(tree, torch.Tensor):
            ref = self._ref_by_id.get(id(tree))
            if ref is None:
                ref = Ref(self._new_variable())
                self._track_tensor(tree, ref)
                self.weights[ref] = tree.detach().requires_grad_(tree.requires_grad)
            return ref
        if isinstance(tree, Tracked):
            return tree.ref
        if isinstance(tree, slice):
            return slice(*(self._write_arguments(part) for part in (tree.start, tree.stop, tree.step)))
        if isinstance(tree, dict):
            return {key: self._write_arguments(value) for key, value in tree.items()}
        if isinstance(tree, list | tuple):
            made = [self._write_arguments(item) for item in tree]
            return made if isinstance(tree, list) else tuple(made)
        return tree

    @contextmanager
    def pause(self) -> Iterator[None]:
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Follow modules, and loops over sizes."""
        from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

        def enter(module: torch.nn.Module, args: Value) -> None:
            self.stack.append(self._names.get(id(module), self.stack[-1]))

        def leave(module: torch.nn.Module, args: Value, output: Value) -> None:
            self.stack.pop()

        plain, note = builtins.range, self.note

        class Range(type):
            """A class, not a function: other code may check for instances of `range` meanwhile."""

            def __call__(cls, *bounds: Value) -> Value:
                for bound in bounds:
                    if isinstance(bound, Tracked):
                        note(LOOP_RANGE, (bound,), {}, bound.bare)
                return plain(*map(unwrap_number, bounds))

            def __instancecheck__(cls, instance: Value) -> bool:
                return isinstance(instance, plain)

        class steps(metaclass=Range):
            pass

        handles = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave, always_call=True)]
        builtins.range = steps  # type: ignore[assignment,misc]  # put back below
        try:
            yield
        finally:
            builtins.range = plain  # type: ignore[misc]
            for handle in handles:
                handle.remove()


def record_calls(subject: Subject, tensors: Sequence[torch.Tensor], reads: bool = True) -> Program:
    """Record the model at one input as a program.

    With `reads=False`, numbers read from tensors are plain Python numbers, for a model that insists on them. Some
    decisions by such numbers are then not seen.
    """
    recorder = Recorder(subject.model, reads)
    cloned = [tensor.clone() for tensor in tensors]
    inputs = tuple(recorder.input(tensor) for tensor in cloned)
    args, kwargs = subject.call(cloned)
    try:
        with torch.no_grad(), disable_compilation(), recorder.watch(), recorder:
            leaves = [leaf.value for leaf in find_output_leaves(subject.model(*args, **kwargs))]
    finally:
        release_numbers(subject.model)
    refs = [recorder.find(leaf) for leaf in tree_leaves(leaves)]
    outputs = tuple(dict.fromkeys(ref for ref in refs if ref is not None))
    dims = {size: name for name, size in subject.example.items()}
    program = Program(inputs, tuple(recorder.calls), outputs, recorder.seen, recorder.weights, dims)
    recorder.release_values()
    return program
