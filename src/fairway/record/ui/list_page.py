"""The page of the list. It has the style of the report, and its script may send requests to this server."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from fairway.record.page.page import compose_page, read_asset


@cache
def render_list_page() -> str:
    assets = files("fairway.record.ui") / "assets"
    style = read_asset("page.css") + (assets / "shelf.css").read_text(encoding="utf-8")
    scripts = [read_asset("drawing.js"), (assets / "shelf.js").read_text(encoding="utf-8")]
    return compose_page("Fairway", style, scripts, None, "; connect-src 'self'; form-action 'none'")
