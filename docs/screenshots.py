"""Makes the pictures of the report and of the live list, from the model in docs/howto/a-page-to-send.md.

See `make screenshots`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import sync_playwright

from fairway.record.ui.ui_server import PageServer

DOCS = Path(__file__).parent
PAGE = DOCS / "howto/a-page-to-send.md"
WIDE, HIGH = 1120, 960
FAIRWAY = [sys.executable, "-m", "fairway"]


def main() -> None:
    """One of a wrong file in light, one of the repaired one in dark."""
    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("no chromium here: make browser")
    found = re.search(r"```python\n# (\S+)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    with TemporaryDirectory() as folder, sync_playwright() as driver:
        here = Path(folder) / "models"
        here.mkdir()
        (here / found[1]).write_text(found[2])
        fairway(here, "export", found[1], "-o", "traced.onnx", "--no-remedies", "--route", "trace")
        fairway(here, "export", found[1], "-o", "smooth.onnx")
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for model, theme, section in (("traced.wrong.onnx", "light", None), ("smooth.onnx", "dark", "remedies")):
            fairway(here, "report", model, "-o", f"{theme}.html")
            page = browser.new_context(viewport={"width": WIDE, "height": HIGH}, color_scheme=theme).new_page()
            page.goto((here / f"{theme}.html").as_uri())
            page.wait_for_selector("#graph .row")
            if section is not None:
                page.evaluate(f"document.getElementById('{section}').scrollIntoView({{behavior: 'instant'}})")
            page.screenshot(path=DOCS / f"images/report-{theme}.png")
        watch(here, browser, found[1])
        browser.close()


def watch(folder: Path, browser: Any, recipe: str) -> None:
    """The list, while one more export is at work."""
    with PageServer(folder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = browser.new_context(viewport={"width": WIDE, "height": 560}, color_scheme="light").new_page()
        page.goto(server.address)
        page.wait_for_selector("#records .row")
        with subprocess.Popen([*FAIRWAY, "export", recipe, "-o", "again.onnx"], cwd=folder):
            page.wait_for_selector("#running progress")
            page.screenshot(path=DOCS / "images/ui.png")
        server.shutdown()


def fairway(folder: Path, *words: str) -> None:
    subprocess.run([*FAIRWAY, *words], cwd=folder)


if __name__ == "__main__":
    main()
