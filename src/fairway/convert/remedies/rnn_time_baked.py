"""nn.RNN, nn.GRU and nn.LSTM keep their time and batch dims through torch.export.

torch's Python decomposition of a recurrent layer iterates over the time axis, which fixes it: under
`Dim.DYNAMIC` the capture is refused, under `Dim.AUTO` the length is frozen, and `run_decompositions`
freezes it again after capture. So the layer is captured as one opaque operator of ours, whose shapes stay
symbolic, and translated to ONNX's own RNN, GRU or LSTM.

ONNX's LSTM has no projection. Where `proj_size` is set, `h = W_hr m` is substituted into the recurrence:
the layer runs on the unprojected `m` with recurrent weights `W_hh W_hr`, and the projection follows it. The
first state is only known projected, so it enters as extra input features that are zero after the first
step.

Refuses under the TorchScript tracer, which has its own translation; without recurrent layers; with dropout
between layers in training mode; and in dtypes for which the runtime has no recurrent kernel. Packed
sequences stay padded, and their lengths go to the node (see packed.py), but for strict capture and for a
projected LSTM in both directions. Can go when torch keeps the loop through `run_decompositions` for all three
layers (pytorch/pytorch#193192 does so for GRU and LSTM).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy, translating
from fairway.convert.remedies.packed_sequence import Lengths, unpacked
from fairway.diagnostics import Where

GATES = {"GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2), "RNN_TANH": (0,), "RNN_RELU": (0,)}
"""Where ONNX's gates stand in torch's weights: z r h against r z n; i o f c against i f g o."""

VF_NAMES = {"gru": "GRU", "lstm": "LSTM", "rnn_tanh": "RNN_TANH", "rnn_relu": "RNN_RELU"}


@torch.library.custom_op("fairway::recurrent", mutates_args=())
def recurrent(
    input: torch.Tensor,
    hidden: torch.Tensor,
    cell: torch.Tensor,
    weights: Sequence[torch.Tensor],
    mode: str,
    biased: bool,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
    lengths: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One operator for the three layers; only an LSTM has a cell state, the others hand back an empty one."""
    if lengths is not None:
        raise NotImplementedError("rows of different lengths are captured, and computed by the file")
    rest = (list(weights), biased, layers, 0.0, False, bidirectional, batch_first)
    if mode == "LSTM":
        return torch.lstm(input, (hidden, cell), *rest)
    function = {"GRU": torch.gru, "RNN_TANH": torch.rnn_tanh, "RNN_RELU": torch.rnn_relu}[mode]
    output, last = function(input, hidden, *rest)
    return output, last, cell.clone()


@recurrent.register_fake
def _shapes(
    input: torch.Tensor,
    hidden: torch.Tensor,
    cell: torch.Tensor,
    weights: Sequence[torch.Tensor],
    mode: str,
    biased: bool,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
    lengths: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    features = hidden.shape[2] * (2 if bidirectional else 1)
    output = input.new_empty((*input.shape[:2], features))
    return output, torch.empty_like(hidden), torch.empty_like(cell)


class _PaddedFunctions:
    """Stands in for torch._VF: calls on padded tensors go to our operator, others where they went before."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __getattr__(self, name: str) -> Any:
        original = getattr(self._original, name)
        mode = VF_NAMES.get(name)
        return original if mode is None else _opaque(mode, original)


def _opaque(mode: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        lengths = None
        if isinstance(args[3], (list, tuple)):  # a packed sequence passes its batch sizes second, the states third
            if not isinstance(args[1], Lengths):
                return original(*args)
            lengths, args = args[1].tensor, (args[0], *args[2:], False)
        input, state, weights, biased, layers, _, _, bidirectional, batch_first = args
        hidden, cell = state if mode == "LSTM" else (state, state.new_empty(0))
        output, hidden, cell = torch.ops.fairway.recurrent(
            input, hidden, cell, list(weights), mode, biased, layers, bidirectional, batch_first, lengths
        )
        return (output, hidden, cell) if mode == "LSTM" else (output, hidden)

    return call


def translate(
    input: Any,
    hidden: Any,
    cell: Any,
    weights: Sequence[Any],
    mode: str,
    biased: bool,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
    lengths: Any = None,
) -> tuple[Any, Any, Any]:
    """The operator as ONNX's recurrent nodes, one per layer; time and batch appear in no constant."""
    from onnxscript import opset18 as op

    rows = None if lengths is None else op.Cast(lengths, to=6)  # int32
    directions = 2 if bidirectional else 1
    per_direction = len(weights) // (layers * directions)
    chunks = [list(weights[i : i + per_direction]) for i in range(0, len(weights), per_direction)]
    sequence = op.Transpose(input, perm=[1, 0, 2]) if batch_first else input
    last_hidden, last_cell = [], []
    for layer in range(layers):
        own = slice(layer * directions, (layer + 1) * directions)
        states = [hidden, cell] if mode == "LSTM" else [hidden]
        first = [op.Slice(s, [own.start], [own.stop], [0]) for s in states]
        projected = mode == "LSTM" and per_direction == (5 if biased else 3)
        run = _projected_layer if projected else _layer
        sequence, *states = run(op, sequence, first, chunks[own], mode, biased, rows)
        last_hidden.append(states[0])
        last_cell.append(states[-1])
    output = op.Transpose(sequence, perm=[1, 0, 2]) if batch_first else sequence
    last = op.Concat(*last_hidden, axis=0)
    return output, last, op.Concat(*last_cell, axis=0) if mode == "LSTM" else op.Identity(cell)


def _layer(
    op: Any,
    sequence: Any,
    first: list[Any],
    chunks: list[list[Any]],
    mode: str,
    biased: bool,
    rows: Any = None,
    reverse: bool = False,
) -> tuple[Any, ...]:
    """One node for all directions: the sequence [time, batch, features], then the last states."""
    gates = GATES[mode]
    hidden_size = int(chunks[0][1].shape[0]) // len(gates)
    direction = "bidirectional" if len(chunks) == 2 else "reverse" if reverse else "forward"
    options: dict[str, Any] = {"hidden_size": hidden_size, "direction": direction}
    if mode == "GRU":
        options["linear_before_reset"] = 1
    if mode.startswith("RNN"):
        options["activations"] = [mode.removeprefix("RNN_").capitalize()] * len(chunks)

    def stacked(index: int) -> Any:
        ordered = (_reordered(op, chunk[index], gates, hidden_size) for chunk in chunks)
        return op.Concat(*(op.Unsqueeze(weight, [0]) for weight in ordered), axis=0)

    bias = op.Concat(stacked(2), stacked(3), axis=1) if biased else None
    node = getattr(op, mode.partition("_")[0])
    steps, *states = node(sequence, stacked(0), stacked(1), bias, rows, *first, **options)
    # [time, directions, batch, hidden] to [time, batch, directions * hidden]; 0 keeps a dim as it is.
    return (op.Reshape(op.Transpose(steps, perm=[0, 2, 1, 3]), [0, 0, -1]), *states)


def _projected_layer(
    op: Any, sequence: Any, first: list[Any], chunks: list[list[Any]], mode: str, biased: bool, rows: Any = None
) -> tuple[Any, ...]:
    """An LSTM with projection as one without, per direction; see the module's docstring for the algebra."""
    import onnx_ir as ir

    if rows is not None and len(chunks) == 2:
        raise NotImplementedError("a projected LSTM backwards over rows of different lengths")
    results = []
    for direction, (w_ih, w_hh, *biases, w_hr) in enumerate(chunks):
        hidden, cell = (op.Slice(s, [direction], [direction + 1], [0]) for s in first)
        later, none = op.Sub(op.Shape(sequence, start=0, end=1), [1]), op.Constant(value_ints=[0])
        before, after = (later, none) if direction else (none, later)
        pads = op.Concat(before, none, none, after, none, none, axis=0)
        features = op.Concat(sequence, op.Pad(hidden, pads), axis=2)
        weights = [op.Concat(w_ih, w_hh, axis=1), op.MatMul(w_hh, w_hr), *biases]
        weights[1].shape = ir.Shape([w_hh.shape[0], w_hr.shape[1]])
        steps, last, last_cell = _layer(op, features, [None, cell], [weights], mode, biased, rows, direction == 1)
        back = op.Transpose(w_hr, perm=[1, 0])
        results.append((op.MatMul(steps, back), op.MatMul(last, back), last_cell))
    steps, last, last_cell = zip(*results, strict=True)
    return op.Concat(*steps, axis=2), op.Concat(*last, axis=0), op.Concat(*last_cell, axis=0)


def _reordered(op: Any, weight: Any, gates: tuple[int, ...], size: int) -> Any:
    if len(gates) == 1:
        return weight
    return op.Concat(*(op.Slice(weight, [g * size], [(g + 1) * size], [0]) for g in gates), axis=0)


def detect(case: Case) -> Match | Refusal:
    if case.route.traced:
        return Refusal("the TorchScript exporter keeps the time length of recurrent layers")
    found = [(name, m) for name, m in case.model.named_modules() if isinstance(m, torch.nn.RNNBase)]
    if not found:
        return Refusal("the model has no nn.RNN, nn.GRU or nn.LSTM")
    for name, module in found:
        place = (Where(module=name or type(module).__name__),)
        if module.training and module.dropout and module.num_layers > 1:
            return Refusal("dropout between the layers is active, as the layer is in training mode", place)
        if (dtype := next(module.parameters()).dtype) is not torch.float32:
            return Refusal(f"the runtime's recurrent kernels take float32 only, the layer has {dtype}", place)
    places = tuple(Where(module=name or type(module).__name__) for name, module in found)
    return Match(f"{len(found)} recurrent layer(s) captured whole, time and batch left open", places)


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    layers: Any = torch.nn.modules.rnn
    functions = layers._VF
    table = {torch.ops.fairway.recurrent.default: translate}
    # Dynamo breaks the graph at recurrent layers unless told not to; only the strict capture asks it.
    packing = nullcontext() if case.route.capture == "strict" else unpacked()
    with torch._dynamo.config.patch(allow_rnn=True), packing, translating(case, table):
        layers._VF = _PaddedFunctions(functions)
        try:
            yield
        finally:
            layers._VF = functions


REMEDY = Remedy(
    name="rnn_time_baked",
    cures="FW310",
    title="Captures recurrent layers whole",
    stage="translation",
    affected={"torch": "==2.13.*"},
    upstream=("pytorch/pytorch#191855", "pytorch/pytorch#174272", "pytorch/pytorch#126339"),
    safety="ONNX's RNN, GRU and LSTM compute what torch's do; only the gates' order in the weights differs.",
    detect=detect,
    apply=apply,
)
