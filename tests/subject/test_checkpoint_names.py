"""Checkpoints of training: prefixes before the names, several sets of weights, and pointers of Git LFS."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fairway.diagnostics.errors import UserError
from fairway.model.checkpoint import load_checkpoint
from fairway.model.recipe import Overrides, load_subject

State = dict[str, torch.Tensor]


class Net(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width))
        self.head = nn.Linear(width, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))  # type: ignore[no-any-return]


class Lightning(nn.Module):
    """Holds the model as a LightningModule does, with a loss beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.loss = Net(), nn.CrossEntropyLoss(weight=torch.ones(2))


def make_state(seed: int = 1) -> State:
    torch.manual_seed(seed)
    return {name: torch.randn(value.shape).to(value.dtype) for name, value in Net().state_dict().items()}


def rename(change: Callable[[str], str]) -> State:
    return {change(name): value for name, value in make_state().items()}


def load(path: Path, key: str | None = None, model: nn.Module | None = None) -> list[str]:
    """Load into a new model, assert that the weights arrived, and return what was reported."""
    model = model or Net()
    remarks = load_checkpoint(model, path, False, key)
    for name, value in make_state().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=0, atol=0)
    assert {remark.code for remark in remarks} <= {"FW120"}
    return [remark.seen for remark in remarks]


def complaint(path: Path, key: str | None = None) -> str:
    with pytest.raises(UserError) as caught:
        load_checkpoint(Net(), path, False, key)
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        (lambda name: name, []),
        (lambda name: f"module.{name}", ["'module.' was removed from w.pt"]),
        (lambda name: f"_orig_mod.{name}", ["'_orig_mod.' was removed from w.pt"]),
        (lambda name: f"module._orig_mod.{name}", ["'_orig_mod.' and 'module.' was removed from w.pt"]),
        (lambda name: name.replace("body.", "body._orig_mod."), ["'_orig_mod.' was removed from w.pt"]),
        (lambda name: f"model.net.{name}", ["'model.net.' was removed from w.pt"]),
    ],
    ids=["none", "DataParallel", "compile", "both", "compiled part", "Lightning"],
)
def test_prefixes_of_training_are_removed_and_reported(
    change: Callable[[str], str], seen: list[str], tmp_path: Path
) -> None:
    torch.save(rename(change), tmp_path / "w.pt")
    assert load(tmp_path / "w.pt") == seen


def test_tensors_outside_the_prefix_are_counted(tmp_path: Path) -> None:
    state = {f"model.{name}": value for name, value in make_state().items()}
    torch.save({"state_dict": {**state, "loss.weight": torch.ones(2)}, "epoch": 3}, tmp_path / "last.ckpt")
    seen = "'model.' was removed from last.ckpt; 1 tensors without it were left out"
    assert load(tmp_path / "last.ckpt") == [seen]


def test_averaged_weights_are_read(tmp_path: Path) -> None:
    averaged = torch.optim.swa_utils.AveragedModel(Net())
    averaged.module.load_state_dict(make_state())
    torch.save(averaged.state_dict(), tmp_path / "ema.pt")
    assert load(tmp_path / "ema.pt") == ["'module.' was removed from ema.pt; 1 tensors without it were left out"]


def test_two_prefixes_that_fit_are_not_guessed_between(tmp_path: Path) -> None:
    other = make_state(2)
    both = {f"model.{name}": value for name, value in make_state().items()}
    torch.save({**both, **{f"ema.{name}": value for name, value in other.items()}}, tmp_path / "w.pt")
    assert complaint(tmp_path / "w.pt") == (
        "FW106: The checkpoint does not fit the model: w.pt holds weights for Net under several prefixes: model., "
        "ema.\n"
        "  do: Choose one: --checkpoint-key model., or checkpoint_key= in the recipe."
    )
    left = "7 tensors" if len(other) == 7 else f"{len(other)} tensors"
    assert load(tmp_path / "w.pt", "model.") == [f"'model.' was removed from w.pt; {left} without it were left out"]


def test_a_prefix_of_the_model_is_added(tmp_path: Path) -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

    save_file(make_state(), tmp_path / "w.safetensors")
    outer = Outer()
    (remark,) = load_checkpoint(outer, tmp_path / "w.safetensors", False)
    assert remark.seen == "w.safetensors lacks the prefix 'net.' of the model's names, which was added"
    assert torch.equal(outer.net.head.bias, make_state()["head.bias"])


def test_a_prefix_is_not_removed_if_the_rest_does_not_fit(tmp_path: Path) -> None:
    state = {f"module.{name}": value for name, value in Net(8).state_dict().items()}
    torch.save(state, tmp_path / "w.pt")
    text = complaint(tmp_path / "w.pt")
    assert text.startswith("FW106: The checkpoint does not fit the model: w.pt differs from Net in 18 places:\n")
    assert "another architecture" not in text


@pytest.mark.parametrize("key", ["ema", "weights.best"])
def test_the_entry_with_the_weights_can_be_chosen(key: str, tmp_path: Path) -> None:
    first, second = make_state(), make_state(2)
    torch.save({"ema": first, "params": second, "weights": {"best": first, "last": second}}, tmp_path / "w.pt")
    assert complaint(tmp_path / "w.pt") == (
        "FW105: The checkpoint cannot be read: w.pt holds weights under several keys: ema, params, weights.best, "
        "weights.last\n"
        "  do: Choose one: --checkpoint-key ema, or checkpoint_key= in the recipe."
    )
    assert load(tmp_path / "w.pt", key) == []
    assert complaint(tmp_path / "w.pt", "emma") == (
        "FW105: The checkpoint cannot be read: w.pt has no weights under the key 'emma'; the entries with weights are: "
        "ema, params, weights.best, weights.last\n"
        "  do: Pass one of these entries as --checkpoint-key, or leave the option out."
    )


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt"])
def test_a_pointer_of_git_lfs_is_named(name: str, tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 438010\n"
    (tmp_path / name).write_text(pointer)
    assert complaint(tmp_path / name) == (
        f"FW105: The checkpoint cannot be read: {name} is a Git LFS pointer; the file of 438010 bytes that it stands "
        "for was not downloaded\n  do: Run `git lfs pull` in the repository, or download the file itself."
    )


RECIPE = """
import fairway, torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        return self.head(x)

    def scores(self, x, scale: float = 2.0):
        return self(x) * scale

net = Net()
inputs = ["x: float32[batch, 3]"]
named = fairway.Recipe(Net, inputs, checkpoint="w.pt", checkpoint_key="ema")
method = fairway.Recipe(net.scores, inputs)
wrapped = fairway.Recipe(lambda: nn.DataParallel(Net()), inputs, checkpoint="w.pt", checkpoint_key="ema")
program = fairway.Recipe("net.pt2", None)
nothing = fairway.Recipe(lambda: None, inputs)
"""


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    (tmp_path / "r.py").write_text(RECIPE)
    state = {"head.weight": torch.ones(2, 3), "head.bias": torch.ones(2)}
    other = {f"module.{name}": value * 2 for name, value in state.items()}
    torch.save({"ema": other, "plain": state}, tmp_path / "w.pt")
    return f"{tmp_path}/r.py"


@pytest.mark.parametrize(("name", "codes"), [("named", ["FW120"]), ("wrapped", ["FW230", "FW120"])])
def test_a_recipe_names_the_weights(name: str, codes: list[str], recipe: str) -> None:
    subject = load_subject(f"{recipe}:{name}", Overrides())
    assert [remark.code for remark in subject.remarks] == codes
    assert torch.equal(subject.model.state_dict()["head.bias"], torch.full((2,), 2.0))
    plain = load_subject(f"{recipe}:{name}", Overrides(checkpoint_key="plain"))
    assert torch.equal(plain.model.state_dict()["head.bias"], torch.ones(2))


def test_a_recipes_model_may_be_a_method_or_a_file(recipe: str, tmp_path: Path) -> None:
    assert [str(line) for line in load_subject(f"{recipe}:method", Overrides()).spec] == ["x: float32[batch, 3]"]
    batch = torch.export.Dim("batch", min=2, max=9)
    program = torch.export.export(nn.Linear(3, 2), (torch.randn(4, 3),), dynamic_shapes={"input": {0: batch}})
    torch.export.save(program, tmp_path / "net.pt2")
    for address in (f"{recipe}:program", f"{tmp_path}/net.pt2"):
        subject = load_subject(address, Overrides())
        assert [str(line) for line in subject.spec] == ["input: float32[input_0, 3]"]
        assert str(subject.domain) == "input_0 2..9"
    with pytest.raises(UserError, match=r"FW103: .* returned None, which is not a model"):
        load_subject(f"{recipe}:nothing", Overrides())
