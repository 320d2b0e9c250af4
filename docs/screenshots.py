"""Makes README.md's pictures of the report, from the model in docs/howto/a-page-to-send.md. See `make screenshots`."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parent
PAGE = DOCS / "howto/a-page-to-send.md"
WIDE, HIGH = 1120, 960


def main() -> None:
    """One of a wrong file in light, one of the repaired one in dark."""
    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("no chromium here: make browser")
    found = re.search(r"```python\n# (\S+)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    with TemporaryDirectory() as folder, sync_playwright() as driver:
        here = Path(folder)
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
        browser.close()


def fairway(folder: Path, *words: str) -> None:
    subprocess.run([sys.executable, "-c", "from fairway.cli import main; main()", *words], cwd=folder)


if __name__ == "__main__":
    main()
