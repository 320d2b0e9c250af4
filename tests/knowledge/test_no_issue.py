"""Errors that have no known upstream issue: each is answered, and no link is given."""

from __future__ import annotations

import re

import pytest

from fairway.cli.explain import render_answer
from fairway.diagnostics.knowledge.answer import NO_ISSUE, find_answers

OWN = [
    # Ordinary errors of one's own code and machine.
    "KeyError: 'pixel_values'",
    "IndexError: list index out of range",
    "ZeroDivisionError: division by zero",
    "FileNotFoundError: [Errno 2] No such file or directory: 'model.pt'",
    "ModuleNotFoundError: No module named 'my_models'",
    "ImportError: cannot import name 'Net' from 'models' (models/__init__.py)",
    "AttributeError: 'NoneType' object has no attribute 'shape'",
    "AttributeError: 'Net' object has no attribute 'encoder'",
    "TypeError: forward() missing 1 required positional argument: 'mask'",
    "TypeError: unhashable type: 'list'",
    "ValueError: not enough values to unpack (expected 2, got 1)",
    "MemoryError",
    "OSError: [Errno 28] No space left on device",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x10 and 12x2)",
    "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
    "RuntimeError: The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1",
    'RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "fc.weight".',
    "RuntimeError: Given groups=1, weight of size [8, 3, 3, 3], expected input[1, 1, 8, 8] to have 3 channels",
    "_pickle.UnpicklingError: Weights only load failed.",
    "torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode: Could not guard on data-dependent expression "
    "u0 > 3 (unhinted: u0 > 3)",
    "torch._dynamo.exc.UserError: Constraints violated (time)!\n  - Not all values of time are valid because time was "
    "inferred to be a constant (37).",
    "torch.jit.frontend.NotSupportedError: Compiled functions can't take variable number of arguments",
    "onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument: [ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Got "
    "invalid dimensions for input: x for the following indices\n index: 0 Got: 3 Expected: 2",
    "ValueError: Required inputs (['mask']) are missing from input feed (['x']).",
    "onnxruntime.capi.onnxruntime_pybind11_state.InvalidProtobuf: [ONNXRuntimeError] : 7 : INVALID_PROTOBUF : Load "
    "model from net.onnx failed:Protobuf parsing failed.",
    "OSError: some-org/some-model is not a local folder and is not a valid model identifier",
]

MADE_UP = [
    "torch.onnx.errors.UnsupportedOperatorError: Exporting the operator 'mine::whirl' to ONNX opset version 20 is not "
    "supported",
    "DispatchError: No ONNX function found for <OpOverload(op='mine.whirl', overload='default')>",
    "onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented: [ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not "
    "find an implementation for Whirl(1) node with name 'whirl'",
    "torchzoo.errors.ZooError: the lion is not tracked",
    "onnxwizard.WizardException: could not cast the graph",
    "transformers_plus.PlusError: DynamicCache is full",
    "Fail: the runtime of the wizard failed",
]

NEAR_MISSES = [
    "RuntimeError: required keyword attribute 'alpha' has the wrong type",
    "std::out_of_range: terminate called\nRuntimeError: what():  _Map_base::at",
    "RuntimeError: map::at",
    "RuntimeError: the parcel is not tracked by proxy",
    "ModuleNotFoundError: No module named 'onnx'",
    "ModuleNotFoundError: No module named 'transformers'",
    "AttributeError: module 'onnx' has no attribute 'load'",
    "AttributeError: module 'ml_dtypes' has no attribute 'version'",
    "AttributeError: 'DynamicCache' object has no attribute 'banana'",
    "ImportError: DLL load failed while importing _multiarray_umath: The specified module could not be found.",
    "TypeError: scaled_dot_product_attention(): argument 'is_causal' must be bool, not str",
    "TypeError: int() argument must be a string, a bytes-like object or a real number, not 'NoneType'",
    "ValueError: the loss is not within the set tolerance 0.1",
    "ValidationError: Unrecognized attribute: color for operator Conv",
    "NotImplemented: [ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for MaxPool(12) node",
    "UnsupportedOperatorError: Exporting the operator 'aten::fftshift' to ONNX opset version 20 is not supported",
    "RuntimeError: No Adapter for this socket",
]

ABOVE = 'torch 2.13.0\nTraceback (most recent call last):\n  File "m.py", line 3, in f\n'

LINK = re.compile(r"[\w.-]+/[\w.-]+#\d+|https?://")


def test_there_are_enough_of_them() -> None:
    assert len({*OWN, *MADE_UP, *NEAR_MISSES}) >= 30


@pytest.mark.parametrize("error", [*OWN, *MADE_UP, *NEAR_MISSES], ids=lambda error: error.split("\n")[0][:60])
@pytest.mark.parametrize("above", ["", ABOVE], ids=["alone", "in a traceback"])
def test_no_link_is_given(error: str, above: str) -> None:
    answers = find_answers(above + error)
    assert answers
    for answer in answers:
        told = render_answer(answer)
        assert answer.issues == ()
        assert f"  upstream  {NO_ISSUE}" in told.splitlines()
        assert not LINK.search(told.replace(answer.seen, ""))
