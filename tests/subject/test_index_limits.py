"""Indices into another input are declared below its size: `edges: int64[2, links] < nodes`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fairway
from fairway.deploy.serve.signature import check_values
from fairway.diagnostics.errors import UserError
from fairway.model.spec import parse_input
from fairway.model.subject import build_subject
from fairway.model.values import FLAVORS

LINES = ["x: float32[nodes, 4]", "edges: int64[2, links] < nodes"]
BOUNDS = {"nodes": (1, 9), "links": (1, 20)}


class Graph(nn.Module):
    """Adds to each node what its neighbors send."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.send = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        return x.index_add(0, edges[1], self.send(x)[edges[0]])


def test_indices_stay_below_the_size_in_every_flavor() -> None:
    subject = build_subject(Graph(), LINES, bounds=BOUNDS)
    assert [str(line) for line in subject.spec] == LINES
    largest = 0
    for nodes in (1, 2, 9):
        for seed, flavor in enumerate(FLAVORS):
            _, edges = subject.make({"nodes": nodes, "links": 20}, seed, flavor)
            assert 0 <= int(edges.min()) <= int(edges.max()) < nodes
            largest = max(largest, int(edges.max()))
    assert largest == 8


def test_a_graph_is_verified(tmp_path: Path) -> None:
    result = fairway.export(Graph().eval(), LINES, tmp_path / "out.onnx", bounds=BOUNDS, level="quick")
    assert result.verdict == "verified"
    assert "edges: < nodes, declared" in str(result)


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("edges: int64[2, links] < vertices", "edges < vertices: 'vertices' is not a dim; the dims are: nodes, links"),
        ("edges: int64[2, links] < 2*", "a number or a size belongs here: whole numbers, names, + - * //"),
    ],
)
def test_a_limit_that_is_no_size_is_refused(line: str, seen: str) -> None:
    with pytest.raises(UserError) as caught:
        build_subject(Graph(), [LINES[0], line])
    assert caught.value.finding.seen.startswith(seen)


def test_a_server_refuses_indices_beyond_the_size() -> None:
    spec, point = parse_input(LINES[1]), {"nodes": 5, "links": 3}
    check_values(spec, np.array([[0, 1, 4], [2, 2, 2]]), point)
    with pytest.raises(UserError, match=r"it holds 5; 0\.\.4 was verified"):
        check_values(spec, np.array([[0, 1, 5], [2, 2, 2]]), point)


@pytest.mark.parametrize("dtype", ["bool", "int64", "float32"])
@pytest.mark.parametrize("kind", ["keep", "padding"])
def test_a_server_reads_masks_of_any_dtype(kind: str, dtype: str) -> None:
    spec = parse_input(f"mask: {dtype}[batch, seq] = {kind}")
    rows = np.array([[1, 1, 0], [1, 0, 0]])
    check_values(spec, rows.astype(dtype), {"batch": 2, "seq": 3})
    hidden = np.array([[1, 1, 0], [0, 0, 0] if kind == "keep" else [1, 1, 1]])
    with pytest.raises(UserError, match="a row of the mask hides everything"):
        check_values(spec, hidden.astype(dtype), {"batch": 2, "seq": 3})
    if dtype != "bool":
        with pytest.raises(UserError, match="a mask holds 0 and 1 alone"):
            check_values(spec, (rows * 2).astype(dtype), {"batch": 2, "seq": 3})
