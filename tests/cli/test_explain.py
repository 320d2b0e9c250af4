"""`fairway explain` on a log: what is printed, what JSON carries, how it ends."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from .command_line import Fairway

LOG = """\
PyTorch version: 2.1.0
Traceback (most recent call last):
  File "export.py", line 12, in <module>
torch.onnx.errors.UnsupportedOperatorError: Exporting the operator 'aten::rms_norm' to ONNX opset version 20 is not \
supported
Traceback (most recent call last):
  File "export.py", line 30, in <module>
KeyError: 'x'
"""


def test_the_answer_has_four_parts_in_the_order_of_the_questions(fairway: Fairway, folder: Path) -> None:
    (folder / "error.log").write_text(LOG)
    said = fairway("explain", "error.log")
    assert said.out.splitlines() == [
        "FW304 no-translation",
        "  seen      line 4: torch.onnx.errors.UnsupportedOperatorError: Exporting the operator 'aten::rms_norm' to",
        "            ONNX opset version 20 is not supported",
        "  means     dynamo=False: rms_norm has no translation.",
        "  whose     torch",
        "  upstream  pytorch/pytorch#159249, closed on 2026-11-16: reported in July 2025, seen on torch 2.13.0.",
        "  do        1. Export with dynamo=True, or write x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps).",
        "            2. Leave remedies on: missing_translation.",
        "            3. Pass your own translation: translations={torch.ops.mine.op.default: function}.",
        "            4. Write the step with other operators.",
        "",
        "KeyError",
        "  seen      line 7: KeyError: 'x'",
        "  means     Not known: Fairway has no entry for this KeyError. It was raised at export.py:30.",
        "  whose     not known",
        "  upstream  No known upstream issue",
        "  do        1. Look at export.py:30: the last of your own lines before the error.",
        "            2. If an export raised it: fairway export tries other routes, and names the line at fault.",
    ]
    assert said.code == 0


def test_json_carries_what_is_printed(fairway: Fairway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LOG.encode())))
    known, unknown = json.loads(fairway("explain", "-", "--json").out)
    assert known == {
        "line": 4,
        "seen": "torch.onnx.errors.UnsupportedOperatorError: Exporting the operator 'aten::rms_norm' to ONNX opset "
        "version 20 is not supported",
        "name": "FW304 no-translation",
        "known": True,
        "code": "FW304",
        "entries": ["trace-rms-norm-refused"],
        "means": ["dynamo=False: rms_norm has no translation."],
        "whose": "torch",
        "upstream": [
            {
                "link": "pytorch/pytorch#159249",
                "status": "closed",
                "date": "2026-11-16",
                "fixed": "",
                "note": "",
                "affected": "reported in July 2025, seen on torch 2.13.0",
            }
        ],
        "upstream_said": ["pytorch/pytorch#159249, closed on 2026-11-16: reported in July 2025, seen on torch 2.13.0."],
        "do": [
            "Export with dynamo=True, or write x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps).",
            "Leave remedies on: missing_translation.",
            "Pass your own translation: translations={torch.ops.mine.op.default: function}.",
            "Write the step with other operators.",
        ],
    }
    assert (unknown["name"], unknown["known"], unknown["whose"]) == ("KeyError", False, "not known")
    assert (unknown["upstream"], unknown["upstream_said"]) == ([], ["No known upstream issue"])


def test_the_exit_code_says_whether_anything_is_known(fairway: Fairway, folder: Path) -> None:
    (folder / "error.log").write_text("KeyError: 'x'\n")
    assert fairway("explain", "error.log").code == 1
    (folder / "error.log").write_text("all is well\n")
    said = fairway("explain", "error.log")
    assert said.out.splitlines() == [
        "no error found: no line looks like an error of Python or of a library",
        "A wrong file can be made without any error; to test one: fairway verify FILE RECIPE",
    ]
    assert said.code == 1


def test_codes_are_json_too_where_that_is_asked_for(fairway: Fairway) -> None:
    page = json.loads(fairway("explain", "FW408", "--json").out)
    assert (page["code"], page["name"], page["severity"]) == ("FW408", "runtime-fails", "error")
    assert page in json.loads(fairway("explain", "--list", "--json").out)
