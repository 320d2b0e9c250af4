"""Checkpoints load whole or not at all, and run no code that the user did not vouch for."""

from __future__ import annotations

import os
import pickle
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fairway.diagnostics.errors import UserError
from fairway.model.checkpoint import SHOWN_MISMATCHES, load_checkpoint


class Net(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.fc = nn.Linear(3, width)
        self.register_buffer("mean", torch.zeros(3))


@pytest.fixture
def state() -> dict[str, torch.Tensor]:
    torch.manual_seed(7)
    return {name: torch.randn_like(value) for name, value in Net().state_dict().items()}


def complaint(path: Path, model: nn.Module | None = None, trust: bool = False) -> tuple[str, str]:
    model = Net() if model is None else model
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(UserError) as caught:
        load_checkpoint(model, path, trust)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    return caught.value.finding.code, caught.value.finding.seen


def assert_loaded(path: Path, state: dict[str, torch.Tensor], trust: bool = False) -> None:
    model = Net()
    with warnings.catch_warnings(action="error"):
        load_checkpoint(model, path, trust)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_safetensors_load(tmp_path: Path, state: dict[str, torch.Tensor]) -> None:
    save_file(state, tmp_path / "w.safetensors")
    assert_loaded(tmp_path / "w.safetensors", state)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_a_state_dict_loads_without_trust(tmp_path: Path, state: dict[str, torch.Tensor], zipped: bool) -> None:
    torch.save(state, tmp_path / "w.pt", _use_new_zipfile_serialization=zipped)
    assert_loaded(tmp_path / "w.pt", state)


@pytest.mark.parametrize("key", ["state_dict", "model_state_dict", "model"])
def test_a_state_dict_inside_a_training_scripts_dict_loads(
    tmp_path: Path, state: dict[str, torch.Tensor], key: str
) -> None:
    torch.save({"epoch": 3, key: state}, tmp_path / "w.pt")
    assert_loaded(tmp_path / "w.pt", state)


def test_a_whole_module_loads_with_trust_only(tmp_path: Path, state: dict[str, torch.Tensor]) -> None:
    model = Net()
    model.load_state_dict(state)
    torch.save(model, tmp_path / "w.pt")
    where = f"{Net.__module__}.Net"
    assert complaint(tmp_path / "w.pt") == ("FW107", f"w.pt: it names {where}, which is not a tensor")
    assert_loaded(tmp_path / "w.pt", state, trust=True)


class Touch:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, (str(self.path),))


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_code_in_a_pickle_does_not_run(tmp_path: Path, zipped: bool) -> None:
    torch.save({"fc.weight": Touch(tmp_path / "ran")}, tmp_path / "w.pt", _use_new_zipfile_serialization=zipped)
    assert complaint(tmp_path / "w.pt") == ("FW107", "w.pt: it names posix.mkdir, which is not a tensor")
    assert not (tmp_path / "ran").exists()


def test_torchs_own_warnings_about_a_pickle_are_not_passed_on(tmp_path: Path) -> None:
    with (tmp_path / "w.pt").open("wb") as file:
        pickle.dump({"fc.weight": Touch(tmp_path / "ran")}, file, protocol=4)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        assert complaint(tmp_path / "w.pt") == ("FW107", "w.pt: it holds more than tensors")
    assert heard == []


def test_a_missing_checkpoint_is_refused(tmp_path: Path) -> None:
    assert complaint(tmp_path / "w.pt") == ("FW104", f"{tmp_path / 'w.pt'}")
    assert complaint(tmp_path) == ("FW104", f"{tmp_path} is a folder with no model.safetensors and no index")


@pytest.mark.parametrize(
    ("name", "content", "seen"),
    [
        ("w.pt", b"", "w.pt (0 bytes) ends too early"),
        ("w.pt", b"hello\n", "w.pt (6 bytes) is neither a zip archive nor a pickle, as torch.save writes"),
        ("w.pt", b"PK\x03\x04r", "w.pt (5 bytes): PytorchStreamReader failed reading zip archive: not a ZIP archive"),
        ("w.safetensors", b"", "w.safetensors (0 bytes): Error while deserializing header: header too small"),
        (
            "w.safetensors",
            b"<!DOCTYPE html>",
            "w.safetensors (15 bytes): Error while deserializing header: header too large",
        ),
    ],
)
def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path, name: str, content: bytes, seen: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert complaint(tmp_path / name) == ("FW105", seen)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_a_truncated_checkpoint_is_refused(
    tmp_path: Path, state: dict[str, torch.Tensor], zipped: bool, part: float
) -> None:
    torch.save(state, tmp_path / "w.pt", _use_new_zipfile_serialization=zipped)
    whole = (tmp_path / "w.pt").read_bytes()
    (tmp_path / "w.pt").write_bytes(whole[: int(len(whole) * part)])
    code, seen = complaint(tmp_path / "w.pt")
    assert code == "FW105"
    assert seen.startswith(f"w.pt ({int(len(whole) * part)} bytes)")


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_a_truncated_safetensors_file_is_refused(tmp_path: Path, state: dict[str, torch.Tensor], part: float) -> None:
    path = tmp_path / "w.safetensors"
    save_file(state, path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * part)])
    assert complaint(path)[0] == "FW105"


def test_a_file_without_a_state_dict_is_answered_with_what_it_holds(tmp_path: Path) -> None:
    for content, seen in (({"epoch": 3}, "a dict of epoch"), ({}, "a dict of nothing"), ([1], "a list")):
        torch.save(content, tmp_path / "w.pt")
        assert complaint(tmp_path / "w.pt") == ("FW105", f"w.pt holds {seen}, not a state dict")


def test_another_architecture_is_answered_with_the_first_mismatches_and_their_number(
    tmp_path: Path, state: dict[str, torch.Tensor]
) -> None:
    others = {f"blocks.{i}.w": torch.zeros(1) for i in range(7)}
    torch.save({"fc.weight": state["fc.weight"], "mean": torch.zeros(9), **others}, tmp_path / "w.pt")
    code, seen = complaint(tmp_path / "w.pt")
    assert code == "FW106"
    assert seen.splitlines() == [
        "w.pt differs from Net in 9 places:",
        "    missing fc.bias",
        *(f"    unexpected blocks.{i}.w" for i in range(SHOWN_MISMATCHES - 1)),
        "    and 4 more",
    ]


def test_one_wrong_shape_is_one_place(tmp_path: Path, state: dict[str, torch.Tensor]) -> None:
    torch.save({**state, "mean": torch.zeros(9)}, tmp_path / "w.pt")
    seen = "w.pt differs from Net in 1 place:\n    mean: [9] in the file, [3] in the model"
    assert complaint(tmp_path / "w.pt") == ("FW106", seen)
