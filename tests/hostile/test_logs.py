"""Any bytes can be explained: known errors get their page, junk an honest answer, and time grows with length only."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest

from fairway.convert.ladder.diagnose import explain
from fairway.diagnostics.knowledge.answer import find_answers
from fairway.diagnostics.log import TAIL_BYTES, LogFinding, decode, find_known, read_tail
from fairway.diagnostics.signatures import EXPORTER_SIGNATURES, RUNTIME_SIGNATURES
from fairway.workers.attempt import Failure

LOGS = {
    "FW303": "torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode: Could not guard on u0 > 0",
    "FW302": "torch._dynamo.exc.UserError: Constraints violated (batch)!",
    "FW304": "DispatchError: No ONNX function found for <OpOverload(op='aten.foo', overload='default')>",
    "FW305": "torch.onnx._internal.exporter._errors.TranslationError: cannot translate",
    "FW307": "torch.jit.frontend.NotSupportedError: Compiled functions can't take variable number of arguments",
    "FW009": "OSError: [Errno 28] No space left on device",
    "FW218": "TracerWarning: Converting a tensor to a Python boolean might cause the trace to be incorrect.",
    "FW328": "fairway.convert.blocks.stamp.BlocksDiffer: blocks.1 has 7 nodes, blocks.2 has 8",
    "FW306": "fairway.convert.ladder.capture.OpsetNotHonoured: asked for 18",
    "FW212": "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)",
    "FW107": "_pickle.UnpicklingError: Weights only load failed.",
    "FW110": "onnxruntime.capi.onnxruntime_pybind11_state.InvalidProtobuf: [ONNXRuntimeError] : 7 : INVALID_PROTOBUF",
    "FW407": "onnxruntime.capi.onnxruntime_pybind11_state.InvalidGraph: This is an invalid model.",
    "FW301": "torch.onnx._internal.exporter._errors.TorchExportError: Failed to export the model with torch.export.",
    "FW408": "onnxruntime.capi.onnxruntime_pybind11_state.Fail: Non-zero status code returned while running Add",
}


def test_there_is_a_log_here_for_every_signature() -> None:
    assert set(LOGS) == {one.code for one in (*EXPORTER_SIGNATURES, *RUNTIME_SIGNATURES)}


@pytest.mark.parametrize("code", LOGS)
def test_a_known_error_is_found_in_a_traceback(code: str) -> None:
    text = f'Traceback (most recent call last):\n  File "m.py", line 3, in f\n    f()\n{LOGS[code]}\nmore\n'
    assert find_known(text) == [LogFinding(code, 4, LOGS[code])]


@pytest.mark.parametrize("code", [one.code for one in EXPORTER_SIGNATURES])
def test_a_log_and_a_live_failure_are_recognized_alike(code: str) -> None:
    kind, _, message = LOGS[code].partition(": ")
    failure = Failure(kind.rsplit(".", 1)[-1], message, (), LOGS[code])
    assert [f.code for f in explain(failure, ())] == [code]


@pytest.mark.parametrize(
    ("named", "operator"),
    [
        ("<OpOverload(op='aten.frexp', overload='Tensor')>", "aten.frexp"),
        ("<function sym_sum at 0x7f00>", "sym_sum"),
        ("<built-in function round>", "round"),
        ("<torch._higher_order_ops.flex.Flex object at 0x7f00>", "torch._higher_order_ops.flex.Flex"),
    ],
)
def test_the_operator_is_named_and_not_its_kind_of_input(named: str, operator: str) -> None:
    reason = "Failure message: No decompositions registered for the real-valued input"
    message = f"No ONNX function found for {named}. {reason}"
    finding = explain(Failure("DispatchError", message, (), message), ())[0]
    assert (finding.code, finding.seen) == ("FW304", operator)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_encodings_and_line_ends_of_other_systems_are_read(encoding: str, ending: str) -> None:
    text = ending.join(("", "one", LOGS["FW302"], "")) * 5
    assert [known.code for known in find_known(decode(text.encode(encoding)))] == ["FW302"]


def test_fairways_own_output_is_recognized_through_its_colors() -> None:
    assert [k.code for k in find_known(decode(b"\x1b[31mFW205 error: A module\x1b[0m\nFW999 error: no"))] == ["FW205"]


@pytest.mark.parametrize("text", ["", "all is well", "a specialized tool was scripted\n" * 9, "\0" * 999, "Error"])
def test_where_nothing_is_known_nothing_is_claimed(text: str) -> None:
    assert find_known(text) == []


JUNK = [
    b"\n",
    b" ",
    b"|",
    b"a.",
    b"marked ",
    b"- ",
    b"\x1b[",
    b"RuntimeError\n",
    b"RuntimeError: marked marked\n",
    b"\xff",
    b"No decompositions registered for the ",
    b'File "',
    b"Exporting the operator '",
    b"\0",
    b"xError: - specializ\n",
    b"xError: " + b"marked " * 250 + b"\n",
    b"a.py:1: xWarning: ",
    b"torch" + b" " * 40 + b":",
    b"_Map_base::a",
    b"Could not find an implementation for the node ",
    b"xError: Could not find an implementation for the node x\n",
]


@pytest.mark.parametrize("piece", JUNK)
def test_megabytes_of_junk_take_little_time(piece: bytes) -> None:
    data = piece * (2 * TAIL_BYTES // len(piece))
    started = time.process_time()
    text = decode(read_tail(io.BytesIO(data)))
    find_known(text)
    find_answers(text)
    assert time.process_time() - started < 5


def test_thousands_of_errors_that_all_differ_take_little_time() -> None:
    text = "".join(f"RuntimeError: {i}\nCould not find an implementation for {i}\n" * 2 for i in range(40_000))
    started = time.process_time()
    find_answers(text)
    assert time.process_time() - started < 5


class Endless(io.RawIOBase):
    """A pipe that never ends."""

    given = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        self.given += size
        return b"x" * size


def test_only_the_end_of_a_long_or_endless_file_is_read(tmp_path: Path) -> None:
    stream = Endless()
    assert len(read_tail(stream)) == TAIL_BYTES  # type: ignore[arg-type]
    assert stream.given < 100 * TAIL_BYTES
    with (tmp_path / "log").open("wb") as file:
        file.seek(1 << 40)
        file.write(LOGS["FW302"].encode())
    with (tmp_path / "log").open("rb", buffering=0) as file:
        data = read_tail(file)  # type: ignore[arg-type]
    assert len(data) == TAIL_BYTES
    assert [known.code for known in find_known(decode(data[-3000:].lstrip(b"\0")))] == ["FW302"]
