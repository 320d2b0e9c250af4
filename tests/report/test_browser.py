"""The report in a real browser: every part is opened, clicked, filtered and compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairway.record.files import get_record_path
from records_made import HOSTILE, Opened, bench, hostile, large, make_record, put, ranking, right_record


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    return put(tmp_path, "wrong.onnx", make_record())


def rows(page: Any, section: str) -> list[str]:
    return page.locator(f"#{section} .list .row").all_inner_texts()


def test_the_contents_lead_to_every_part_of_a_wrong_record(opened: Opened, wrong: Path) -> None:
    page = opened([wrong], [bench(), ranking()])
    names = [one.get_attribute("id") for one in page.locator("#main section").all()]
    assert names == [
        "verdict",
        "domain",
        "ladder",
        "errors",
        "first-wrong",
        "remedies",
        "findings",
        "graph",
        "sensitivity",
        "bench",
        "environment",
    ]
    assert "12 of 18" in page.locator("#verdict .tiles").inner_text()
    assert page.locator("#verdict .mark").inner_text() == "✗ wrong"
    assert page.locator("#verdict .cause").inner_text() == "FW206 A loop is unrolled"
    for link in page.locator("#contents a").all():
        link.click()
        assert page.locator(link.get_attribute("href")).is_visible()


def test_the_domain_is_a_picture_whose_marks_choose_samples(opened: Opened, wrong: Path) -> None:
    page = opened([wrong])
    assert page.locator("#domain svg [data-point].dot.right").count() == 12
    assert page.locator("#domain svg [data-point].dot.wrong").count() == 6
    assert page.locator("#domain svg [data-point].dot.illegal").count() == 1
    assert page.locator("#domain svg .edge").count() == 1
    assert "right at time=100, wrong at 101" in page.locator("#domain svg .said").text_content()
    assert len(rows(page, "domain")) == 19
    page.locator("#domain svg [data-point='time=101 batch=8']").click(force=True)
    assert [one.split("\n")[0] for one in rows(page, "domain")] == ["batch=8, time=101"]


def test_samples_are_filtered_and_ordered(opened: Opened, wrong: Path) -> None:
    page = opened([wrong])
    page.get_by_label("Filter the samples").fill("batch=1")
    assert len(rows(page, "domain")) == 7
    page.locator("#domain select").first.select_option(label="wrong")
    assert [one.split("\n")[0] for one in rows(page, "domain")] == ["batch=1, time=101", "batch=1, time=400"]
    page.get_by_label("Filter the samples").fill("")
    page.locator("#domain select").first.select_option(label="all")
    page.locator("#domain select").last.select_option(label="largest error first")
    assert "time=101" in rows(page, "domain")[0]
    assert page.locator("#domain [aria-live]").inner_text() == "19 of 19"


def test_three_dims_are_drawn_two_at_a_time(opened: Opened, tmp_path: Path) -> None:
    record = make_record()
    record["subject"]["domain"]["width"] = {"low": 1, "high": 4, "multiple": 1, "declared": True}
    for one in record["evidence"]["tested"]:
        one["point"]["width"] = 3
    page = opened([put(tmp_path, "three.onnx", record)])
    assert "batch ↑" in page.locator("#domain .picture").text_content()
    page.get_by_label("upwards").select_option(label="width")
    assert page.locator("#domain svg [data-point*='width=3']").count() == 7


def test_a_rung_opens_with_time_memory_and_refused_remedies(opened: Opened, wrong: Path) -> None:
    page = opened([wrong])
    first, second = page.locator("#ladder details").all()
    assert "2.0 s" in first.inner_text()
    assert "300 MB" in first.inner_text()
    assert "no mask is built" not in first.inner_text()
    first.locator("summary").focus()
    page.keyboard.press("Enter")
    assert "no mask is built with vmap" in first.inner_text()
    second.locator("summary").click()
    assert "12 of 19 samples right" in second.inner_text()
    assert "…/work/smooth.py:18" in second.inner_text()
    start = [float(bar.get_attribute("x")) for bar in (d.locator("svg .fill") for d in (first, second))]
    assert start == [0, pytest.approx(1000 * 2 / 7)]


def test_errors_are_drawn_by_output_and_by_sample(opened: Opened, wrong: Path) -> None:
    page = opened([wrong])
    assert page.locator("#errors tr.other").inner_text().startswith("level")
    assert page.locator("#errors .picture .dot.wrong").count() == 6
    page.get_by_label("output").select_option(label="slope")
    assert page.locator("#errors .picture .dot.wrong").count() == 0
    assert page.locator("#errors .picture .dot.right").count() == 18


def test_the_first_wrong_node_is_drawn_with_its_neighbors_and_its_line(opened: Opened, wrong: Path) -> None:
    page = opened([wrong])
    assert page.locator("#first-wrong .source .hit").inner_text() == "19total = total * 0.5"
    assert page.locator("#first-wrong .box").count() == 4
    assert "second" in page.locator("#first-wrong .box.bad").inner_html()
    assert page.locator("#first-wrong .box.after").count() == 1
    assert "node_c (MatMul)" in page.locator("#first-wrong dl").inner_text()
    page.locator("#first-wrong .box").nth(1).focus()
    page.keyboard.press("Enter")
    assert "node_b (Tanh)" in page.locator("#first-wrong dl").inner_text()


def test_remedies_are_shown_before_and_after(opened: Opened, wrong: Path) -> None:
    said = opened([wrong]).locator("#remedies").inner_text()
    assert "cures FW206" in said
    assert "for t in range(n):" in said
    assert "scan(step)" in said
    before, after = said.index("before\texport-dynamic\tfailed"), said.index("after\ttrace\twrong\t12 of 19")
    assert before < after


def test_the_graph_is_searched_and_opened_by_mouse_and_keyboard(opened: Opened, wrong: Path) -> None:
    page = opened([wrong])
    names = page.locator("#graph .row > span:first-child bdi").all_inner_texts()
    assert names == ["smoother", "first", "second", "(no module named)"]
    page.locator("#graph .row", has_text="first").click()
    assert "activation" in rows(page, "graph")[2]
    assert page.locator("#graph .row[aria-expanded=true]").count() == 2
    page.locator("#graph [role=tree]").focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator("#graph .row[aria-expanded=true]").count() == 1
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert any("node_c" in one for one in rows(page, "graph"))
    page.get_by_label("Search the graph").fill("matmul")
    assert [one.split("\n")[0] for one in rows(page, "graph")] == ["node_a", "node_c"]
    assert page.locator("#graph [aria-live]").inner_text() == "2 found"
    page.get_by_role("button", name="collapse all").click()
    assert len(rows(page, "graph")) == 4


def test_the_slider_chooses_what_stays_in_float(opened: Opened, wrong: Path) -> None:
    page = opened([wrong], [ranking()])
    slider, said = page.get_by_label("Drop that may be lost"), page.locator("#sensitivity p[aria-live]")

    def kept(at: int) -> int:
        slider.fill(str(at))
        return int(said.inner_text().split()[1])

    assert [kept(1000), kept(900), kept(500)] == [0, 1, 5]
    assert page.locator("#sensitivity .row", has_text="float").count() == 5
    slider.focus()
    page.keyboard.press("Home")
    assert int(said.inner_text().split()[1]) == 10


def test_durations_are_drawn_at_each_point(opened: Opened, wrong: Path) -> None:
    page = opened([wrong], [bench()])
    assert page.locator("#bench .ridge").count() == 2
    assert "3.10x (2.90..3.30)" in page.locator("#bench").inner_text()
    page.get_by_label("sizes").select_option(label="batch=8, time=400")
    assert page.locator("#bench .ridge").count() == 1
    assert "failed: ran out of memory" in page.locator("#bench").inner_text()


def test_two_records_are_compared_and_each_can_be_looked_at(opened: Opened, tmp_path: Path, wrong: Path) -> None:
    versions = {"python": "3.11.7", "fairway": "0.1.0", "torch": "2.14.0"}
    page = opened([wrong, put(tmp_path, "right.onnx", right_record(versions=versions))], [bench()])
    said = page.locator("#comparison").inner_text()
    assert "verdict\twrong\tverified" in said
    assert "version of torch\t2.13.0+cpu\t2.14.0" in said
    assert "version of python" not in said
    assert "Of 18 points that all were tested at, 6 came out otherwise." in said
    page.get_by_label("only what differs").uncheck()
    assert "version of python\t3.11.7\t3.11.7" in page.locator("#comparison").inner_text()
    page.get_by_label("Filter the comparison").fill("torch")
    assert page.locator("#comparison tbody tr").count() == 1 + 6
    page.get_by_role("tab", name="right.onnx").click()
    assert page.locator("#verdict .mark").inner_text() == "✓ verified"
    page.keyboard.press("ArrowLeft")
    assert page.locator("#verdict .mark").inner_text() == "✗ wrong"
    assert page.get_by_role("tab", selected=True).inner_text() == "wrong.onnx"


def test_names_from_a_stranger_are_text(opened: Opened, tmp_path: Path) -> None:
    model = hostile(tmp_path)
    page = opened([get_record_path(model)])
    for summary in page.locator("summary").all():
        summary.click()
    assert page.evaluate("window.hacked") is None
    assert page.locator("#main img, #main script").count() == 0
    said = page.locator("body").inner_text()
    assert page.locator("#graph .row").count() > 3
    for name in HOSTILE[:3]:
        assert name in said
    assert "\u202e" not in said
    assert "(10000 characters)" in said
    assert page.evaluate("getComputedStyle(document.querySelector('h1 bdi')).unicodeBidi") == "isolate"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_ten_thousand_nodes_open_within_two_seconds_and_scroll(opened: Opened, tmp_path: Path) -> None:
    page = opened([large(tmp_path)])
    assert (tmp_path / "report.html").stat().st_size < 3_000_000
    took = []
    for _ in range(3):  # the machine may be busy with other tests
        page.reload()
        page.wait_for_selector("#graph .row")
        took.append(page.evaluate("performance.now()"))
    assert min(took) < 2000
    assert page.evaluate("document.querySelectorAll('*').length") < 12_000
    page.get_by_label("Search the graph").fill("node_of")
    assert page.locator("#graph [aria-live]").inner_text() == "10,000 found"
    page.locator("#graph [role=tree]").focus()
    page.keyboard.press("End")
    page.wait_for_selector("#graph .row >> text=node_of_a_usual_length_9999")
    assert page.locator("#graph .row").count() < 60
    page.locator("#domain .window").evaluate("one => one.scrollTop = one.scrollHeight")
    page.wait_for_selector("#domain [data-row='1999']")
    assert page.locator("#domain .row").count() < 60


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out_in_light_and_dark(opened: Opened, wrong: Path, theme: str) -> None:
    page = opened([wrong], [bench(), ranking()], color_scheme=theme)
    pairs = page.evaluate("""() => {
        const seen = (one) => { for (; one; one = one.parentElement) {
            const color = getComputedStyle(one).backgroundColor; if (!color.endsWith(', 0)')) return color; } };
        return ['p.soft', 'h2', 'td', 'nav a', 'nav a.bad', '.mark.wrong', '.mark.doubt', 'dt', 'dd', 'pre', 'button',
                '.tile span', '.source .hit', '.row .soft'].map((s) => { const one = document.querySelector(s);
                return [s, getComputedStyle(one).color, seen(one)]; }); }""")
    for name, ink, paper in pairs:
        assert contrast(ink, paper) >= 4.5, (name, ink, paper)
    dark = luminance(pairs[1][2]) < 0.2
    assert dark == (theme == "dark")
    page.locator("#theme").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"


def luminance(color: str) -> float:
    parts = [float(part) / 255 for part in color[color.index("(") + 1 : -1].split(",")[:3]]
    r, g, b = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_it_fits_a_telephone(opened: Opened, wrong: Path) -> None:
    page = opened([wrong], [bench(), ranking()], width=400)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_it_prints_on_a_few_sheets_however_large_it_is(opened: Opened, tmp_path: Path) -> None:
    page = opened([large(tmp_path)], [bench(), ranking()])
    page.get_by_label("Search the graph").fill("node_of")
    sheets = page.pdf().count(b"/Type /Page\n")
    assert 4 <= sheets <= 20
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()


def test_the_keyboard_reaches_every_control(opened: Opened, wrong: Path) -> None:
    page = opened([wrong], [bench(), ranking()])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reached = page.evaluate("""() => [...document.querySelectorAll('button, select, input, summary, .window, svg .box')]
        .filter((one) => one.tabIndex < 0).length""")
    assert reached == 0
    unnamed = page.evaluate("""() => [...document.querySelectorAll('select, input, .window')]
        .filter((one) => !one.getAttribute('aria-label') && !one.closest('label')).length""")
    assert unnamed == 0
