"""The checker that scores the corpus: it must tell a right file from each kind of wrong one, on its own."""

import ast
import json
import sys
from pathlib import Path

import onnx
import pytest
import torch
from onnx import parser
from torch import nn

CORPUS = Path(__file__).parents[2] / "benchmarks" / "corpus"


@pytest.fixture(scope="module")
def corpus():
    """The corpus's modules, taken away again: their names are plain ones."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(CORPUS.parent))
        patch.syspath_prepend(str(CORPUS))
        import case
        import check
        import draw
        import run
        import table

        yield {"case": case, "check": check, "draw": draw, "run": run, "table": table}
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(CORPUS.parent):
            del sys.modules[name]


class Scaled(nn.Module):
    def forward(self, x):
        return 2 * x + x.shape[1]


EXAMPLE = {"batch": 3, "seq": 5}
RIGHT = """
    two = Constant <value = float {2.0}> ()
    all = Shape <start = 1, end = 2> (x)
    long = Cast <to = 1> (all)
    twice = Mul (two, x)
    y = Add (twice, long)
"""
FROZEN = """
    two = Constant <value = float {2.0}> ()
    five = Constant <value = float {5.0}> ()
    twice = Mul (two, x)
    y = Add (twice, five)
"""
OFF = RIGHT.replace("2.0", "2.01")
"""Half a per cent."""


def _scored(corpus, tmp_path, body, shape="batch, seq", model=None):
    case = corpus["case"].Case(
        "Scaled", "tests", model or Scaled, ("x: float32[batch, seq]",), {"batch": (1, 4), "seq": (2, 9)}
    )
    header = '<ir_version: 10, opset_import: ["" : 18]>'
    graph = parser.parse_model(f"{header} g (float[{shape}] x) => (float[{shape}] y) {{ {body} }}")
    onnx.save(graph, tmp_path / "a.onnx")
    return corpus["check"].score(case, case.build(), tmp_path / "a.onnx", EXAMPLE)


def test_a_right_file_is_right(corpus, tmp_path):
    assert _scored(corpus, tmp_path, RIGHT).outcome == "right"


def test_a_size_frozen_as_a_number_is_wrong_elsewhere(corpus, tmp_path):
    found = _scored(corpus, tmp_path, FROZEN)
    assert found.outcome == "wrong elsewhere"
    assert "'seq'" in found.note


def test_a_size_frozen_as_a_shape_is_baked(corpus, tmp_path):
    found = _scored(corpus, tmp_path, RIGHT, "batch, 5")
    assert found.outcome == "baked"
    assert "runtime" in found.note


def test_numbers_off_at_the_example_are_wrong(corpus, tmp_path):
    found = _scored(corpus, tmp_path, OFF)
    assert found.outcome == "wrong"
    assert "off by" in found.note


def test_a_file_that_does_not_load_is_refused(corpus, tmp_path):
    assert _scored(corpus, tmp_path, "y = Nonsense (x)").outcome == "refuses"


def test_another_number_of_outputs_is_wrong(corpus, tmp_path):
    class Twofold(Scaled):
        def forward(self, x):
            return super().forward(x), x

    assert "2 outputs expected" in _scored(corpus, tmp_path, RIGHT, model=Twofold).note


def test_not_a_number_is_not_taken_for_a_number(corpus):
    numbers, hole = torch.tensor([1.0, 2.0]), torch.tensor([1.0, float("nan")])
    assert corpus["check"].compare([numbers], [hole.numpy()]) is not None
    assert corpus["check"].compare([hole], [hole.numpy()]) is None


def test_a_model_that_pytorch_refuses_somewhere_is_not_legal(corpus):
    class Short(nn.Module):
        def forward(self, x):
            return x + torch.zeros(8)[: x.shape[1]]

    bounds = {"batch": (1, 4), "seq": (2, 9)}
    case = corpus["case"].Case("Short", "tests", Short, ("x: float32[batch, seq]",), bounds)
    assert "'seq': 9" in corpus["check"].legal(case)


def test_padding_is_not_scored_and_the_rest_is(corpus):
    expected, real = torch.zeros(1, 3, 2), torch.tensor([[True, True, False]]).numpy()
    padded, inside = expected.clone(), expected.clone()
    padded[0, 2] = inside[0, 1] = 1.0
    assert corpus["check"].compare([expected], [padded.numpy()], real=real) is None
    assert corpus["check"].compare([expected], [inside.numpy()], real=real) is not None


@pytest.mark.parametrize("largest", [True, False])
def test_ties_in_order_still_picks_the_right_values(corpus, largest):
    x = torch.randint(0, 4, (5, 9), generator=torch.Generator().manual_seed(3)).float()
    plain = x.topk(4, largest=largest)
    with corpus["check"].ties_in_order():
        ordered = x.topk(4, largest=largest)
    assert torch.equal(plain.values, ordered.values)
    assert torch.equal(x.gather(1, ordered.indices), ordered.values)
    same = ordered.values[:, :-1] == ordered.values[:, 1:]
    assert (ordered.indices[:, :-1] < ordered.indices[:, 1:])[same].all()


def test_the_corners_of_the_domain_are_among_the_points(corpus):
    bounds = {"batch": (1, 4), "seq": (2, 24), "time": (1000, 1800)}
    case = corpus["case"].Case("Any", "tests", Scaled, (), bounds, {"time": 8})
    found = corpus["draw"].points(case, seed=5)
    for place in (0, 1):
        assert {name: ends[place] for name, ends in bounds.items()} in found
    assert all(low <= point[name] <= high for point in found for name, (low, high) in bounds.items())
    assert all(point["time"] % 8 == 0 for point in found)


@pytest.mark.parametrize("name", ["check", "draw", "case"])
def test_the_checker_uses_none_of_fairways_code(name):
    imported = set()
    for node in ast.walk(ast.parse((CORPUS / f"{name}.py").read_text())):
        imported |= {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()
        imported |= {node.module} if isinstance(node, ast.ImportFrom) else set()
    assert imported
    assert not {module for module in imported if module.startswith("fairway")}


def test_the_committed_tables_are_what_the_committed_rows_say(corpus, tmp_path):
    run = corpus["run"]
    corpus["table"].write(run.every(CORPUS / "rows.jsonl"), run.read(CORPUS / run.IDLE), tmp_path)
    for name in ("results.json", "results.md", "chart.svg"):
        assert (tmp_path / name).read_text() == (CORPUS / name).read_text(), f"{name}: run.py --write"


def test_by_the_committed_tables_nothing_verified_is_wrong():
    goals = json.loads((CORPUS / "results.json").read_text())["goals"]
    assert goals["verified but wrong"] == []
