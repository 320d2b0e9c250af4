"""The generated pages are what the code says today."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("cli.md", "findings.md", "knowledge.md", "python.md", "record.md", "remedies.md")
WRITTEN_BY_HAND = ("glossary.md", "stability.md")


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", PAGES)
def test_the_committed_page_is_what_the_generator_writes(generator: ModuleType, name: str) -> None:
    assert (ROOT / "docs" / "reference" / name).read_text() == generator.pages()[name], "run `make docs`"


def test_the_generator_writes_these_pages_and_no_others(generator: ModuleType) -> None:
    assert tuple(sorted(generator.pages())) == PAGES
    assert sorted(p.name for p in (ROOT / "docs" / "reference").glob("*.md")) == sorted((*PAGES, *WRITTEN_BY_HAND))
