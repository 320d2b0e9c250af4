"""A folder with records of every kind, and the server that shows it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairway.record.ui.ui_server import PageServer
from records_made import hostile, make_record, put, right_record


@pytest.fixture
def shelf_folder(tmp_path: Path) -> Path:
    """Right, wrong, changed since, hostile and unreadable."""
    folder = tmp_path / "models"
    (folder / "older").mkdir(parents=True)
    put(folder, "wrong.onnx", make_record())
    put(folder, "right.onnx", right_record())
    put(folder / "older", "changed.onnx", right_record())
    (folder / "older/changed.onnx").write_bytes(b"other bytes")
    hostile(folder)
    (folder / "bad.fairway.json").write_text("{")
    return folder


@pytest.fixture
def server(shelf_folder: Path) -> Iterator[PageServer]:
    with PageServer(shelf_folder) as one:
        thread = threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield one
        one.shutdown()
        thread.join()
