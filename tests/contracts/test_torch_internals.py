"""Private names of torch and onnxscript are known to one module, and the installed versions have them all."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

from fairway import torch_internals as table

SOURCE = Path(__file__).parents[2] / "src" / "fairway"
HOME = SOURCE / "torch_internals.py"
FILES = [path for path in sorted(SOURCE.rglob("*.py")) if path != HOME]

PRIVATE_NAME = re.compile(
    r"\b(?:torch|onnxscript)(?:\.\w+)*\._(?!_)\w+|from (?:torch|onnxscript)[\w.]* import .*\b_(?!_)\w+"
)
ATTRIBUTES = {entry.path[-1] for entry in table.INTERNALS if entry.path and re.match(r"_(?!_)", entry.path[-1])} - {
    "_abs_tol"
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_no_other_module_names_private_parts_of_torch(path: Path) -> None:
    text = path.read_text()
    assert not PRIVATE_NAME.findall(text), "take it from fairway.torch_internals"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES and ast.unparse(node.value) != "self":
            raise AssertionError(f"line {node.lineno} reads {ast.unparse(node)}: take it from fairway.torch_internals")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_libraries_are_not_replaced_with_unittest_mock(path: Path) -> None:
    assert "unittest.mock" not in path.read_text(), "use fairway.torch_internals"


@pytest.mark.parametrize("entry", table.INTERNALS, ids=lambda entry: entry.name)
def test_the_installed_versions_have_every_name(entry: table.TorchInternal) -> None:
    value = import_module(entry.module)
    for part in entry.path:
        assert _has(value, part), f"{entry.where} is missing. {entry.without}"
        value = getattr(value, part, None)


def test_every_name_that_is_declared_for_mypy_is_in_the_table() -> None:
    (block,) = [node for node in ast.parse(HOME.read_text()).body if isinstance(node, ast.If)]
    declared = {node.target.id for node in block.body if isinstance(node, ast.AnnAssign)}  # type: ignore[union-attr]
    declared |= {node.targets[0].id for node in block.body if isinstance(node, ast.Assign)}  # type: ignore[attr-defined]
    for node in block.body:
        if isinstance(node, ast.ImportFrom):
            declared |= {alias.name for alias in node.names if alias.asname == alias.name}
    assert declared <= table.BY_NAME.keys()
    assert len(declared) > 40


def test_names_are_unique_and_every_entry_says_what_happens_without_it() -> None:
    assert len(table.BY_NAME) == len(table.INTERNALS)
    assert all(entry.without.endswith(".") and entry.versions for entry in table.INTERNALS)


def _has(owner: object, name: str) -> bool:
    """Attributes that a class sets in its methods count."""
    if hasattr(owner, name) or not inspect.isclass(owner):
        return hasattr(owner, name)
    python_classes = [kind for kind in owner.__mro__ if kind.__module__.split(".")[0] in ("torch", "onnxscript")]
    return any(
        name in vars(kind).get("__annotations__", {}) or f"self.{name} = " in inspect.getsource(kind)
        for kind in python_classes
    )
