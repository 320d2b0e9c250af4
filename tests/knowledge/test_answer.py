"""Each error of a log is answered: what it means, whose fault, which issue, what to try."""

from __future__ import annotations

import pytest
from samples import SAMPLES

from fairway.cli.explain import render_answer
from fairway.diagnostics.knowledge.answer import MAX_UNKNOWN_ERRORS, find_answers
from fairway.diagnostics.knowledge.versions import find_versions, is_at_least
from fairway.diagnostics.log import MAX_ERROR_CHARACTERS

TRACEBACK = """\
Traceback (most recent call last):
  File "/home/me/export.py", line 12, in <module>
    torch.onnx.export(net, x, "net.onnx")
  File "/venv/lib/python3.12/site-packages/torch/onnx/utils.py", line 516, in export
"""

SEEDS = {
    # What the teams saw, and what is true of it.
    "keyboard": (
        "RuntimeError: required keyword attribute 'value' has the wrong type",
        ("your installation", (), "Export where the official wheels of torch run"),
    ),
    "keyboard, by a buffer": (
        "RuntimeError: required keyword attribute 'onnx_name' has the wrong type",
        ("your installation", (), "Export where the official wheels of torch run"),
    ),
    "Qwen, traced": (
        "RuntimeError: _Map_base::at",
        ("torch", ("pytorch/pytorch#172880", "pytorch/pytorch#106972"), "Build the mask without vmap"),
    ),
    "Qwen, exported": (
        "RuntimeError: 8*s72 (140) is not tracked with proxy for <torch.fx.experimental.proxy_tensor.Tracer object>",
        ("torch", ("pytorch/pytorch#163713",), "Update transformers"),
    ),
    "Heimdall, chosen by value": (
        "torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode: Could not guard on data-dependent "
        "expression Eq(u0, 0) (unhinted: Eq(u0, 0))",
        ("your model", (), "Replace the decision with tensor arithmetic"),
    ),
    "Heimdall, traced": (
        "TracerWarning: Converting a tensor to a Python number might cause the trace to be incorrect",
        ("your model", (), "Do not ship the file before it is tested"),
    ),
    "Heimdall, sizes": (
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x1536 and 2048x128)",
        ("your model", (), "Build the second layer with the size that it receives"),
    ),
}


@pytest.mark.parametrize("name", SEEDS)
@pytest.mark.parametrize("around", ["{}", TRACEBACK + "{}\n", "We saw `{}` and gave up."])
def test_the_errors_of_the_four_systems_are_answered_rightly(name: str, around: str) -> None:
    message, (whose, links, first) = SEEDS[name]
    [answer] = find_answers(around.format(message))
    assert answer.whose == whose
    assert tuple(issue.link for issue in answer.issues) == links
    assert answer.todo[0].startswith(first)


def test_the_mask_of_qwen_has_a_remedy() -> None:
    for name in ("Qwen, traced", "Qwen, exported"):
        [answer] = find_answers(SEEDS[name][0])
        assert answer.todo[-1] == "Or let Fairway repair it: fairway export, remedy vmap_mask."


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_is_answered_in_a_traceback_and_in_a_sentence(name: str) -> None:
    for text in (TRACEBACK + SAMPLES[name], f"It said: {SAMPLES[name]}"):
        assert name in {entry for answer in find_answers(text) for entry in answer.entries}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_four_questions_are_answered_in_their_order(name: str) -> None:
    for answer in find_answers(TRACEBACK + SAMPLES[name]):
        labels = [line[2:12].strip() for line in render_answer(answer).splitlines()[1:]]
        assert [label for label in labels if label] == ["seen", "means", "whose", "upstream", "do"]


def test_the_line_that_names_the_exception_decides() -> None:
    text = SAMPLES["not-tracked-with-proxy"] + "\nWe know of _Map_base::at, too, as an older error.\n"
    assert find_answers(text)[0].entries == ("not-tracked-with-proxy",)


AXES = SAMPLES["trace-reduce-axes-attribute"]


@pytest.mark.parametrize(
    ("version", "note"),
    [
        ("", ""),
        ("torch 2.1.0+cu118", "The log names torch 2.1.0: 2.13.0 does not have it any more."),
        ("torch==2.14", "The log names torch 2.14, which has the fix: this is another bug, or it came back."),
        ("onnx 1.20", ""),
    ],
)
def test_the_version_that_a_log_names_is_held_against_the_fix(version: str, note: str) -> None:
    [answer] = find_answers(f"{version}\n{AXES}")
    assert [issue.note for issue in answer.issues] == [note]


def test_a_first_version_with_the_fix_is_said_to_be_one() -> None:
    [answer] = find_answers("onnx 1.9.0\n" + SAMPLES["converter-input-undefined"])
    assert str(answer.issues[0]) == (
        "onnx/onnx#2873, closed on 2026-11-16, fixed in onnx 1.11: reported on onnx 1.7. "
        "The log names onnx 1.9.0: 1.11 or later has the fix."
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("PyTorch version: 2.0.1", {"torch": "2.0.1"}),
        ("**ONNX Runtime**: 1.22.2", {"onnxruntime": "1.22.2"}),
        ("torch.onnx.export version 2.0.1+cu118", {"torch": "2.0.1"}),
        ("torch==2.4\nlater torch==2.5", {"torch": "2.5"}),
        ("`transformers` version: 4.25.1", {"transformers": "4.25.1"}),
        ("onnx-simplifier 0.4.36, /site-packages/torch/2.3, PyTorch 2.x", {}),
    ],
)
def test_versions_are_read_as_people_write_them(text: str, found: dict[str, str]) -> None:
    assert find_versions(text) == found


@pytest.mark.parametrize(("one", "other", "so"), [("2.13", "2.9", True), ("2.9.1", "2.9.2", False), ("2", "2.0", True)])
def test_versions_are_compared_by_number(one: str, other: str, so: bool) -> None:
    assert is_at_least(one, other) is so


def test_an_error_that_is_not_known_is_answered_honestly() -> None:
    [answer] = find_answers(TRACEBACK + "ZeroDivisionError: division by zero\n")
    assert not answer.is_known
    assert render_answer(answer).splitlines() == [
        "ZeroDivisionError",
        "  seen      line 5: ZeroDivisionError: division by zero",
        "  means     Not known: Fairway has no entry for this ZeroDivisionError. It was raised at",
        "            /venv/lib/python3.12/site-packages/torch/onnx/utils.py:516.",
        "  whose     not known",
        "  upstream  No known upstream issue",
        "  do        1. Look at /home/me/export.py:12: the last of your own lines before the error.",
        "            2. If an export raised it: fairway export tries other routes, and names the line at fault.",
    ]


def test_whatever_a_traceback_ends_in_is_an_error() -> None:
    [answer] = find_answers(TRACEBACK + "mine.Trouble: at the mill\n")
    assert (answer.name, answer.is_known) == ("Trouble", False)
    assert find_answers("Trouble: at the mill\n") == []


def test_what_is_known_is_told_beside_what_is_not() -> None:
    answers = find_answers(f"{TRACEBACK}KeyError: 'x'\n{TRACEBACK}{AXES}\n{TRACEBACK}{AXES}\n")
    assert [(answer.name, answer.line) for answer in answers] == [("KeyError", 5), ("trace-reduce-axes-attribute", 10)]


def test_of_many_unknown_errors_the_last_are_answered_and_warnings_are_none() -> None:
    text = "".join(f"OddError: {i}\nOddWarning: {i}\n" for i in range(50))
    assert [answer.seen for answer in find_answers(text)] == [
        f"OddError: {i}" for i in range(50 - MAX_UNKNOWN_ERRORS, 50)
    ]


def test_an_exporters_wrapper_is_left_out_beside_its_reason() -> None:
    wrapper = "torch.onnx._internal.exporter._errors.TorchExportError: Failed to export the model with torch.export."
    assert [answer.code for answer in find_answers(wrapper)] == ["FW301"]
    assert [answer.code for answer in find_answers(f"{wrapper}\n{SEEDS['Heimdall, sizes'][0]}")] == ["FW212"]


def test_a_known_error_is_found_behind_thousands_of_others() -> None:
    text = SEEDS["Heimdall, sizes"][0] + "\n" + "".join(f"OddError: {i}\n" for i in range(5000))
    assert find_answers(text)[0].code == "FW212"
    late = "".join(f"OddError: {i}\n" for i in range(5000)) + AXES + "\n" + "x" * MAX_ERROR_CHARACTERS
    assert [answer.name for answer in find_answers(late)][-1] == "trace-reduce-axes-attribute"
