"""The kernel says which file a tensor's bytes lie in, and whether they are still the file's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import fairway
from fairway.judge import answers
from fairway.model.weight_mappings import ByteRange, Mappings, release_mapped_memory


@pytest.fixture
def path(tmp_path: Path) -> Path:
    torch.manual_seed(1)
    save_file({"a": torch.randn(300, 70), "b": torch.randn(7)}, tmp_path / "w.safetensors")
    return tmp_path / "w.safetensors"


def span(tensor: torch.Tensor) -> ByteRange | None:
    return Mappings().find(tensor.data_ptr(), tensor.nbytes)


def test_a_tensor_is_found_where_it_lies_in_its_file(path: Path) -> None:
    for tensor in load_file(path).values():
        found = span(tensor)
        assert found is not None
        assert (found.path, found.length) == (str(path), tensor.nbytes)
        held = np.frombuffer(path.read_bytes(), np.float32, tensor.numel(), found.offset)
        assert np.array_equal(held, tensor.numpy().ravel())


def test_a_part_of_a_tensor_is_found_too(path: Path) -> None:
    whole = load_file(path)["a"]
    here, part = span(whole), span(whole[100:200])
    assert here is not None
    assert part == ByteRange(here.path, here.offset + 100 * 70 * 4, 100 * 70 * 4)


def test_what_was_written_to_in_memory_lies_in_no_file(path: Path) -> None:
    tensor = load_file(path)["a"]
    before = path.read_bytes()
    tensor[0, 0] = 1
    assert span(tensor) is None
    assert path.read_bytes() == before


def test_what_was_computed_lies_in_no_file(path: Path) -> None:
    assert span(load_file(path)["a"] + 1) is None


def test_a_file_that_is_gone_is_no_place(path: Path) -> None:
    tensor = load_file(path)["a"]
    path.unlink()
    assert span(tensor) is None


def test_more_than_the_file_holds_is_not_found(path: Path) -> None:
    tensor = load_file(path)["b"]
    assert Mappings().find(tensor.data_ptr(), 1 << 30) is None


def test_torch_files_are_found_as_well(tmp_path: Path) -> None:
    torch.save({"a": torch.arange(1000.0)}, tmp_path / "w.pt")
    tensor = torch.load(tmp_path / "w.pt", mmap=True, weights_only=True)["a"]
    found = span(tensor)
    assert found is not None
    held = np.frombuffer((tmp_path / "w.pt").read_bytes(), np.float32, 1000, found.offset)
    assert np.array_equal(held, np.arange(1000, dtype=np.float32))


def resident(path: Path) -> int:
    """KB of the file that are in this process's memory."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    kept = [next(lines) and next(lines) and next(lines) and next(lines) for line in lines if line.endswith(str(path))]
    return sum(int(line.split()[1]) for line in kept if line.startswith("Rss:"))


def test_what_is_forgotten_takes_no_memory_and_is_read_again(path: Path) -> None:
    tensor = load_file(path)["a"]
    total = tensor.sum()
    assert resident(path) > 50
    Mappings().forget()
    assert resident(path) == 0
    assert tensor.sum() == total


def test_what_was_written_to_in_memory_is_not_forgotten(path: Path) -> None:
    tensor = load_file(path)["a"]
    tensor[3] = 5
    Mappings().forget()
    assert tensor[3].tolist() == [5] * 70


def test_pages_of_a_large_model_are_freed_before_the_export(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "LARGE_MODEL_BYTES", 0)
    model = torch.nn.Linear(70, 300, bias=False).eval()
    model.weight = torch.nn.Parameter(load_file(path)["a"], requires_grad=False)
    assert model.weight.sum() != 0
    assert resident(path) > 50
    seen: list[int] = []

    def heard(event: object) -> None:
        seen.append(resident(path))

    out = path.with_name("out.onnx")
    fairway.export(model, ["input: float32[2, 70]"], out, level="none", weights="link", progress=heard)
    assert seen[0] == 0


def test_what_a_file_is_called_does_not_matter(path: Path) -> None:
    """A hub's cache keeps files under their hashes, and a snapshot's names are links to them."""
    blob = path.with_name("6f3a")
    path.rename(blob)
    path.symlink_to(blob)
    found = span(load_file(path)["a"])
    assert found is not None
    assert found.path == str(blob)


def test_libraries_are_no_place_for_weights() -> None:
    known = {area.path for area in Mappings()._areas}
    mapped = {line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "r-xp" in line}
    assert any("libtorch" in name for name in mapped)
    assert not known & mapped


def written_kb() -> int:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1])


def test_memory_that_was_freed_between_what_is_kept_goes_back() -> None:
    """Each block lies below one that is kept, so that malloc by itself gives none of them back."""
    freed, kept = [], []
    for _ in range(2000):
        freed.append(torch.ones(25_000))
        kept.append(bytearray(2000))
    full = written_kb()
    freed.clear()
    release_mapped_memory()
    assert full - written_kb() > 150_000
