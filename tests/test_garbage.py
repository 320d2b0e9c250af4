"""Python's search for garbage: rare while there is next to none, and then as before."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import fairway
from fairway.workers.garbage import RARE_COLLECTION_OBJECTS, collect_garbage_rarely


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize(("often", "meanwhile"), [(700, RARE_COLLECTION_OBJECTS), (10**6, 10**6), (0, 0)])
def test_garbage_is_looked_for_less_often_never_more_and_then_as_before(often: int, meanwhile: int) -> None:
    gc.set_threshold(often, 2, 3)
    with collect_garbage_rarely():
        assert gc.get_threshold() == (meanwhile, 2, 3)
    assert gc.get_threshold() == (often, 2, 3)
    with pytest.raises(OSError, match="no such recipe"), collect_garbage_rarely():
        raise OSError("no such recipe")
    assert gc.get_threshold() == (often, 2, 3)


def test_an_export_collects_rarely_and_the_caller_as_before(tmp_path: Path) -> None:
    seen = tmp_path / "seen"

    class Notes(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with seen.open("a") as file:
                file.write(f"{gc.get_threshold()[0]}\n")
            return x + 1

    before = gc.get_threshold()
    fairway.export(Notes(), ["x: float32[2]"], tmp_path / "out.onnx", level="none")
    assert {*seen.read_text().split()} == {str(RARE_COLLECTION_OBJECTS)}
    assert gc.get_threshold() == before
