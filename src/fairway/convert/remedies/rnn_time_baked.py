"""nn.RNN, nn.GRU and nn.LSTM keep their time and batch dims through torch.export.

torch's Python decomposition of a recurrent layer iterates over the time axis, which fixes it. Under `Dim.DYNAMIC` the
capture is refused, under `Dim.AUTO` the length is frozen, and `run_decompositions` freezes it again after capture. So
the layer is captured as one opaque operator, whose shapes stay symbolic, and translated to ONNX's RNN, GRU or LSTM.

ONNX's LSTM has no projection. If `proj_size` is set, `h = W_hr m` is substituted into the recurrence: the layer runs on
the unprojected `m` with recurrent weights `W_hh W_hr`, and the projection follows it. The first state is only known
projected, so it enters as extra input features that are zero after the first step.

Refuses under the TorchScript tracer, which has its own translation, without recurrent layers, with dropout between
layers in training mode, and in dtypes for which the runtime has no recurrent kernel. Packed sequences stay padded, and
their lengths go to the node (see packed_sequence.py), except for strict capture and for a projected LSTM in both
directions. Can be removed when torch keeps the loop through `run_decompositions` for all three layers
(pytorch/pytorch#193192 does so for GRU and LSTM).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch

from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy, add_translations
from fairway.convert.remedies.packed_sequence import RowLengths, keep_padded
from fairway.diagnostics import Code, Where
from fairway.torch_internals import GraphValue, Untyped, read_dynamo_config, read_internal, replace_internal

GATE_ORDER = {"GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2), "RNN_TANH": (0,), "RNN_RELU": (0,)}
"""The position of each of ONNX's gates in torch's weights. GRU: z r h against r z n. LSTM: i o f c against i f g o."""

Values = list[GraphValue]

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
    """Compute one of the three layers. Only an LSTM has a cell state; the others return an empty one."""
    if lengths is not None:
        raise NotImplementedError("rows of different lengths are only captured; the file computes them")
    rest = (list(weights), biased, layers, 0.0, False, bidirectional, batch_first)
    if mode == "LSTM":
        return torch.lstm(input, (hidden, cell), *rest)
    function = {"GRU": torch.gru, "RNN_TANH": torch.rnn_tanh, "RNN_RELU": torch.rnn_relu}[mode]
    output, last = function(input, hidden, *rest)
    return output, last, cell.clone()


@recurrent.register_fake
def _infer_shapes(
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
    """Replaces torch's recurrent functions: calls on padded tensors go to our operator, others to torch."""

    def __init__(self, original: Untyped) -> None:
        self._original = original

    def __getattr__(self, name: str) -> Untyped:
        original = getattr(self._original, name)
        mode = VF_NAMES.get(name)
        return original if mode is None else _make_opaque(mode, original)


def _make_opaque(mode: str, original: Callable[..., Untyped]) -> Callable[..., Untyped]:
    def call(*args: Untyped) -> Untyped:
        lengths = None
        if isinstance(args[3], (list, tuple)):  # a packed sequence passes its batch sizes second, the states third
            if not isinstance(args[1], RowLengths):
                return original(*args)
            lengths, args = args[1].tensor, (args[0], *args[2:], False)
        input, state, weights, biased, layers, _, _, bidirectional, batch_first = args
        hidden, cell = state if mode == "LSTM" else (state, state.new_empty(0))
        output, hidden, cell = torch.ops.fairway.recurrent(
            input, hidden, cell, list(weights), mode, biased, layers, bidirectional, batch_first, lengths
        )
        return (output, hidden, cell) if mode == "LSTM" else (output, hidden)

    return call


@dataclass(frozen=True)
class LayerSettings:
    """The settings of a recurrent layer that all its nodes share."""

    mode: str
    biased: bool
    lengths: GraphValue  # of the rows, as a value of the graph, or None


def translate(
    input: GraphValue,
    hidden: GraphValue,
    cell: GraphValue,
    weights: Sequence[GraphValue],
    mode: str,
    biased: bool,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
    lengths: GraphValue = None,
) -> tuple[GraphValue, GraphValue, GraphValue]:
    """Write the operator as ONNX's recurrent nodes, one per layer. Time and batch appear in no constant."""
    from onnxscript import opset18 as op

    settings = LayerSettings(mode, biased, None if lengths is None else op.Cast(lengths, to=6))  # int32
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
        run = _write_projected_layer if projected else _write_layer
        sequence, *states = run(op, sequence, first, chunks[own], settings)
        last_hidden.append(states[0])
        last_cell.append(states[-1])
    output = op.Transpose(sequence, perm=[1, 0, 2]) if batch_first else sequence
    last = op.Concat(*last_hidden, axis=0)
    return output, last, op.Concat(*last_cell, axis=0) if mode == "LSTM" else op.Identity(cell)


def _write_layer(
    op: Untyped, inputs: GraphValue, first: Values, chunks: list[Values], settings: LayerSettings, reverse: bool = False
) -> tuple[GraphValue, ...]:
    """Write one node for all directions. Return the sequence [time, batch, features] and the last states."""
    mode = settings.mode
    gates = GATE_ORDER[mode]
    hidden_size = int(chunks[0][1].shape[0]) // len(gates)
    direction = "bidirectional" if len(chunks) == 2 else "reverse" if reverse else "forward"
    options: dict[str, GraphValue] = {"hidden_size": hidden_size, "direction": direction}
    if mode == "GRU":
        options["linear_before_reset"] = 1
    if mode.startswith("RNN"):
        options["activations"] = [mode.removeprefix("RNN_").capitalize()] * len(chunks)

    def stack_directions(index: int) -> GraphValue:
        ordered = (_reorder_gates(op, chunk[index], gates, hidden_size) for chunk in chunks)
        return op.Concat(*(op.Unsqueeze(weight, [0]) for weight in ordered), axis=0)

    bias = op.Concat(stack_directions(2), stack_directions(3), axis=1) if settings.biased else None
    weights = stack_directions(0), stack_directions(1)
    node = getattr(op, mode.partition("_")[0])
    steps, *states = node(inputs, *weights, bias, settings.lengths, *first, **options)
    # [time, directions, batch, hidden] to [time, batch, directions * hidden]; 0 keeps a dim as it is.
    return (op.Reshape(op.Transpose(steps, perm=[0, 2, 1, 3]), [0, 0, -1]), *states)


def _write_projected_layer(
    op: Untyped, sequence: GraphValue, first: Values, chunks: list[Values], settings: LayerSettings
) -> tuple[GraphValue, ...]:
    """Write an LSTM with projection as one without, per direction. The module's docstring has the algebra."""
    import onnx_ir as ir

    if settings.lengths is not None and len(chunks) == 2:
        raise NotImplementedError("a projected LSTM backwards over rows of different lengths")
    results = []
    for direction, (w_ih, w_hh, *biases, w_hr) in enumerate(chunks):
        hidden, cell = (op.Slice(s, [direction], [direction + 1], [0]) for s in first)
        other_steps, zero = op.Sub(op.Shape(sequence, start=0, end=1), [1]), op.Constant(value_ints=[0])
        before, after = (other_steps, zero) if direction else (zero, other_steps)
        pads = op.Concat(before, zero, zero, after, zero, zero, axis=0)
        features = op.Concat(sequence, op.Pad(hidden, pads), axis=2)
        weights = [op.Concat(w_ih, w_hh, axis=1), op.MatMul(w_hh, w_hr), *biases]
        weights[1].shape = ir.Shape([w_hh.shape[0], w_hr.shape[1]])
        steps, last, last_cell = _write_layer(op, features, [None, cell], [weights], settings, direction == 1)
        back = op.Transpose(w_hr, perm=[1, 0])
        results.append((op.MatMul(steps, back), op.MatMul(last, back), last_cell))
    steps, last, last_cell = zip(*results, strict=True)
    return op.Concat(*steps, axis=2), op.Concat(*last, axis=0), op.Concat(*last_cell, axis=0)


def _reorder_gates(op: Untyped, weight: GraphValue, gates: tuple[int, ...], size: int) -> GraphValue:
    parts = (op.Slice(weight, [g * size], [(g + 1) * size], [0]) for g in gates)
    return weight if len(gates) == 1 else op.Concat(*parts, axis=0)


def detect(case: Case) -> Match | Refusal:
    if case.route.is_traced:
        return Refusal("the TorchScript exporter keeps the time length of recurrent layers")
    layers = [(name, m) for name, m in case.model.named_modules() if isinstance(m, torch.nn.RNNBase)]
    if not layers:
        return Refusal("the model has no nn.RNN, nn.GRU or nn.LSTM")
    for name, module in layers:
        place = (Where(module=name or type(module).__name__),)
        if module.training and module.dropout and module.num_layers > 1:
            return Refusal("dropout between the layers is active, as the layer is in training mode", place)
        if (dtype := next(module.parameters()).dtype) is not torch.float32:
            return Refusal(f"the runtime's recurrent kernels take float32 only, the layer has {dtype}", place)
    places = tuple(Where(module=name or type(module).__name__) for name, module in layers)
    return Match(f"{len(layers)} recurrent layer(s) captured as one operator each, time and batch stay dynamic", places)


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    functions = _PaddedFunctions(read_internal("recurrent_functions"))
    table = {torch.ops.fairway.recurrent.default: translate}
    # By default Dynamo breaks the graph at recurrent layers. Only the strict capture uses Dynamo.
    allowing = read_dynamo_config().patch(allow_rnn=True)
    packing = nullcontext() if case.route.capture == "strict" else keep_padded()
    replacing = replace_internal("recurrent_functions", functions)
    with allowing, packing, add_translations(case, table), replacing:
        yield


REMEDY = Remedy(
    name="rnn_time_baked",
    cures=Code.RNN_TIME_BAKED,
    title="Captures each recurrent layer as one operator",
    stage="translation",
    affected={"torch": "==2.13.*"},
    upstream=("pytorch/pytorch#191855", "pytorch/pytorch#174272", "pytorch/pytorch#126339"),
    safety="ONNX's RNN, GRU and LSTM compute what torch's do; only the gates' order in the weights differs.",
    detect=detect,
    apply=apply,
    order=30,
)
