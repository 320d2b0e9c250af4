"""The user's own tensors: by name, checked against the spec, and never unpickled."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fairway.diagnostics.errors import UserError
from fairway.model.data import read_data
from fairway.model.subject import Subject, build_subject


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


@pytest.fixture
def subject() -> Subject:
    return build_subject(Net(), ["x: float32[batch, 3]", "y: float32[batch, 1]"], bounds={"batch": (2, 8)})


Save = Callable[[Path, dict[str, torch.Tensor]], None]


def as_npz(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    np.savez(path, **{name: tensor.numpy() for name, tensor in tensors.items()})


FORMATS: dict[str, Save] = {
    "d.npz": as_npz,
    "d.pt": lambda path, tensors: torch.save(tensors, path),
    "d.pth": lambda path, tensors: torch.save(tensors, path),
    "d.safetensors": lambda path, tensors: save_file(tensors, path),
}


def complaint(subject: Subject, path: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_data(subject, path)
    assert caught.value.finding.code == "FW113"
    return caught.value.finding.seen


@pytest.mark.parametrize("name", FORMATS)
def test_tensors_come_in_the_specs_order_whatever_the_files(tmp_path: Path, subject: Subject, name: str) -> None:
    x, y = torch.arange(12.0).reshape(4, 3), torch.ones(4, 1)
    FORMATS[name](tmp_path / name, {"y": y, "x": x, "not asked for": torch.zeros(1)})
    ((got_x, got_y),) = read_data(subject, tmp_path / name)
    assert torch.equal(got_x, x)
    assert torch.equal(got_y, y)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("tensors", "seen"),
    [
        ({"x": torch.zeros(4, 3)}, "lacks y; it holds x"),
        (
            {"x": torch.zeros(4, 3, dtype=torch.float64), "y": torch.zeros(4, 1)},
            ": x is float64[4, 3], the spec says x: float32[batch, 3]",
        ),
        (
            {"x": torch.zeros(4, 3, 1), "y": torch.zeros(4, 1)},
            ": x is float32[4, 3, 1], the spec says x: float32[batch, 3]",
        ),
        ({"x": torch.zeros(4, 5), "y": torch.zeros(4, 1)}, ": x is float32[4, 5], the spec says x: float32[batch, 3]"),
        ({"x": torch.zeros(4, 3), "y": torch.zeros(5, 1)}, ": batch is 4 by x axis 0 and 5 by y axis 0"),
        ({"x": torch.zeros(9, 3), "y": torch.zeros(9, 1)}, ": batch=9 is outside the domain batch 2..8"),
    ],
    ids=["missing", "dtype", "rank", "fixed size", "disagree", "outside"],
)
def test_tensors_that_do_not_fit_are_refused(
    tmp_path: Path, subject: Subject, name: str, tensors: dict[str, torch.Tensor], seen: str
) -> None:
    FORMATS[name](tmp_path / name, tensors)
    assert complaint(subject, tmp_path / name).replace(f"{name} lacks", "lacks").removeprefix(name) == seen


def test_a_size_that_is_an_expression_is_checked_too(tmp_path: Path) -> None:
    subject = build_subject(Net(), ["x: float32[n]", "y: float32[n//2]"])
    np.savez(tmp_path / "d.npz", x=np.zeros(7, np.float32), y=np.zeros(4, np.float32))
    assert complaint(subject, tmp_path / "d.npz") == "d.npz: y is float32[4], the spec says y: float32[n//2]"
    np.savez(tmp_path / "d.npz", x=np.zeros(7, np.float32), y=np.zeros(3, np.float32))
    assert len(read_data(subject, tmp_path / "d.npz")) == 1


class Touch:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, (str(self.path),))


def test_a_pickle_inside_an_npz_is_refused_and_does_not_run(tmp_path: Path, subject: Subject) -> None:
    np.savez(tmp_path / "d.npz", x=np.array([Touch(tmp_path / "ran")], dtype=object), y=np.zeros((4, 1), np.float32))
    seen = "d.npz: it holds pickled objects, which can run code; it was not loaded"
    assert complaint(subject, tmp_path / "d.npz") == seen
    assert not (tmp_path / "ran").exists()


def test_a_pickle_inside_a_pt_is_refused_and_does_not_run(tmp_path: Path, subject: Subject) -> None:
    torch.save({"x": Touch(tmp_path / "ran")}, tmp_path / "d.pt")
    seen = "d.pt: it names posix.mkdir, which is not a tensor; it was not loaded"
    assert complaint(subject, tmp_path / "d.pt") == seen
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", [[torch.zeros(4, 3)], torch.zeros(4, 3), {"x": 3}])
def test_a_pt_that_does_not_name_its_tensors_is_refused(tmp_path: Path, subject: Subject, content: Any) -> None:
    torch.save(content, tmp_path / "d.pt")
    assert complaint(subject, tmp_path / "d.pt") == "d.pt does not hold one tensor per input name"


def test_an_empty_file_of_tensors_is_refused(tmp_path: Path, subject: Subject) -> None:
    np.savez(tmp_path / "d.npz")
    assert complaint(subject, tmp_path / "d.npz") == "d.npz lacks x, y; it holds nothing"


def test_a_missing_file_and_another_format_are_refused(tmp_path: Path, subject: Subject) -> None:
    assert complaint(subject, tmp_path / "d.npz") == f"{tmp_path / 'd.npz'} does not exist"
    np.save(tmp_path / "d.npy", np.zeros(3))
    assert complaint(subject, tmp_path / "d.npy") == "d.npy: expected a .npz, .safetensors or .pt file"


@pytest.mark.parametrize("name", FORMATS)
def test_a_truncated_file_is_refused(tmp_path: Path, subject: Subject, name: str) -> None:
    FORMATS[name](tmp_path / name, {"x": torch.zeros(4, 3), "y": torch.zeros(4, 1)})
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    assert complaint(subject, tmp_path / name).startswith(f"{name}: ")
