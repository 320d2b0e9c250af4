"""A script's own failure counts only if it is the one that was seen."""

from __future__ import annotations

import pytest

from fairway.debug.reduce.trial_export import (
    FailureSignature,
    TrialOutcome,
    describe_failed_export,
    is_same_failure,
    normalize_message,
    read_outcome,
)


def seen(stage: str, code: str, detail: str) -> TrialOutcome:
    return TrialOutcome(FailureSignature(stage, code, detail))


RUN = "onnxruntime.capi.onnxruntime_pybind11_state.Fail: [ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned "
LOAD = "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for Erf(13) node with name 'a'"

SAME = [
    (seen("run", "FW408", "Reshape"), RUN + "while running Reshape node. Name:'x'"),
    (
        seen("load", "FW407", normalize_message(LOAD)),
        "Traceback\nx.NotImplemented: " + LOAD.replace("'a'", "'node_7'") + "\n",
    ),
    (seen("compare", "FW403", "shape"), "AssertionError: PyTorch gives [2, 3], the file [2, 4]"),
    (seen("compare", "FW404", "outputs"), "AssertionError: PyTorch gives 2 outputs, the file 1"),
    (seen("compare", "FW401", "numbers"), "AssertionError: \nNot equal to tolerance rtol=1e-07\nMismatched: 3"),
    (seen("compare", "FW405", "numbers"), "AssertionError: \nNot equal to tolerance\nnan location mismatch:"),
    (
        seen("export", "FW305", "TypeError Unsupported attribute …"),
        "Traceback (most recent call last):\nTypeError: Unsupported attribute 'x'\n\nThe above exception was …\n\n"
        "torch.onnx._errors.ConversionError: Failed to convert the exported program\n- Next steps",
    ),
    (seen("export", "FW301", "ValueError Ranges conflict at #"), "a.b.ValueError: Ranges conflict at 7\nmore"),
]


@pytest.mark.parametrize(("one", "said"), SAME)
def test_the_same_failure_is_known_again_and_every_other_is_not(one: TrialOutcome, said: str) -> None:
    assert is_same_failure(1, said, one)
    assert not is_same_failure(0, said, one)
    for other, words in SAME:
        if other is not one:
            assert not is_same_failure(1, words, one), words


def test_another_operator_or_other_words_are_another_failure() -> None:
    assert not is_same_failure(1, RUN + "while running Concat node. Name:'x'", seen("run", "FW408", "Reshape"))
    assert not is_same_failure(
        1, LOAD.replace("Erf(13)", "a kernel of"), seen("load", "FW407", normalize_message(LOAD))
    )
    assert not is_same_failure(1, "ValueError: other words", seen("export", "FW301", "ValueError Ranges conflict at #"))
    assert not is_same_failure(1, "NameError: name 'x'", seen("export", "FW301", "ValueError Ranges conflict at #"))


def test_a_signal_is_known_by_its_number() -> None:
    assert is_same_failure(-11, "", seen("crash", "FW503", "signal 11"))
    assert not is_same_failure(-6, "", seen("crash", "FW503", "signal 11"))


def test_sizes_and_computed_sizes_are_not_in_the_message() -> None:
    a = "Cannot view a tensor with shape torch.Size([s11, (((s37 - 1)//8)) + 1, 4]) as (s11, 32)!"
    assert normalize_message(a) == normalize_message(
        "Cannot view a tensor with shape torch.Size([s0, s1, 4]) as (s0, 32)!"
    )
    assert normalize_message(a) != normalize_message(
        "Cannot expand a tensor with shape torch.Size([s0, s1, 4]) as (s0, 32)!"
    )
    assert (
        describe_failed_export(ValueError(a)).signature
        == describe_failed_export(ValueError(a.replace("11", "5"))).signature
    )


def test_a_trial_that_failed_itself_is_no_failure_of_the_exporter() -> None:
    class Ended:
        status, failure = "failed", None

    assert read_outcome(Ended()).signature is None  # type: ignore[arg-type]
