"""Logs as people paste them, and text that is made to be slow to search."""

from __future__ import annotations

LOGS = [
    b"""Traceback (most recent call last):
  File "/home/me/model.py", line 12, in forward
    if x.sum() > 0:
torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode: Could not guard on data-dependent expression u0 > 0
""",
    b"""torch._dynamo.exc.UserError: Constraints violated (batch)! For more information, run with TORCH_LOGS="+dynamic".
  - Not all values of batch = L['x'].size()[0] satisfy the generated guard 2 <= L['x'].size()[0] and ...
""",
    b"torch.onnx._internal.exporter._errors.DispatchError: No ONNX function found for "
    b"<OpOverload(op='aten.foo', overload='x')>",
    b"model.py:9: TracerWarning: Converting a tensor to a Python boolean might cause the trace to be incorrect.",
    b"onnxruntime.capi.onnxruntime_pybind11_state.Fail: [ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned "
    b"while running Add node. Name:'add'",
    b"RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)\n\x1b[31mFW304 error: An operator\x1b[0m\n",
    "OSError: [Errno 28] No space left on device".encode("utf-16"),
    b"everything is fine here\n" * 20,
]

WORDS = (
    b"\n",
    b"Error: ",
    b"RuntimeError: ",
    b'File "',
    b".py",
    b", line 3, in f",
    b"marked ",
    b" as dynamic",
    b"- ",
    b"\0",
    b"specialized",
    b"\xff\xfe",
    b"\x1b[2J",
    b"\r",
    b"FW301 error: ",
    b"TranslationError: ",
    b"No ONNX function found for <OpOverload(op='",
    b"Exporting the operator '",
    b"No decompositions registered for the ",
    b"torch.jit.frontend",
    b"a.b.c.",
    b"|  ",
    b"E   ",
    b"\xe2\x80\xa8",
    b"Weights only load failed",
    b"\x1b[",
    b"9" * 40,
)

BOMBS = (
    b"marked marked marked ",
    b"a.a.a.a.a.a.a.a.a.a.a.a.",
    b"\n",
    b"  ",
    b"|",
    b"\x1b[",
    b"xError: specializ\n",
    b"No decompositions registered for the the ",
    b"- - - - - ",
    b"Exporting the operator '",
    b"\0\n",
    b"aaaaaaaa",
    b"a.py:1: Warning: ",
    b"RuntimeError\n",
    b"FW1 FW30 FW301 ",
)
