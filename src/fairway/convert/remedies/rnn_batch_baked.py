"""A recurrent layer's first state follows the batch through the TorchScript tracer.

A state that the layer makes itself, or that is built from `x.shape`, stays dynamic on torch 2.13. One built
from a Python number, as in `torch.zeros(1, len(x), hidden)` or `self.h0.expand(-1, int(x.shape[0]), -1)`,
is recorded with the example's batch size. Eager PyTorch accepts such a state only because its size is the
input's batch, and every row of it is the same; so one row is taken and expanded to the input's batch.

Acts only on states that the trace shows to be constant along the batch: filled with one value, or expanded
or repeated from one row, with a constant size. Refuses outside the tracer, where `len` is caught by the
exporter, and where nothing in the model's own code builds a state.
"""

from __future__ import annotations

import inspect
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy
from fairway.diagnostics import Where

FILLED = {"aten::zeros", "aten::ones", "aten::full", "aten::new_zeros", "aten::new_ones", "aten::new_full"}
SPREAD = {"aten::expand", "aten::repeat"}
PASSED_ON = {"aten::to", "aten::type_as", "aten::detach", "aten::contiguous", "aten::clone"}
BUILDERS = ("zeros", "ones", "full", "expand", "repeat")


def frozen_along_batch(state: torch.Tensor) -> bool:
    """Whether the trace made this [layers, batch, hidden] state of equal rows, a constant number of them."""
    c_api: Any = torch._C  # `_get_value_trace` was seen to work on 2.13
    node = c_api._get_value_trace(state).node()
    while node.kind() in PASSED_ON:
        node = next(node.inputs()).node()
    if node.kind() not in FILLED | SPREAD:
        return False
    if node.kind() in SPREAD and list(next(node.inputs()).type().sizes() or ())[1:2] != [1]:
        return False
    sizes = next((i.node() for i in node.inputs() if i.node().kind() == "prim::ListConstruct"), None)
    if sizes is None:
        return False
    batch = list(sizes.inputs())[1:2]
    return bool(batch) and batch[0].node().kind() == "prim::Constant"


def follow_batch(layer: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A forward pre-hook that replaces a frozen state by one row of it, expanded to the input's batch."""
    values = dict(zip(("input", "hx"), args, strict=False)) | kwargs
    source, given = values["input"], values.get("hx")
    packed_or_unbatched = not isinstance(source, torch.Tensor) or source.dim() != 3
    if given is None or packed_or_unbatched or torch._C._get_tracing_state() is None:
        return None
    batch = source.shape[0 if layer.batch_first else 1]
    states = given if isinstance(given, tuple) else (given,)
    states = tuple(s[:, :1].expand(-1, batch, -1) if frozen_along_batch(s) else s for s in states)
    return (source, states if isinstance(given, tuple) else states[0]), {}


def detect(case: Case) -> Match | Refusal:
    if case.route.capture != "trace":
        return Refusal("only the tracer is known to freeze a state unnoticed")
    found = [name for name, m in case.model.named_modules() if isinstance(m, torch.nn.RNNBase)]
    if not found:
        return Refusal("the model has no nn.RNN, nn.GRU or nn.LSTM")
    own = {type(m) for m in case.model.modules() if not type(m).__module__.startswith("torch.")}
    if not any(_builds_state(kind) for kind in own):
        return Refusal("no module of the model builds a state; the layers' own follows the batch")
    places = tuple(Where(module=name) for name in found)
    return Match(f"first state of {len(found)} recurrent layer(s) expanded to the batch if frozen", places)


def _builds_state(kind: type) -> bool:
    try:
        source = inspect.getsource(kind)
    except (OSError, TypeError):  # typed at a prompt, or made by exec: it may
        return True
    return any(f"{name}(" in source for name in BUILDERS)


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    with ExitStack() as stack:
        for module in case.model.modules():
            if isinstance(module, torch.nn.RNNBase):
                stack.callback(module.register_forward_pre_hook(follow_batch, with_kwargs=True).remove)
        yield


REMEDY = Remedy(
    name="rnn_batch_baked",
    cures="FW311",
    title="Expands a recurrent layer's first state to the batch",
    stage="model",
    affected={"torch": "==2.13.*"},
    upstream=(),  # none known: `len` warns while tracing, and that is all that is promised
    safety="All rows of the state are equal by construction, so one of them, expanded, is the same state.",
    detect=detect,
    apply=apply,
)
