"""Wrong files are refused: forty mutants of four models, each proven to differ from the right file on a legal input.

The same contest over twenty-one models and all judges is in `benchmarks/mutants`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "mutants"))

from contest import fairway_says, remembering, try_mutant
from models import MODELS, right_file
from mutate import propose
from prove import Pool, Witness, build_pool, know, prove

from fairway.convert.ladder.preflight import run_preflight

NAMES = ("sums", "pooling", "decoder", "choosing")
EACH = 10


class Bench:
    """One model, its right file and the prover's pool."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.subject = MODELS[name].subject(name)
        self.source = right_file(name, folder, "standard")
        self.folder = folder
        self.pool: Pool = build_pool(self.source, self.subject.spec, self.subject.domain, dict(self.subject.example))

    def rows(self, count: int) -> list[dict[str, object]]:
        """The first proven mutants, the classes in turn, with what standard says of them."""
        subject = self.subject
        known = know(self.source, subject.spec, subject.domain, dict(subject.example), self.pool.feeds[0])
        found = []
        with remembering() as looks:
            looks[self.name] = run_preflight(subject, True)
            for mutant in propose(self.name, self.source, known):
                target = self.folder / "mutant.onnx"
                row = try_mutant(mutant, subject, self.source, known, self.pool, target, ("standard",))
                found += [row] if "witness" in row else []
                if len(found) == count:
                    break
        return found


@pytest.fixture(scope="module", params=NAMES)
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Bench(request.param, tmp_path_factory.mktemp(request.param))
    torch.set_num_threads(threads)


def test_standard_refuses_every_mutant_and_each_was_proven_to_differ(bench: Bench) -> None:
    rows = bench.rows(EACH)
    assert len(rows) == EACH
    assert all(row["witness"] for row in rows)
    assert len(Counter(row["kind"] for row in rows)) >= 8
    assert [row for row in rows if row["standard"] == "verified"] == []


def test_the_right_file_is_verified_and_the_prover_agrees(bench: Bench) -> None:
    assert fairway_says(bench.subject, bench.source, "standard") == "verified"
    assert prove(bench.source, bench.pool) is None


def test_a_rounding_error_is_no_mutant_and_a_hundredth_is(bench: Bench) -> None:
    def scaled(by: float) -> Witness | str | None:
        model = ir.load(bench.source)
        for value in model.graph.initializers.values():
            tensor = value.const_value
            if tensor is not None and tensor.dtype == ir.DataType.FLOAT:
                value.const_value = ir.tensor((tensor.numpy() * by).astype(np.float32))
        ir.save(model, bench.folder / "scaled.onnx")
        return prove(bench.folder / "scaled.onnx", bench.pool)

    assert isinstance(scaled(1.01), Witness)
    assert scaled(1 + 2e-7) is None
