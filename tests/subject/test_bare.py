"""A model whose weights come from a checkpoint is built without room for any, and given the checkpoint's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from fairway.diagnostics.errors import UserError
from fairway.model.checkpoint import load_checkpoint
from fairway.model.meta_build import build_without_parameters
from fairway.model.recipe import Overrides, load_model
from fairway.model.weight_mappings import Mappings


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 4)
        self.rnn = nn.GRU(4, 4, batch_first=True)
        self.out = nn.Linear(4, 11, bias=False)
        self.out.weight = self.table.weight
        self.register_buffer("scale", torch.tensor(3.0), persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.out(self.rnn(self.table(ids))[0]) * self.scale


@pytest.fixture
def whole() -> Net:
    torch.manual_seed(3)
    return Net().eval()


def state(model: nn.Module) -> dict[str, torch.Tensor]:
    """As safetensors holds it: tied weights once."""
    return {name: tensor.detach() for name, tensor in model.named_parameters()}


def is_mapped(tensor: torch.Tensor) -> bool:
    return Mappings().find(tensor.data_ptr(), tensor.nbytes) is not None


def test_parameters_take_no_room_and_buffers_are_as_built() -> None:
    with build_without_parameters():
        model = Net()
    assert {p.device.type for p in model.parameters()} == {"meta"}
    assert model.scale.item() == 3.0
    assert model.out.weight is model.table.weight


class Drawing(nn.Linear):
    """Draws its weights a second time, as transformers' models do, and a buffer."""

    def __init__(self) -> None:
        super().__init__(4, 4)
        nn.init.normal_(self.weight)
        self.register_buffer("noise", torch.zeros(3).uniform_(1, 2))


class Draws(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.on: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.on.append(args[0].device.type)
        return func(*args, **(kwargs or {}))


def test_numbers_are_drawn_for_buffers_and_not_for_parameters() -> None:
    with Draws() as draws, build_without_parameters():
        model = Drawing()
    assert draws.on == ["cpu"]
    assert model.noise.min() >= 1
    assert "normal_" not in vars(torch.Tensor)


def test_a_bare_model_with_its_checkpoint_answers_like_the_whole_one(tmp_path: Path, whole: Net) -> None:
    save_file(state(whole), tmp_path / "w.safetensors")
    with build_without_parameters():
        model = Net().eval()
    load_checkpoint(model, tmp_path / "w.safetensors", False)
    ids = torch.arange(10).reshape(2, 5)
    assert torch.equal(model(ids), whole(ids))
    assert model.out.weight is model.table.weight
    assert all(is_mapped(p) for p in model.parameters())


def test_weights_of_another_float_width_are_cast(tmp_path: Path, whole: Net) -> None:
    save_file({name: tensor.half() for name, tensor in state(whole).items()}, tmp_path / "w.safetensors")
    load_checkpoint(whole, tmp_path / "w.safetensors", False)
    assert {p.dtype for p in whole.parameters()} == {torch.float32}
    assert not any(is_mapped(p) for p in whole.parameters())


def test_a_constructor_that_reads_its_weights_gets_them(tmp_path: Path, whole: Net) -> None:
    save_file(state(whole), tmp_path / "w.safetensors")
    (tmp_path / "recipe.py").write_text(
        "import torch, fairway\n"
        "class Net(torch.nn.Linear):\n"
        "    def __init__(self):\n"
        "        super().__init__(2, 2)\n"
        "        self.largest = self.weight.abs().max().item()\n"
        "recipe = fairway.Recipe(Net, ['input: float32[batch, 2]'], checkpoint='own.safetensors')\n"
    )
    save_file({"weight": torch.ones(2, 2), "bias": torch.zeros(2)}, tmp_path / "own.safetensors")
    model = load_model(f"{tmp_path}/recipe.py", Overrides()).model
    assert model.largest > 0
    assert torch.equal(model.weight, torch.ones(2, 2))


def shards(folder: Path, model: nn.Module) -> Path:
    """Two shards and their index."""
    where = {}
    held: list[dict[str, torch.Tensor]] = [{}, {}]
    for number, (name, tensor) in enumerate(state(model).items()):
        held[number % 2][name] = tensor
        where[name] = f"part-{number % 2}.safetensors"
    for number, part in enumerate(held):
        save_file(part, folder / f"part-{number}.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": where}))
    return index


def complaint(path: Path) -> tuple[str, str]:
    model = Net()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(UserError) as caught:
        load_checkpoint(model, path, False)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    return caught.value.finding.code, caught.value.finding.seen


@pytest.mark.parametrize("by", ["index", "folder"])
def test_shards_load_by_their_index_or_their_folder(tmp_path: Path, whole: Net, by: str) -> None:
    index = shards(tmp_path, whole)
    model = Net().eval()
    load_checkpoint(model, index if by == "index" else tmp_path, False)
    ids = torch.arange(10).reshape(2, 5)
    assert torch.equal(model(ids), whole(ids))


def test_a_shard_that_is_missing_is_named(tmp_path: Path, whole: Net) -> None:
    index = shards(tmp_path, whole)
    (tmp_path / "part-1.safetensors").unlink()
    assert complaint(index) == ("FW104", f"{tmp_path}/part-1.safetensors, which {index.name} names, does not exist")


@pytest.mark.parametrize("left", [0, 4, 100, -10], ids=["empty", "head cut", "header cut", "data cut"])
def test_a_shard_that_was_cut_is_named(tmp_path: Path, whole: Net, left: int) -> None:
    index = shards(tmp_path, whole)
    part = tmp_path / "part-1.safetensors"
    part.write_bytes(part.read_bytes()[:left])
    code, seen = complaint(index)
    assert (code, seen.split(" (")[0]) == ("FW105", "part-1.safetensors")


def test_an_index_that_names_a_tensor_nobody_has_is_refused(tmp_path: Path, whole: Net) -> None:
    index = shards(tmp_path, whole)
    said = json.loads(index.read_text())
    said["weight_map"]["ghost"] = "part-0.safetensors"
    index.write_text(json.dumps(said))
    code, seen = complaint(index)
    assert (code, "missing ghost, in part-0.safetensors by" in seen) == ("FW106", True)


def test_a_tensor_that_the_index_does_not_list_is_refused(tmp_path: Path, whole: Net) -> None:
    index = shards(tmp_path, whole)
    said = json.loads(index.read_text())
    del said["weight_map"]["table.weight"]
    index.write_text(json.dumps(said))
    code, seen = complaint(index)
    assert (code, "unexpected table.weight, not in" in seen) == ("FW106", True)


@pytest.mark.parametrize("name", ["../part-0.safetensors", "/etc/passwd", "sub/part-0.safetensors"])
def test_an_index_that_leaves_its_folder_is_refused(tmp_path: Path, whole: Net, name: str) -> None:
    index = shards(tmp_path, whole)
    index.write_text(json.dumps({"weight_map": {"table.weight": name}}))
    assert complaint(index) == ("FW105", f"{index.name} names {name!r}; shards must be in the same folder")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {}}', '{"weight_map": {"a": 1}}', "[" * 100_000]
)
def test_what_is_no_index_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(text)
    code, seen = complaint(tmp_path / "model.safetensors.index.json")
    assert (code, "expected" in seen and "weight_map" in seen) == ("FW105", True)


def test_whole_numbers_are_no_weights(tmp_path: Path, whole: Net) -> None:
    own = state(whole)
    own["table.weight"] = own["table.weight"].to(torch.int32)
    save_file(own, tmp_path / "w.safetensors")
    code, seen = complaint(tmp_path / "w.safetensors")
    assert (code, "table.weight: int32 in the file, float32 in the model" in seen) == ("FW106", True)


def test_a_folder_with_two_candidates_is_refused(tmp_path: Path, whole: Net) -> None:
    for name in ("a.safetensors", "b.safetensors"):
        save_file(state(whole), tmp_path / name)
    assert complaint(tmp_path) == ("FW104", f"{tmp_path} is a folder with 2 files that could be the checkpoint")
