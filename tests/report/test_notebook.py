"""A result shows itself in a notebook: plain HTML, every name as text."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fairway.convert.result import Result
from fairway.diagnostics import Finding
from fairway.record.files import get_record_path
from fairway.record.page.notebook import render_card
from fairway.record.reader import parse_printed, read_record
from records_made import HOSTILE, hostile, make_record


class Seen(HTMLParser):
    """Tags that open and close, and the text between them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.said = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not [key for key, _ in attributes if key.startswith("on")]
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.said += data


def test_a_result_shows_verdict_domain_errors_ladder_and_findings() -> None:
    result = Result(
        "wrong", None, "trace", (), (Finding("FW206", "x"),), None, parse_printed(json.dumps(make_record()).encode())
    )
    seen = Seen(result._repr_html_())
    assert not seen.open
    for words in (
        "wrong",
        "batch 1..8, time 1..400: 12 of 18 samples right",
        "level",
        "2.5e+03",
        "export-dynamic",
        "300 MB",
        "FW206",
        "Write it as one expression.",
        "time 1..400 across, batch 1..8 upwards",
        "right up to time=100, wrong from 101",
    ):
        assert words in seen.said
    assert (seen.tags.count("circle"), seen.tags.count("path")) == (12, 6)


def test_names_from_a_stranger_are_text(tmp_path: Path) -> None:
    seen = Seen(render_card(read_record(get_record_path(hostile(tmp_path)))))
    assert not {"script", "img"} & set(seen.tags)
    assert HOSTILE[0] in seen.said
    assert HOSTILE[1] in seen.said


CELL = """\
import torch, fairway
spec = ["input: float32[batch, 3]"]
fairway.export(torch.nn.Linear(3, 4), spec, "linear.onnx", bounds={"batch": (1, 8)}, level="quick")
"""


def test_in_jupyter_a_result_shows_itself_and_nothing_else_is_said(tmp_path: Path) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    (output,) = notebook.cells[0].outputs
    assert output.output_type == "execute_result"
    assert output.data["text/plain"]
    seen = Seen(output.data["text/html"])
    assert "verified" in seen.said
    assert "linear.onnx" in seen.said
    assert "batch 1..8: 4 of 4 samples right" in seen.said


def test_a_record_without_evidence_has_a_card_too() -> None:
    record = make_record(verdict="failed", evidence=None, subject={"sha256": "0" * 64, "domain": {}})
    assert "one fixed shape" in render_card(parse_printed(json.dumps(record).encode()))
