"""Types of the values that a user gives in many forms; the functions that read them check the form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

UserModel: TypeAlias = Any
"""A model in any form: a module, a function, a program, TorchScript, or the path of a file."""

UserInputs: TypeAlias = Any
"""Inputs: spec lines, example tensors, a call, or a function that makes inputs."""

UserDims: TypeAlias = Any
"""Dims: names, sizes or torch.export dims, nested like the inputs."""

ModelSource: TypeAlias = Any
"""A module, a class, or a function that returns a module."""

InputsFunction: TypeAlias = Callable[..., Any]
"""Makes inputs from a seed and one keyword argument for each dim."""

OperatorFunctions: TypeAlias = Mapping[Any, Callable[..., Any]]
"""Patches or translations, by the function or operator that they replace."""

Calibration: TypeAlias = Callable[[], Any]
"""Yields samples to calibrate a quantization with."""

Metric: TypeAlias = Callable[[Any], float]
"""Returns the quality of a model, larger for better; it is called with a function from inputs to outputs."""
