"""Writes down the calls that a model makes at one input."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._pytree import tree_leaves, tree_map  # seen to work in torch 2.9–2.13; no public counterpart

from fairway.debug.reduce.program import ASKED, STEPS, Program, ProgramCall, Ref
from fairway.debug.reduce.tracked_numbers import Read, Tracked, bare, let_go, tracked
from fairway.judge.runtimes.eager import uncompiled
from fairway.model.outputs import output_leaves
from fairway.model.subject import Subject

PLAIN = (
    "torch.Tensor.__hash__",
    "torch.Tensor.__repr__",
    "torch.Tensor._base",
    "torch.Tensor._version",
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
"""Questions about a tensor whose answers are the same at every size: they are no part of a program."""


READING = ("torch.Tensor.item", "torch.Tensor.tolist")
"""What gives Python a number that an exporter leaves open. `int(tensor)` does not: Python takes an `int` alone."""


def called(func: Any) -> str:
    """Under which name a script can call a function of torch's; empty where there is none."""
    if isinstance(func, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return f"torch.ops.{str(func).replace('::', '.')}"
    short = getattr(func, "__name__", "")
    for holder, place in ((torch, "torch"), (torch.nn.functional, "torch.nn.functional")):
        if short and getattr(holder, short, None) is func:
            return f"{place}.{short}"
    return str(resolve_name(func) or "")


DEEP = 30
"""Lines are remembered per call: enough to reach from a helper, through decorators, to the model's own forward."""

_OWN = (str(Path(torch.__file__).parent), str(Path(__file__).parent))


def _source() -> tuple[tuple[str, int], ...]:
    """The lines that are being run and are neither torch's nor of this package, from the innermost outwards."""
    found: list[tuple[str, int]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(found) < DEEP:
        if not frame.f_code.co_filename.startswith(_OWN):
            found.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)


class Recorder(TorchFunctionMode):
    """Notes every call of torch's functions, and what was done with sizes between them."""

    def __init__(self, model: torch.nn.Module, reads: bool) -> None:
        super().__init__()
        self._reads = reads
        self.calls: list[ProgramCall] = []
        self.seen: dict[Ref, Any] = {}
        self.weights: dict[Ref, torch.Tensor] = {}
        self._known: dict[int, Ref] = {}
        self._kept: list[torch.Tensor] = []
        self._count = 0
        self._off = 0
        self._names = {id(module): name for name, module in model.named_modules()}
        self.stack = [""]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = called(func)
        plain = tree_map(bare, (args, kwargs))
        with self.quiet():
            result = func(*plain[0], **plain[1])
        if not name.startswith("torch.") or name.startswith(PLAIN) or self._off:
            return result
        return self.note(name, args, kwargs, result)

    def note(self, name: str, args: Any, kwargs: Any, result: Any) -> Any:
        """Writes a call down; sizes in its result are tracked from here on."""
        if self._off:
            return result
        given = self._written((args, kwargs))
        var = self._new()
        self.calls.append(ProgramCall(var, name, tuple(given[0]), given[1], self.stack[-1], _source()))
        if name in ASKED:
            self.seen[Ref(var)] = result
            return result  # Python takes no other number for an answer
        read = self._reads and (name in READING or any(isinstance(leaf, Read) for leaf in args))
        return self._tracked(result, Ref(var), read)

    def input(self, tensor: torch.Tensor) -> Ref:
        ref = Ref(self._new())
        self._track(tensor, ref)
        return ref

    def find(self, tensor: torch.Tensor) -> Ref | None:
        return self._known.get(id(tensor))

    def let_go(self) -> None:
        """Holds no value any more. Numbers, and the class that stood for `range`, hold on to it in circles, and dozens
        of recordings would fill the memory."""
        self.seen, self.weights, self._known, self._kept = {}, {}, {}, []

    def _new(self) -> int:
        self._count += 1
        return self._count

    def _track(self, tensor: torch.Tensor, ref: Ref) -> None:
        self._kept.append(tensor)  # so that nothing else can have its id
        self._known[id(tensor)] = ref
        with self.quiet():
            self.seen[ref] = tensor.detach().clone()

    def _tracked(self, result: Any, ref: Ref, read: bool = False) -> Any:
        if isinstance(result, torch.Tensor):
            if id(result) not in self._known:
                self._track(result, ref)
            else:
                self.seen[ref] = self.seen[self._known[id(result)]]
                self._known[id(result)] = ref  # changed in place: from now on it is what this call gave
            return result
        if type(result) in (int, float, bool):
            self.seen[ref] = result
            return tracked(result, ref, self, read)
        if isinstance(result, tuple | list):
            made = [self._tracked(item, Ref(ref.var, (*ref.path, i)), read) for i, item in enumerate(result)]
            if isinstance(result, torch.Size):
                return torch.Size(made)
            if hasattr(result, "_fields") or type(result) not in (tuple, list):
                return result  # named results keep their type; their tensors are tracked all the same
            return type(result)(made)
        return result

    def _written(self, tree: Any) -> Any:
        if isinstance(tree, torch.Tensor):
            ref = self._known.get(id(tree))
            if ref is None:
                ref = Ref(self._new())
                self._track(tree, ref)
                self.weights[ref] = tree.detach().requires_grad_(tree.requires_grad)
            return ref
        if isinstance(tree, Tracked):
            return tree.ref
        if isinstance(tree, slice):
            return slice(*(self._written(part) for part in (tree.start, tree.stop, tree.step)))
        if isinstance(tree, dict):
            return {key: self._written(value) for key, value in tree.items()}
        if isinstance(tree, list | tuple):
            made = [self._written(item) for item in tree]
            return made if isinstance(tree, list) else tuple(made)
        return tree

    @contextmanager
    def quiet(self) -> Iterator[None]:
        self._off += 1
        try:
            yield
        finally:
            self._off -= 1

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Follows modules, and loops over sizes."""
        from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

        def enter(module: torch.nn.Module, args: Any) -> None:
            self.stack.append(self._names.get(id(module), self.stack[-1]))

        def leave(module: torch.nn.Module, args: Any, output: Any) -> None:
            self.stack.pop()

        plain, note = builtins.range, self.note

        class Range(type):
            """A class in its place, not a function: others ask what is an instance of `range` meanwhile."""

            def __call__(cls, *bounds: Any) -> Any:
                for bound in bounds:
                    if isinstance(bound, Tracked):
                        note(STEPS, (bound,), {}, bound.bare)
                return plain(*map(bare, bounds))

            def __instancecheck__(cls, instance: Any) -> bool:
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


def record(subject: Subject, tensors: Sequence[torch.Tensor], reads: bool = True) -> Program:
    """The model at one input, as a program. Without `reads`, numbers read from tensors are Python's own to the model,
    for one that insists on that, and some of what Python decides by them is not seen."""
    recorder = Recorder(subject.model, reads)
    own = [tensor.clone() for tensor in tensors]
    inputs = tuple(recorder.input(tensor) for tensor in own)
    args, kwargs = subject.call(own)
    try:
        with torch.no_grad(), uncompiled(), recorder.watching(), recorder:
            leaves = [leaf.value for leaf in output_leaves(subject.model(*args, **kwargs))]
    finally:
        let_go(subject.model)
    found = [recorder.find(leaf) for leaf in tree_leaves(leaves)]
    outputs = tuple(dict.fromkeys(ref for ref in found if ref is not None))
    dims = {size: name for name, size in subject.example.items()}
    program = Program(inputs, tuple(recorder.calls), outputs, recorder.seen, recorder.weights, dims)
    recorder.let_go()
    return program
