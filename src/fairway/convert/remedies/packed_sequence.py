"""Keep packed sequences padded while a model is captured: the padded tensor, time first, and the lengths of its rows.

torch packs rows of different lengths by their values, which no exporter can follow. ONNX's recurrent nodes take the
padded tensor and the lengths, so nothing needs to be packed. `PackedSequence` is torch's own. Only its data and its
batch sizes are replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fairway.torch_internals import Untyped, check, read_internal, replace_internals


class LongestLength:
    """The length of the longest row. It becomes a number, which is a value of the input, only when it is needed."""

    def __init__(self, lengths: torch.Tensor) -> None:
        self._lengths = lengths

    def __gt__(self, other: object) -> bool:
        """Return False: torch refuses a total length below it, and checks of values are left to the user."""
        return False

    def to_number(self, maximum: Untyped) -> Untyped:
        longest = self._lengths.max().item()
        check(longest >= 0)
        check(longest <= maximum)
        return longest


class RowLengths:
    """The lengths of the rows, in the place of the batch sizes of a packed sequence."""

    device = torch.device("cpu")

    def __init__(self, lengths: torch.Tensor, batch: Untyped) -> None:
        self.tensor, self._batch = lengths, batch

    def __getitem__(self, step: int) -> object:
        assert step == 0, "torch reads only the first one, which is the batch size"
        return self._batch

    def size(self, dim: int) -> LongestLength:
        return LongestLength(self.tensor)


class _PackedFunctions:
    """Replaces the packing functions of torch.nn.utils.rnn."""

    def __init__(self, original: Untyped) -> None:
        self._original = original

    def __getattr__(self, name: str) -> object:
        return getattr(self._original, name)

    def _pack_padded_sequence(self, input: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> object:
        padded = input.transpose(0, 1) if batch_first else input
        return padded, RowLengths(lengths, padded.shape[1])

    def _pad_packed_sequence(
        self, data: torch.Tensor, sizes: Untyped, batch_first: bool, padding_value: float, total: Untyped
    ) -> Untyped:
        if not isinstance(sizes, RowLengths):
            return self._original._pad_packed_sequence(data, sizes, batch_first, padding_value, total)
        time = data.shape[0]
        if isinstance(total, LongestLength):
            padded = data[: total.to_number(time)]
        elif total is time or total == time:
            padded = data
        else:
            padded = torch.nn.functional.pad(data, (0, 0) * (data.dim() - 1) + (0, total))[:total]
        row = torch.arange(padded.shape[0]).reshape(-1, 1, *[1] * (data.dim() - 2))
        inside = row < sizes.tensor.reshape(1, -1, *[1] * (data.dim() - 2))
        padded = torch.where(inside, padded, padding_value)
        return padded.transpose(0, 1) if batch_first else padded, sizes.tensor


@contextmanager
def keep_padded() -> Iterator[None]:
    """Keep packed sequences padded inside the block. Layers do not check them."""
    replacements: dict[str, object] = {"packing_functions": _PackedFunctions(read_internal("packing_functions"))}
    for name in ("check_rnn_arguments", "check_lstm_arguments"):
        replacements[name] = _skip_row_lengths(read_internal(name))
    with replace_internals(replacements):
        yield


def _skip_row_lengths(check: Untyped) -> Untyped:
    """Return a replacement for a layer's check of its inputs that accepts row lengths in place of batch sizes."""

    def check_others(self: Untyped, input: torch.Tensor, hidden: Untyped, batch_sizes: Untyped) -> None:
        if not isinstance(batch_sizes, RowLengths):
            check(self, input, hidden, batch_sizes)

    return check_others
