"""A recurrent layer's first state follows the batch through the TorchScript tracer.

A state that the layer makes itself, or that is built from `x.shape`, stays dynamic on torch 2.13. A state built from a
Python number, as in `torch.zeros(1, len(x), hidden)` or `self.h0.expand(-1, int(x.shape[0]), -1)`, is recorded with the
example's batch size. Eager PyTorch accepts such a state only because its size is the input's batch, and all its rows
are the same. So one row is taken and expanded to the input's batch.

Acts only on states that the trace shows to be constant along the batch: filled with one value, or expanded or repeated
from one row, with a constant size. Refuses for all captures but the tracer, since the exporter reports `len` there, and
if nothing in the model's own code builds a state.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch

from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy
from fairway.diagnostics import Code, Where
from fairway.torch_internals import get_tracing_state, traced_value

FILLING_OPERATORS = {"aten::zeros", "aten::ones", "aten::full", "aten::new_zeros", "aten::new_ones", "aten::new_full"}
EXPANDING_OPERATORS = {"aten::expand", "aten::repeat"}
TRANSPARENT_OPERATORS = {"aten::to", "aten::type_as", "aten::detach", "aten::contiguous", "aten::clone"}
STATE_BUILDERS = ("zeros", "ones", "full", "expand", "repeat")


def is_frozen_along_batch(state: torch.Tensor) -> bool:
    """Return whether the trace made this [layers, batch, hidden] state from a constant number of equal rows."""
    node = traced_value(state).node()
    while node.kind() in TRANSPARENT_OPERATORS:
        node = next(node.inputs()).node()
    if node.kind() not in FILLING_OPERATORS | EXPANDING_OPERATORS:
        return False
    if node.kind() in EXPANDING_OPERATORS and list(next(node.inputs()).type().sizes() or ())[1:2] != [1]:
        return False
    sizes = next((i.node() for i in node.inputs() if i.node().kind() == "prim::ListConstruct"), None)
    if sizes is None:
        return False
    batch = list(sizes.inputs())[1:2]
    return bool(batch) and batch[0].node().kind() == "prim::Constant"


def follow_batch(
    layer: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    note_use: Callable[[], None] = lambda: None,
) -> Any:
    """Replace a frozen state by one row of it, expanded to the input's batch. This is a forward pre-hook."""
    values = dict(zip(("input", "hx"), args, strict=False)) | kwargs
    source, given = values["input"], values.get("hx")
    packed_or_unbatched = not isinstance(source, torch.Tensor) or source.dim() != 3
    if given is None or packed_or_unbatched or get_tracing_state() is None:
        return None
    batch = source.shape[0 if layer.batch_first else 1]
    states = given if isinstance(given, tuple) else (given,)
    frozen = [is_frozen_along_batch(state) for state in states]
    if not any(frozen):
        return None
    note_use()
    states = tuple(s[:, :1].expand(-1, batch, -1) if fixed else s for s, fixed in zip(states, frozen, strict=True))
    return (source, states if isinstance(given, tuple) else states[0]), {}


def detect(case: Case) -> Match | Refusal:
    if case.route.capture != "trace":
        return Refusal("only the tracer is known to freeze a state unnoticed")
    layers = [name for name, m in case.model.named_modules() if isinstance(m, torch.nn.RNNBase)]
    if not layers:
        return Refusal("the model has no nn.RNN, nn.GRU or nn.LSTM")
    own = {type(m) for m in case.model.modules() if not type(m).__module__.startswith("torch.")}
    if not any(_builds_state(kind) for kind in own):
        return Refusal("no module of the model builds a state; the layers' own follows the batch")
    places = tuple(Where(module=name) for name in layers)
    return Match(f"first state of {len(layers)} recurrent layer(s) expanded to the batch if frozen", places)


def _builds_state(kind: type) -> bool:
    try:
        source = inspect.getsource(kind)
    except (OSError, TypeError):  # no source, as for code typed at a prompt or made by exec: it may
        return True
    return any(f"{name}(" in source for name in STATE_BUILDERS)


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    note_use = case.list_if_used()
    with ExitStack() as stack:
        for module in case.model.modules():
            if isinstance(module, torch.nn.RNNBase):
                stack.callback(
                    module.register_forward_pre_hook(partial(follow_batch, note_use=note_use), with_kwargs=True).remove
                )
        yield


REMEDY = Remedy(
    name="rnn_batch_baked",
    cures=Code.RNN_BATCH_BAKED,
    title="Expands a recurrent layer's first state to the batch",
    stage="model",
    affected={"torch": "==2.13.*"},
    upstream=(),  # no issue is known: the documentation promises only that `len` warns while tracing
    safety="All rows of the state are equal by construction, so one of them, expanded, is the same state.",
    detect=detect,
    apply=apply,
    order=40,
)
