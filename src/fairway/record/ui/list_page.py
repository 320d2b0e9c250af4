"""The list's page: the report's style and drawing, a script of its own, and leave to ask this server again."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from fairway.record.page.page import asset, compose


@cache
def list_page() -> str:
    assets = files("fairway.record.ui") / "assets"
    style = asset("page.css") + (assets / "shelf.css").read_text(encoding="utf-8")
    scripts = [asset("drawing.js"), (assets / "shelf.js").read_text(encoding="utf-8")]
    return compose("Fairway", style, scripts, None, "; connect-src 'self'; form-action 'none'")
