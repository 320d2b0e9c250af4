"""A spec that cannot be met is refused before memory is asked for; finding a recipe runs it and nothing else."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

from fairway.model import subject as subject_module
from fairway.model.recipe import MAX_RECIPE_BYTES, Overrides, load_subject
from fairway.model.spec import parse_dim, parse_input
from fairway.model.subject import build_subject

from .watch import opened, refusal


class Net(torch.nn.Module):
    def forward(self, **inputs: torch.Tensor) -> None: ...


@pytest.fixture(autouse=True)
def small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject_module, "read_memory_bytes", lambda: 10**9)


@pytest.mark.parametrize(
    ("lines", "dims", "seen"),
    [
        (
            ["x: float32[1000000000, 1000000000]"],
            {},
            "x: float32[1000000000, 1000000000] at fixed: the inputs take 4.0 EB; this machine has 1.0 GB of memory",
        ),
        (
            ["x: int8[n, 2]"],
            {"n": (1, 2**40)},
            "x: int8[n, 2] at n=1099511627776: the inputs take 2.2 TB; this machine has 1.0 GB of memory",
        ),
        (["x: int8[n]"], {"n": (1, 10**18)}, "dim n: 1..1000000000000000000; a bound is at most 2^40"),
        (
            ["x: float32[a-b]"],
            {"a": (9, 10**9), "b": (0, 9)},
            "x: float32[a-b] at a=1000000000, b=0: the inputs take 4.0 GB; this machine has 1.0 GB of memory",
        ),
        (
            ["x: float32[150000000]", "y: float32[150000000]"],
            {},
            "y: float32[150000000] at fixed: the inputs take 1.2 GB; this machine has 1.0 GB of memory",
        ),
    ],
)
def test_inputs_that_do_not_fit_into_memory_are_refused(
    lines: list[str], dims: dict[str, tuple[int, int]], seen: str
) -> None:
    assert refusal(lambda: build_subject(Net(), lines, bounds=dims)) == ("FW017", seen)


@pytest.mark.parametrize(
    "size",
    [
        "+".join("abcdefghijkl"),
        "lambda: 3",
        "1if n else 2",
        "n.real",
        "0x10",
        "n[0]",
        "9" * 201,
        "10**9",
        "__import__('os')",
        "-n",
        "1e9",
        "True",
        "n\0",
        "٣",
        "(" * 101 + "n" + ")" * 101,
        "n" + "+1" * 101,
        "n//0//",
        "",
    ],
)
@pytest.mark.filterwarnings("error")
def test_a_size_that_contains_code_is_refused_without_a_warning(size: str) -> None:
    assert refusal(lambda: build_subject(Net(), [f"x: int8[1, {size}]"]))[0] == "FW001"


@pytest.mark.parametrize("size", ["(" * 90 + "n" + ")" * 90, "n" + "+1" * 90, "a+b+c+d+e+f+g+h"])
def test_a_size_at_the_limit_of_what_is_read_passes(size: str) -> None:
    assert build_subject(Net(), [f"x: int8[{size}]"]).spec[0].shape[0].text == size


@pytest.mark.parametrize("text", ["x: float32[" + "n," * 10**6, "x" * 10**6, "n=" + "9" * 5000 + "..3", " " * 10**6])
def test_a_line_of_any_length_is_answered_in_a_line(text: str) -> None:
    for parse in (parse_input, parse_dim):
        code, seen = refusal(lambda parse=parse: parse(text))  # type: ignore[misc]
        assert code == "FW001"
        assert len(seen) < 200


def test_a_range_without_end_is_refused() -> None:
    assert refusal(lambda: parse_input("x: float32[3] in 0..1e999"))[1].startswith("the ends of a range are finite")


RECIPE = """\
import builtins
builtins.ran.append(__file__)
import torch, fairway
net = fairway.Recipe(lambda: torch.nn.Linear(3, 3), ["input: float32[n, 3]"])
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A good recipe between files that must not run, some of which are called as libraries are."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("builtins.ran", [], raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("good", "setup", "conftest", "onnx", "numpy", "safetensors", "pkg/__init__", "pkg/mod"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.py").write_text(RECIPE)
    for name in ("good", "pkg", "pkg.mod"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def ran() -> list[str]:
    import builtins

    return [Path(name).name for name in builtins.ran]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("address", "files"),
    [("good.py", ["good.py"]), ("good:net", ["good.py"]), ("pkg.mod:net", ["__init__.py", "mod.py"])],
)
def test_only_the_recipe_that_was_named_runs(folder: Path, address: str, files: list[str]) -> None:
    load_subject(address, Overrides())
    assert ran() == files
    assert str(folder) != sys.path[0]


@pytest.mark.parametrize("address", ["good:nosuch", "good.py:nosuch", "pkg.nosuch:net"])
def test_a_folder_that_could_shadow_a_library_leaves_the_path(folder: Path, address: str) -> None:
    assert refusal(lambda: load_subject(address, Overrides()))[0] in ("FW101", "FW103")
    assert str(folder) != sys.path[0]


@pytest.mark.parametrize(
    ("address", "code", "seen"),
    [
        ("fifo.py", "FW101", "fifo.py is not a regular file"),
        ("folder.py", "FW101", "folder.py is a folder"),
        ("huge.py", "FW101", f"huge.py has {2**40} bytes; a recipe has at most {MAX_RECIPE_BYTES}"),
        (
            "weights.pt",
            "FW026",
            "the model is the path 'weights.pt'; the file holds weights without the code that uses them",
        ),
        ("odd name.mod:x", "FW101", "there is no module 'odd name.mod'"),
        ("..mod:x", "FW101", "there is no module '..mod'"),
        ("", "FW101", "there is no module ''"),
        ("good.py:net:net", "FW103", "good.py has no 'net:net'; name one: good.py:net"),
    ],
)
def test_what_is_no_recipe_is_refused(folder: Path, address: str, code: str, seen: str) -> None:
    os.mkfifo(folder / "fifo.py")
    (folder / "folder.py").mkdir()
    os.truncate(os.open(folder / "huge.py", os.O_CREAT | os.O_WRONLY), 1 << 40)
    (folder / "weights.pt").write_bytes(b"\x80")
    with opened() as files:
        assert refusal(lambda: load_subject(address, Overrides())) == (code, seen)
    assert not [name for name in files if name.endswith(("fifo.py", "huge.py"))]


@pytest.mark.parametrize("address", ["a\0b.py", "loop.py", "x" * 5000 + ".py", "/" * 5000, "\0", "x" * 300 + ":y"])
def test_a_path_that_is_none_is_refused(folder: Path, address: str) -> None:
    (folder / "loop.py").symlink_to("loop.py")
    code, seen = refusal(lambda: load_subject(address, Overrides()))
    assert code == ("FW103" if address == "/" * 5000 else "FW101"), "many slashes are the root folder"
    assert len(seen) < 500


@pytest.mark.parametrize("content", [b"x = 1\0", b"(" * 10**5, b"\xff\xfe", b"x = '''" + b"a" * 10**6, b"while"])
def test_a_recipe_that_is_no_python_is_the_recipes_error(folder: Path, content: bytes) -> None:
    (folder / "bad.py").write_bytes(content)
    assert refusal(lambda: load_subject("bad.py", Overrides()))[0] == "FW102"


def test_a_module_whose_own_getattr_raises_is_the_recipes_error(folder: Path) -> None:
    (folder / "odd.py").write_text("def __getattr__(name): raise KeyError(name)\n")
    assert refusal(lambda: load_subject("odd.py:net", Overrides()))[0] == "FW102"
