"""Recipes: found by file or module, run as Python runs them, and built with what the command line adds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fairway.diagnostics.errors import UserError
from fairway.model.recipe import Overrides, load_subject

NET = """\
import torch
import fairway


class Net(torch.nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.fc = torch.nn.Linear(3, width)

    def forward(self, x):
        return self.fc(x)


"""
LINE = '["x: float32[batch, 3]"]'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder; what a test imports from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def complaint(address: str, **overrides: Any) -> tuple[str, str]:
    with pytest.raises(UserError) as caught:
        load_subject(address, Overrides(**overrides))
    return caught.value.finding.code, caught.value.finding.seen


def test_the_only_recipe_of_a_file_needs_no_name(folder: Path) -> None:
    (folder / "r.py").write_text(NET + f"net = fairway.Recipe(Net, {LINE}, bounds={{'batch': (1, 9)}})\n")
    subject = load_subject("r.py", Overrides())
    assert (subject.name, [str(s) for s in subject.spec], str(subject.domain)) == (
        "net",
        ["x: float32[batch, 3]"],
        "batch 1..9",
    )


def test_several_recipes_are_told_apart_by_name(folder: Path) -> None:
    (folder / "r.py").write_text(NET + f"a = fairway.Recipe(Net, {LINE})\nb = fairway.Recipe(Net, {LINE})\n")
    assert complaint("r.py") == ("FW103", "r.py contains 2 recipes; name one: r.py:Net, r.py:a, r.py:b")
    assert load_subject("r.py:b", Overrides()).name == "b"


@pytest.mark.parametrize("name", ["Net", "ready", "build"])
def test_the_command_line_gives_inputs_to_anything_but_a_recipe(folder: Path, name: str) -> None:
    (folder / "r.py").write_text(NET + "ready = Net()\n\n\ndef build():\n    return Net(8)\n")
    subject = load_subject(f"r.py:{name}", Overrides(inputs=("x: float32[n, 3]",), bounds={"n": (2, 5)}))
    assert type(subject.model).__name__ == "Net"
    assert str(subject.domain) == "n 2..5"


def test_a_module_on_the_path_is_a_recipe_too(folder: Path) -> None:
    package = folder / "shipped_models"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "small.py").write_text(NET)
    subject = load_subject("shipped_models.small:Net", Overrides(inputs=("x: float32[n, 3]",)))
    assert subject.model.fc.out_features == 4


def test_the_command_line_goes_before_the_recipe(folder: Path) -> None:
    recipe = "fairway.Recipe(Net, (torch.zeros(2, 3),), dims={'x': 'batch 3'}, bounds={'batch': (1, 9)})\n"
    (folder / "r.py").write_text(NET + f"net = {recipe}")
    subject = load_subject("r.py", Overrides(bounds={"batch": (2, 5)}, multiples={"batch": 2}))
    assert str(subject.domain) == "batch 2..5 %2"
    subject = load_subject("r.py", Overrides(inputs=("x: float32[batch, 5, 3]",)))
    assert [str(s) for s in subject.spec] == ["x: float32[batch, 5, 3]"]


def test_a_single_tensor_is_inputs_enough(folder: Path) -> None:
    (folder / "r.py").write_text(NET + "net = fairway.Recipe(Net, torch.zeros(2, 3))\n")
    assert [str(s) for s in load_subject("r.py", Overrides()).spec] == ["x: float32[2, 3]"]


def test_a_relative_checkpoint_starts_at_the_recipes_folder(folder: Path) -> None:
    (folder / "models").mkdir()
    (folder / "models/r.py").write_text(NET + f"net = fairway.Recipe(Net, {LINE}, checkpoint='w.pt')\n")
    torch.save({"fc.weight": torch.ones(4, 3), "fc.bias": torch.ones(4)}, folder / "models/w.pt")
    assert float(load_subject("models/r.py", Overrides()).model.fc.weight.detach().sum()) == 12
    torch.save({"fc.weight": torch.zeros(4, 3), "fc.bias": torch.ones(4)}, folder / "other.pt")
    subject = load_subject("models/r.py", Overrides(checkpoint=Path("other.pt")))
    assert float(subject.model.fc.weight.detach().sum()) == 0
    (folder / "models/w.pt").unlink()
    assert complaint("models/r.py") == ("FW104", f"{folder / 'models/w.pt'}")


def test_a_recipe_imports_its_neighbors_at_once_or_later(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub/neighbor_now.py").write_text("WIDTH = 5\n")
    (folder / "sub/neighbor_built.py").write_text("HEIGHT = 6\n")
    (folder / "sub/neighbor_late.py").write_text("FACTOR = 7\n")
    (folder / "sub/r.py").write_text(
        "from neighbor_now import WIDTH\n"
        + NET.replace("return self.fc(x)", "from neighbor_late import FACTOR\n        return self.fc(x) * FACTOR")
        + "def build():\n    from neighbor_built import HEIGHT\n    return Net(WIDTH * HEIGHT)\n\n\n"
        + f"net = fairway.Recipe(build, {LINE})\n"
    )
    subject = load_subject("sub/r.py", Overrides())
    assert subject.model(torch.zeros(2, 3)).shape == (2, 30)


def test_two_recipes_with_neighbors_of_the_same_name_each_get_their_own(folder: Path) -> None:
    for name, width in (("one", 5), ("two", 6)):
        (folder / name).mkdir()
        (folder / name / "parts.py").write_text(f"WIDTH = {width}\n")
        recipe = f"from parts import WIDTH\n{NET}net = fairway.Recipe(lambda: Net(WIDTH), {LINE})\n"
        (folder / name / "r.py").write_text(recipe)
    assert load_subject("one/r.py", Overrides()).model.fc.out_features == 5
    assert load_subject("two/r.py", Overrides()).model.fc.out_features == 6


def test_a_neighbor_named_like_a_library_does_not_push_the_library_out(folder: Path) -> None:
    (folder / "json.py").write_text("raise RuntimeError('not the real one')\n")
    (folder / "onnx.py").write_text("raise RuntimeError('not the real one')\n")
    (folder / "r.py").write_text(f"import json\n{NET}net = fairway.Recipe(Net, {LINE})\n")
    before = sys.modules["json"]
    load_subject("r.py", Overrides())
    assert sys.modules["json"] is before
    import onnx

    assert str(folder) not in str(onnx.__file__)


def test_loading_a_recipe_leaves_the_random_state_alone(folder: Path) -> None:
    (folder / "r.py").write_text(f"import torch\ntorch.manual_seed(5)\n{NET}net = fairway.Recipe(Net, {LINE})\n")
    before = torch.get_rng_state()
    load_subject("r.py", Overrides())
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("address", "code", "seen"),
    [
        ("nosuch.py", "FW101", "nosuch.py does not exist"),
        ("sub/nosuch.py:net", "FW101", "sub/nosuch.py does not exist"),
        ("nosuch_module", "FW101", "there is no module 'nosuch_module'"),
        ("nosuch_module.inner:Net", "FW101", "there is no module 'nosuch_module.inner'"),
        ("..", "FW103", ".. is a folder without a config.json that names a transformers architecture"),
        (".:net", "FW101", "there is no module '.'"),
        ("", "FW101", "there is no module ''"),
        ("r.py:nosuch", "FW103", "r.py has no 'nosuch'; name one: r.py:Net"),
        ("r.py", "FW103", "r.py contains no recipe; name one: r.py:Net"),
        ("r.py:Net", "FW010", "r.py:Net declares no inputs"),
        ("r.py:torch", "FW103", "r.py:torch: expected a model, or a function that returns one, got module"),
        ("w.onnx", "FW101", "w.onnx is not a Python file"),
    ],
)
def test_an_address_that_leads_nowhere_is_refused(folder: Path, address: str, code: str, seen: str) -> None:
    (folder / "r.py").write_text(NET)
    (folder / "w.onnx").write_bytes(b"")
    assert complaint(address) == (code, seen)


@pytest.mark.parametrize(
    ("body", "seen", "line", "source"),
    [
        (
            "import nosuch_package\n",
            "r.py: ModuleNotFoundError: No module named 'nosuch_package'",
            1,
            "import nosuch_package",
        ),
        ("\n\ndef f():\n    return 1 / 0\n\nf()\n", "r.py: ZeroDivisionError: division by zero", 4, "return 1 / 0"),
        ("def f(:\n", "r.py: SyntaxError: invalid syntax (r.py, line 1)", 1, "def f(:"),
        ("exit(3)\n", "r.py: SystemExit: 3", 1, "exit(3)"),
    ],
    ids=["import", "raise", "syntax", "exit"],
)
def test_a_recipe_that_raises_is_reported_with_the_users_line(
    folder: Path, body: str, seen: str, line: int, source: str
) -> None:
    (folder / "r.py").write_text(body)
    with pytest.raises(UserError) as caught:
        load_subject("r.py", Overrides())
    finding = caught.value.finding
    assert (finding.code, finding.seen) == ("FW102", seen)
    assert finding.where is not None
    assert (finding.where.file, finding.where.line, finding.where.source) == (str(folder / "r.py"), line, source)


def test_a_module_that_raises_is_not_reported_as_missing(folder: Path) -> None:
    for name, body in (("pkg_raises", "1 / 0\n"), ("pkg_lacks", "import nosuch_package\n")):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(body)
        (folder / name / "inner.py").write_text(NET)
    assert complaint("pkg_raises.inner:Net") == ("FW102", "pkg_raises.inner: ZeroDivisionError: division by zero")
    assert complaint("pkg_lacks.inner:Net") == (
        "FW102",
        "pkg_lacks.inner: ModuleNotFoundError: No module named 'nosuch_package'",
    )
    assert complaint("pkg_lacks.other.inner:Net")[0] == "FW102"
    assert complaint("json.nosuch:Net") == ("FW101", "there is no module 'json.nosuch'")


def test_ctrl_c_inside_a_recipe_is_not_swallowed(folder: Path) -> None:
    (folder / "r.py").write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        load_subject("r.py", Overrides())
