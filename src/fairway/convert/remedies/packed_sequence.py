"""Packed sequences, while a model is captured: the padded tensor, time first, beside the lengths of its rows.

torch packs rows of different lengths by their values, which no exporter can follow. ONNX's recurrent nodes take the
padded tensor and the lengths, so nothing needs to be packed. `PackedSequence` is torch's own; only what stands in it
for the data and the batch sizes is ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class Longest:
    """The longest row's length, until somebody needs it: as a number it is a value of the input."""

    def __init__(self, lengths: torch.Tensor) -> None:
        self._lengths = lengths

    def __gt__(self, other: Any) -> bool:
        """torch refuses a total length below it; whether it is, the user answers for, as in any check of values."""
        return False

    def number(self, most: Any) -> Any:
        check: Any = torch._check  # untyped
        found = self._lengths.max().item()
        check(found >= 0)
        check(found <= most)
        return found


class Lengths:
    """Stands for the batch sizes of a packed sequence."""

    device = torch.device("cpu")

    def __init__(self, lengths: torch.Tensor, batch: Any) -> None:
        self.tensor, self._batch = lengths, batch

    def __getitem__(self, step: int) -> Any:
        assert step == 0, "torch asks for the first only, which is the whole batch"
        return self._batch

    def size(self, dim: int) -> Longest:
        return Longest(self.tensor)


class _PackedFunctions:
    """Stands in for torch._VF in torch.nn.utils.rnn."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def _pack_padded_sequence(self, input: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> Any:
        padded = input.transpose(0, 1) if batch_first else input
        return padded, Lengths(lengths, padded.shape[1])

    def _pad_packed_sequence(
        self, data: torch.Tensor, sizes: Any, batch_first: bool, padding_value: float, total: Any
    ) -> Any:
        if not isinstance(sizes, Lengths):
            return self._original._pad_packed_sequence(data, sizes, batch_first, padding_value, total)
        time = data.shape[0]
        if isinstance(total, Longest):
            padded = data[: total.number(time)]
        elif total is time or total == time:
            padded = data
        else:
            padded = torch.nn.functional.pad(data, (0, 0) * (data.dim() - 1) + (0, total))[:total]
        row = torch.arange(padded.shape[0]).reshape(-1, 1, *[1] * (data.dim() - 2))
        inside = row < sizes.tensor.reshape(1, -1, *[1] * (data.dim() - 2))
        padded = torch.where(inside, padded, padding_value)
        return padded.transpose(0, 1) if batch_first else padded, sizes.tensor


@contextmanager
def unpacked() -> Iterator[None]:
    """Packed sequences are kept padded while inside; layers do not check them."""
    helpers: Any = torch.nn.utils.rnn
    functions = helpers._VF
    kinds: list[Any] = [torch.nn.RNNBase, torch.nn.LSTM]
    checks = [(kind, kind.check_forward_args) for kind in kinds]
    helpers._VF = _PackedFunctions(functions)
    for kind, check in checks:
        kind.check_forward_args = _unless_ours(check)
    try:
        yield
    finally:
        helpers._VF = functions
        for kind, check in checks:
            kind.check_forward_args = check


def _unless_ours(check: Any) -> Any:
    """The check of a layer's inputs, which takes the batch size as a plain number."""

    def checked(self: Any, input: torch.Tensor, hidden: Any, batch_sizes: Any) -> None:
        if not isinstance(batch_sizes, Lengths):
            check(self, input, hidden, batch_sizes)

    return checked
