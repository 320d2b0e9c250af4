"""The parts that a page is made of: the story, the graph, the neighborhood, the measurements, the comparison."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from fairway.record.page.comparison import compare_summaries
from fairway.record.page.graph import find_module, read_graph
from fairway.record.page.measurements import HISTOGRAM_BINS, count_bins
from fairway.record.page.neighbors import MAX_COLUMN_NODES, find_neighborhood
from fairway.record.page.sanitize import clean_text, shorten_path
from fairway.record.page.summary import ILLEGAL, RIGHT, WRONG, summarize
from fairway.record.schema import Record
from records_made import make_record, node, right_record, small_model, write_model


def parse(record: dict[str, Any]) -> Record:
    return Record.model_validate_json(json.dumps(record), strict=True)


def test_a_sample_is_right_wrong_or_not_legal() -> None:
    states = [row[1] for row in summarize(parse(make_record()), "m")["evidence"]["tested"]]
    assert [states.count(one) for one in (RIGHT, WRONG, ILLEGAL)] == [12, 6, 1]


def test_the_commands_do_the_same_again_and_are_quoted_for_a_shell() -> None:
    record = make_record(file={"name": "m.wrong.onnx", "sha256": "0" * 64})
    record["subject"]["domain"]["'; rm -rf ~ #"] = {"low": 1, "high": 2, "multiple": 2, "declared": True}
    pip, export, verify = summarize(parse(record), "m")["reproduce"]
    assert pip == "pip install torch==2.13.0"
    hostile = """--dim ''"'"'; rm -rf ~ #=1..2' --dim ''"'"'; rm -rf ~ #%2'"""
    dims = f"--dim batch=1..8 --dim time=1..400 {hostile} --level standard"
    assert export == f"fairway export RECIPE.py -o m.onnx {dims} --no-remedies --route trace"
    assert verify == f"fairway verify m.wrong.onnx RECIPE.py {dims}"


def test_source_around_a_line_needs_the_unchanged_file(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text("".join(f"line {n}\n" for n in range(1, 9)))
    finding = {"code": "FW206", "where": {"file": str(file), "line": 4, "source": "line 4"}}
    around = summarize(parse(make_record(findings=[finding])), "m")["findings"][0]["where"]["around"]
    assert around == [[n, f"line {n}"] for n in range(1, 8)]
    finding["where"]["source"] = "line 5"  # type: ignore[index]
    assert summarize(parse(make_record(findings=[finding])), "m")["findings"][0]["where"]["around"] == []


def test_paths_of_this_machine_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shorten_path(str(tmp_path / "src/net.py")) == "src/net.py"
    assert shorten_path("/home/someone/secret/project/net.py") == "…/project/net.py"


def test_text_is_cut_and_holds_no_character_that_turns_the_line() -> None:
    assert clean_text("a\u202eb\x1b[0m") == "a\ufffdb\ufffd[0m"
    assert clean_text("x" * 5000) == "x" * 4000 + "… (5000 characters)"


def test_nodes_and_weights_are_summed_by_module(tmp_path: Path) -> None:
    graph, _ = read_graph(small_model(tmp_path / "m.onnx"))
    assert graph["modules"] == [
        [-1, "", "", 4, 32, 128],
        [0, "first", "First", 2, 16, 64],
        [1, "activation", "Activation", 1, 0, 0],
        [0, "second", "Second", 1, 16, 64],
        [0, "(no module named)", "", 1, 0, 0],
    ]
    assert graph["operators"] == [["MatMul", 2], ["Tanh", 1], ["Add", 1]]
    assert graph["nodes"][1] == ["node_b", 1, 2]


@pytest.mark.parametrize(
    ("name", "parts"),
    [("/model/net/net.0/Conv", ("net", "0")), ("/model/Add", ()), ("/head/fc/Gemm_1", ("head", "fc"))],
)
def test_the_tracers_names_tell_the_module_too(name: str, parts: tuple[str, ...]) -> None:
    assert find_module(helper.make_node("Conv", ["x"], ["y"], name=name)) == (parts, ())
    assert find_module(helper.make_node("Conv", ["x"], ["y"], name="Conv_1")) is None


def test_a_loops_body_counts_for_the_loops_module_and_reads_from_outside(tmp_path: Path) -> None:
    inner = helper.make_graph(
        [helper.make_node("Mul", ["a", "a"], ["out"], name="mul")],
        "body",
        [],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
    )
    flag = helper.make_node("Constant", [], ["flag"], value=helper.make_tensor("t", TensorProto.BOOL, [], [True]))
    nodes = [
        flag,
        node("Neg", ["x"], ["a"], "neg"),
        node("If", ["flag"], ["y"], "choice", "gate", then_branch=inner, else_branch=inner),
    ]
    graph, proto = read_graph(write_model(tmp_path / "m.onnx", nodes, {}, "y"))
    assert [row[1:4] for row in graph["modules"]][2] == ["gate", "Gate", 3]
    around = find_neighborhood(proto, {"node": "choice"})
    assert around is not None
    assert {(a, b) for a, b, _ in around["edges"]} == {(0, 2), (1, 2)}


def test_the_neighborhood_is_found_by_node_or_value_and_stays_small() -> None:
    many = [helper.make_node("Neg", ["y"], [f"z{n}"], name=f"z{n}") for n in range(20)]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"], name="n"), *many], "g", [], [])
    proto = helper.make_model(graph)
    for at in ({"node": "n"}, {"node": "the node that gives y", "value": "y"}):
        around = find_neighborhood(proto, at)
        assert around is not None
        assert [one["column"] for one in around["nodes"]] == [0] + [1] * MAX_COLUMN_NODES
        assert around["nodes"][0]["wrong"]
        assert around["left_out"] == 20 - MAX_COLUMN_NODES
    assert find_neighborhood(proto, {"node": "absent"}) is None
    assert find_neighborhood(onnx.ModelProto(), {"node": "n"}) is None


def test_durations_fall_into_bins_of_equal_ratio() -> None:
    counts = count_bins([1.0, 10.0, 100.0, 1000.0], 1.0, 100.0)
    assert [(n, count) for n, count in enumerate(counts) if count] == [
        (0, 1),
        (HISTOGRAM_BINS // 2, 1),
        (HISTOGRAM_BINS - 1, 1),
    ]
    assert count_bins([1.0], 1.0, 1.0) == [0] * HISTOGRAM_BINS


def test_a_comparison_says_what_differs() -> None:
    stories = [
        {**summarize(parse(one), label), "graph": None} for one, label in ((make_record(), "a"), (right_record(), "b"))
    ]
    found = compare_summaries(stories)
    facts = {row["name"]: (row["values"], row["differs"]) for row in found["facts"]}
    assert facts["verdict"] == (["wrong", "verified"], True)
    assert facts["samples right"] == (["12 of 18", "19 of 19"], True)
    assert facts["version of torch"] == (["2.13.0+cpu", "2.13.0+cpu"], False)
    assert [(row["name"], row["differs"]) for row in found["outputs"]] == [("level", True), ("slope", True)]
    assert (found["points"]["shared"], found["points"]["differ"]) == (18, 6)
    int8 = {"from": {"name": "m.onnx"}, "scheme": "int8-static", "said": "int8-static from 0123, drop 0.1%"}
    other = {**summarize(parse(right_record(verdict="quantized", quantized=int8)), "c"), "graph": None}
    facts = {row["name"]: row["values"] for row in compare_summaries([stories[1], other])["facts"] if row["differs"]}
    assert facts == {"verdict": ["verified", "quantized"], "quantized": ["", int8["said"]]}
    assert found["points"]["rows"][0] == {"name": "batch=1, time=101", "values": [WRONG, RIGHT]}
