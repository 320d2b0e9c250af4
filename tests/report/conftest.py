"""A report in a browser, from the records it is made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from browsing import Look
from fairway.record.page.page import make_page, write_page
from records_made import Opened


@pytest.fixture
def opened(look: Look, tmp_path: Path) -> Opened:
    """`opened(paths, measured, width=…)` is a page of the report."""

    def show(given: list[Path], besides: list[dict[str, Any]] | None = None, **how: Any) -> Any:
        measured = []
        for number, one in enumerate(besides or ()):
            measured.append(tmp_path / f"measured{number}.json")
            measured[-1].write_text(json.dumps(one))
        target = tmp_path / "report.html"
        write_page(target, make_page(given, measured))
        page = look(target.as_uri(), **how)
        page.wait_for_selector("#main section")
        return page

    return show
