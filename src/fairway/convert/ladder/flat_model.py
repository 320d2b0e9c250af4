"""The model behind a plain signature, and the program that an exporter makes of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir
import torch

from fairway.convert.ladder.size_questions import Question
from fairway.model.dims import Size
from fairway.model.outputs import get_output_tensors
from fairway.model.subject import Subject


class TranslationError(Exception):
    """The model was captured, but could not be turned into ONNX."""


class FlatModel(torch.nn.Module):
    """The model behind a plain signature: tensors in, a tuple of tensors out.

    Exporters handle that best: dataclasses, keyword-only arguments and nested containers never reach them.
    """

    def __init__(self, model: torch.nn.Module, subject: Subject) -> None:
        super().__init__()
        self.model = model
        self._call = subject.call
        self.training = model.training

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        args, kwargs = self._call(tensors)
        return get_output_tensors(self.model(*args, **kwargs))


# torch.onnx writes the class's name into the metadata of each node. Files keep the name they always had.
FlatModel.__module__, FlatModel.__qualname__ = "fairway.ladder.capture", "Flat"


@dataclass(frozen=True)
class CapturedProgram:
    """A captured program as an onnx-ir model, with the sizes for which it is valid."""

    model: ir.Model
    edges: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Sizes at which its range constraints end."""
    guards: tuple[str, ...] | None = None
    """Conditions on the dims; None if the exporter records none."""
    questions: tuple[Question, ...] = ()


def list_dynamic_axes(subject: Subject) -> list[dict[int, Size]]:
    """Return for each input its varying axes, each with its size."""
    return [{axis: size for axis, size in enumerate(spec.shape) if size.names} for spec in subject.spec]
