"""The page holds everything, whatever names it is given, and stays small."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fairway.diagnostics.errors import UserError
from fairway.record.files import get_record_path
from fairway.record.page import page as page_module
from fairway.record.page.page import escape_json, make_page, write_page
from records_made import HOSTILE, bench, hostile, large, make_record, node, put, ranking, right_record, write_model


def data_in(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def complaint(call: Any) -> tuple[str, str]:
    with pytest.raises(UserError) as caught:
        call()
    return caught.value.finding.code, caught.value.finding.seen


def test_no_name_ends_the_data_or_takes_a_place_of_the_templates(tmp_path: Path) -> None:
    page = make_page([get_record_path(hostile(tmp_path))])
    assert page.count("<script") == 2
    assert page.count("</script") == 2
    assert "<img" not in page
    assert page.count("<!doctype") == 1
    story = data_in(page)["stories"][0]
    assert story["subject"]["name"] == HOSTILE[0]
    assert story["subject"]["class"] == HOSTILE[1]
    assert "\u202e" not in page
    assert len(page) < 400_000


def test_what_is_escaped_is_read_back_as_it_was() -> None:
    given = {"names": [*HOSTILE, "\u2028", "</SCRIPT ", "<!--", "]]>"]}
    said = escape_json(given)
    assert not set("<>&\u2028\u2029") & set(said)
    assert json.loads(said) == given


def test_the_page_names_no_other_host_and_allows_its_own_script_alone(tmp_path: Path) -> None:
    page = make_page([put(tmp_path, "m.onnx", make_record())])
    outside = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"']*", page)) - {"http://www.w3.org/2000/svg"}
    assert not outside
    assert "default-src &#x27;none&#x27;" in page
    assert "unsafe-eval" not in page
    assert re.search(r"script-src &#x27;sha256-[\w+/=]+&#x27;;", page)


def test_a_file_and_its_record_give_the_same_story(tmp_path: Path) -> None:
    model = put(tmp_path, "m.onnx", make_record())
    by_model, by_record = (data_in(make_page([one]))["stories"][0] for one in (model, get_record_path(model)))
    assert {**by_model, "label": ""} == {**by_record, "label": ""}
    assert by_model["around"]["nodes"][2]["name"] == "node_c"


def test_what_json_printed_elsewhere_finds_its_file_by_path_and_hash(tmp_path: Path) -> None:
    model = put(tmp_path, "m.onnx", make_record())
    (tmp_path / "elsewhere").mkdir()
    printed = tmp_path / "elsewhere/verdict.json"
    record = json.loads(get_record_path(model).read_text())
    printed.write_text(json.dumps({**record, "path": str(model)}))
    assert data_in(make_page([printed]))["stories"][0]["graph"]["total"] == 4
    printed.write_text(json.dumps({**record, "path": str(model), "file": {"name": "m.onnx", "sha256": "0" * 64}}))
    story = data_in(make_page([printed]))["stories"][0]
    assert story["graph"] is None
    assert story["note"].startswith("The model file is missing or has changed")


def test_a_file_that_changed_since_is_not_shown_with_its_old_verdict(tmp_path: Path) -> None:
    model = put(tmp_path, "m.onnx", right_record())
    write_model(model, [node("Neg", ["x"], ["y"], "other")], {}, "y")
    story = data_in(make_page([model]))["stories"][0]
    assert (story["verdict"], story["evidence"]) == ("changed", None)
    assert story["note"].startswith("FW116: m.onnx is not the file")


def test_a_file_without_a_record_is_drawn_and_nothing_is_claimed(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.onnx", [node("Neg", ["x"], ["y"], "n")], {}, "y")
    story = data_in(make_page([model]))["stories"][0]
    assert (story["verdict"], story["graph"]["total"]) == ("no record", 1)
    assert "Nothing shows that it is right" in story["note"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 2}', '{"format": 1, "verdict": "verified"}'])
def test_what_is_no_record_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.json").write_text(text)
    code, _ = complaint(lambda: make_page([tmp_path / "bad.json"]))
    assert code == "FW115"


@pytest.mark.parametrize("value", [None, 0, "text", [], {}, [None], {"a": None}, True, 1e308, "x" * 9000])
@pytest.mark.parametrize(
    "key", ["subject", "evidence", "ladder", "remedies", "findings", "versions", "settings", "quantized", "file"]
)
def test_a_record_that_holds_anything_anywhere_is_drawn_or_refused(tmp_path: Path, key: str, value: Any) -> None:
    path = tmp_path / "odd.json"
    odd = dict.fromkeys(("tested", "outputs", "sides", "smallest", "wrong_at"), value)
    for record in ({**make_record(), key: value}, make_record(evidence={**make_record()["evidence"], **odd})):
        path.write_text(json.dumps(record))
        assert draw_or_refuse(path) in ("drawn", "FW115")


def draw_or_refuse(path: Path) -> str:
    try:
        page = make_page([path])
    except UserError as error:
        return error.finding.code
    assert data_in(page)["stories"][0]["label"] == path.name
    return "drawn"


def test_a_giant_graph_loses_names_of_nodes_and_no_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = large(tmp_path, nodes=3000, points=50)
    monkeypatch.setattr(page_module, "LARGEST_PAGE_BYTES", 150_000)
    page = make_page([model])
    assert len(page.encode()) <= 150_000
    graph = data_in(page)["stories"][0]["graph"]
    assert graph["total"] == graph["modules"][0][3] == 3000
    assert 0 < len(graph["nodes"]) < 3000


def test_samples_beyond_what_fits_are_counted_and_the_wrong_ones_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = large(tmp_path, nodes=10, points=4000)
    monkeypatch.setattr(page_module, "LARGEST_PAGE_BYTES", 150_000)
    evidence = data_in(make_page([model]))["stories"][0]["evidence"]
    assert sum(evidence["counts"]) == 4000
    assert len(evidence["tested"]) < 4000
    assert sum(one[1] == 1 for one in evidence["tested"]) == evidence["counts"][1] == 42


def test_modules_and_operators_without_end_are_folded(tmp_path: Path) -> None:
    nodes = [node(f"Op{n % 600}", ["x"], [f"y{n}"], f"n{n}", f"top{n % 3}.middle{n}.leaf{n}") for n in range(5000)]
    graph = data_in(make_page([write_model(tmp_path / "m.onnx", nodes, {}, "y0")]))["stories"][0]["graph"]
    assert [row[1:4] for row in graph["modules"][1:]] == [
        ["top0", "Top0", 1667],
        ["top1", "Top1", 1667],
        ["top2", "Top2", 1666],
    ]
    assert (len(graph["operators"]), graph["operators"][-1][0]) == (501, "(others)")
    assert sum(count for _, count in graph["operators"]) == 5000


def test_a_record_whose_page_cannot_fit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vast.json"
    finding = dict.fromkeys(("code", "title", "severity", "kind", "seen", "why"), "x" * 4000)
    path.write_text(json.dumps(make_record(findings=[{**finding, "todo": ["y" * 4000] * 9}] * 200)))
    code, seen = complaint(lambda: make_page([path]))
    assert code == "FW115"
    assert seen.startswith("vast.json: its page would have ")


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    paths = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        paths.append(put(tmp_path / folder, "m.onnx", make_record()))
    assert data_in(make_page(paths))["comparison"]["labels"] == ["1. m.onnx", "2. m.onnx"]


def test_what_else_was_measured_is_known_by_what_it_holds(tmp_path: Path) -> None:
    model = put(tmp_path, "m.onnx", make_record())
    for name, found in (("b.json", bench()), ("r.json", ranking()), ("other.json", {"rows": []})):
        (tmp_path / name).write_text(json.dumps(found))
    data = data_in(make_page([model], [tmp_path / "b.json", tmp_path / "r.json"]))
    assert [one["label"] for one in (*data["bench"], *data["sensitivity"])] == ["b.json", "r.json"]
    code, seen = complaint(lambda: make_page([model], [tmp_path / "other.json"]))
    assert (code, seen) == ("FW006", "--measured other.json: expected a benchmark or a ranking")


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "folder.html").mkdir()
    code, _ = complaint(lambda: write_page(tmp_path / "folder.html", "page"))
    assert code == "FW009"
    assert [one.name for one in tmp_path.iterdir()] == ["folder.html"]
