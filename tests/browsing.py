"""Debian's chromium, driven by Playwright. `tools/get-browser.sh`, which `make test` runs, installs it where it can."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

SLIPS = re.compile(r"\[object \w+|undefined|\bNaN\b|\bnull\b")
"""What a script writes where it has no value."""

Look = Callable[..., Any]
"""What the fixture `look` gives: an address shown in a browser."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    names = ("chromium", "chromium-browser", "google-chrome")
    found = [program for name in names if (program := shutil.which(name))]
    runs = [one for one in found if subprocess.run([one, "--version"], capture_output=True).returncode == 0]
    program = runs[0] if runs else None
    if program is None:
        pytest.skip("no chromium on this machine; `make browser` installs Debian's, as root")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        # A test machine's root has no user namespaces for chromium's sandbox; the pages are our own.
        one = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield one
        one.close()


@pytest.fixture
def look(browser: Any) -> Iterator[Look]:
    """`look(address, width=…)` is a page. Whatever it says, asks of another place, or slips, is an error at the end."""
    said: list[str] = []
    asked: list[str] = []
    homes: set[str] = set()
    pages = []

    def show(address: str, width: int = 1200, **how: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, reduced_motion="reduce", **how)
        page = context.new_page()
        pages.append(page)
        page.set_default_timeout(10_000)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.on("request", lambda request: asked.append(request.url))
        homes.add(address.partition("#")[0])
        page.goto(address)
        return page

    yield show
    slips = [found for page in pages for found in SLIPS.findall(page.locator("body").inner_text())]
    for page in pages:
        page.context.close()
    assert not said, said
    assert slips == []
    assert [url for url in asked if not url.startswith(tuple(homes))] == []
