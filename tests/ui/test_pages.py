"""The live pages in a real browser: listed, filtered, compared, watched."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from browsing import Look
from fairway.record.progress import PROGRESS_FILE
from fairway.record.ui.ui_server import PageServer
from fairway.workers.workshop import WORKSHOP_MARK, WORKSHOP_PREFIX
from records_made import HOSTILE, make_record, put, right_record


def names(page: Any) -> list[str]:
    return page.locator("#records .row a").all_inner_texts()


@pytest.fixture
def page(look: Look, server: PageServer) -> Any:
    one = look(server.address)
    one.wait_for_selector("#records .row")
    return one


def test_records_are_listed_filtered_and_ordered(page: Any) -> None:
    assert len(names(page)) == 5
    assert page.locator("#records .row", has_text="older/changed.onnx").locator(".mark").inner_text() == "changed"
    page.get_by_label("verdict").select_option(label="verified")
    assert names(page) == ["right.onnx"]
    page.get_by_label("verdict").select_option(label="all")
    page.get_by_label("Filter the records").fill("fw206")
    assert names(page) == ["wrong.onnx"]
    assert page.locator("#records [aria-live]").inner_text() == "1 of 5 records"
    page.get_by_label("Filter the records").fill("nothing like it")
    assert page.locator("#records .empty").is_visible()
    page.get_by_label("Filter the records").fill("")
    page.get_by_label("order").select_option(label="largest error first")
    assert names(page)[0] == "wrong.onnx"
    page.get_by_label("order").select_option(label="by name")
    assert names(page) == sorted(names(page))


def test_a_record_opens_as_its_report_and_leads_back(page: Any, server: PageServer) -> None:
    page.get_by_role("link", name="wrong.onnx").click()
    assert page.locator("#verdict .mark").inner_text() == "✗ wrong"
    assert page.locator("#first-wrong .box.bad").count() == 1
    page.get_by_role("link", name="← all records").click()
    page.wait_for_selector("#records .row")
    assert page.url == server.address


def test_two_records_are_chosen_and_compared(page: Any) -> None:
    compare = page.get_by_role("button", name="compare")
    assert compare.is_disabled()
    page.get_by_label("choose wrong.onnx").check()
    assert compare.is_disabled()
    page.get_by_label("choose right.onnx").check()
    page.get_by_role("button", name="compare 2").click()
    page.wait_for_selector("#comparison")
    assert page.get_by_role("tab").all_inner_texts() == ["What changed", "wrong.onnx", "right.onnx"]


def test_the_keyboard_chooses_and_opens(page: Any) -> None:
    page.get_by_label("order").select_option(label="by name")
    page.locator("#records .window").focus()
    page.keyboard.press("End")
    page.keyboard.press("Space")
    assert page.get_by_label("choose wrong.onnx").is_checked()
    page.get_by_role("button", name="choose none").click()
    assert not page.get_by_label("choose wrong.onnx").is_checked()
    page.locator("#records .window").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#verdict")


def test_a_new_record_shows_up_by_itself(page: Any, shelf_folder: Path) -> None:
    put(shelf_folder, "just_now.onnx", right_record())
    page.wait_for_selector("#records .row.fresh >> text=just_now.onnx")
    assert len(names(page)) == 6


def test_an_export_is_watched_from_rung_to_rung_until_it_is_gone(page: Any, shelf_folder: Path) -> None:
    shop = shelf_folder / f"{WORKSHOP_PREFIX}watched"
    shop.mkdir()
    (shop / WORKSHOP_MARK).touch()
    now = time.time()
    said = {
        "format": 2,
        "pid": os.getpid(),
        "target": "net.onnx",
        "model": HOSTILE[0],
        "now": now,
        "started_at": now - 30,
        "label": "",
        "route": "export-dynamic",
        "finished": [],
    }

    def write(**more: Any) -> None:
        (shop / "part").write_text(json.dumps({**said, **more}))
        os.replace(shop / "part", shop / PROGRESS_FILE)

    write()
    page.wait_for_selector("#running .mark.now >> text=export-dynamic")
    assert HOSTILE[0] in page.locator("#running .top").inner_text()
    failed = {"route": "export-dynamic", "verdict": "failed", "seconds": 4.0, "finding_codes": ["FW302"]}
    write(
        finished=[failed],
        route="trace",
        label="batch=2, time=7",
        count={"done": 15, "total": 60, "unit": "samples"},
        count_started_with=0,
        count_started_at=now - 10,
        count_updated_at=now,
        best="failed",
    )
    page.wait_for_selector("#running progress")
    text = page.locator("#running").inner_text()
    for words in (
        "export-dynamic",
        "failed",
        "4.0 s FW302",
        "trace",
        "15 of 60 samples",
        "about 30 s left",
        "to net.onnx",
        "best so far failed",
    ):
        assert words in text
    assert page.title().startswith("(1) ")
    write(pid=2**22 + 1)
    page.wait_for_selector("#running >> text=Its process is gone")
    (shop / PROGRESS_FILE).unlink()
    page.wait_for_selector("#running", state="hidden")


def test_names_from_a_stranger_are_text(page: Any) -> None:
    assert page.evaluate("window.hacked") is None
    assert page.locator("#main img, #main script").count() == 0
    assert HOSTILE[0][:20] in page.locator("#records").inner_text()


def test_a_server_that_is_gone_is_said(browser: Any, server: PageServer) -> None:
    page = browser.new_page()  # the browser logs the refusal as an error
    page.goto(server.address)
    page.wait_for_selector("#records .row")
    page.route("**/shelf", lambda route: route.fulfill(status=403, body="no"))
    page.wait_for_selector("text=No answer from", timeout=10_000)
    page.unroute("**/shelf")
    page.wait_for_selector("text=No answer from", state="hidden", timeout=10_000)
    page.close()


def test_an_empty_folder_says_what_would_be_here(look: Look, tmp_path: Path, server: PageServer) -> None:
    server.index.folder = tmp_path / "empty"
    server.index.folder.mkdir()
    page = look(server.address)
    page.wait_for_selector("text=No record lies in this folder yet")


def test_two_thousand_records_are_a_list_of_what_is_in_sight(look: Look, tmp_path: Path, server: PageServer) -> None:
    many = tmp_path / "many"
    many.mkdir()
    record = json.dumps({**make_record(), "file": {}})
    for n in range(2000):
        (many / f"net{n:04}.fairway.json").write_text(record)
    server.index.folder = many
    page = look(server.address)
    page.wait_for_selector("#records .row", timeout=30_000)
    assert page.locator("#records [aria-live]").inner_text() == "2,000 of 2,000 records"
    assert page.locator("#records .row").count() < 80


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_a_telephone(look: Look, server: PageServer, theme: str) -> None:
    page = look(server.address, width=400, color_scheme=theme)
    page.wait_for_selector("#records .row")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
