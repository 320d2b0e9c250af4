"""Imports run one way, `cli` alone prints, `fairway --help` needs no torch, and nothing grows too long."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"

LAYERS: tuple[tuple[str, ...], ...] = (
    ("fairway.telemetry",),
    ("fairway.torch_internals",),
    ("fairway.diagnostics",),
    ("fairway.workers",),
    ("fairway.model",),
    ("fairway.record",),
    ("fairway.judge",),
    ("fairway.convert",),
    ("fairway.tune", "fairway.debug", "fairway.deploy", "fairway.testing"),
    ("fairway.api",),
    ("fairway.deploy.callbacks",),
    ("fairway.cli",),
    ("fairway",),
)
"""From the ground up; the longest name that fits a module counts. A module imports its own layer and those below."""

MODULE_LINES = 400
FUNCTION_LINES = 80

LONGER: dict[str, int] = {
    "fairway.api": 520,  # one function for each command, which are read one at a time
    "fairway.torch_internals": 620,  # one table with its accessors
    "fairway.diagnostics.codes": 1500,  # one flat table, which is looked up in and not read through
}
"""Modules that are longer, with the limit of each."""


@cache
def modules() -> dict[str, Path]:
    found = {}
    for path in sorted((SOURCE / "fairway").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(modules()[name].read_text())


@cache
def imports(name: str) -> set[str]:
    """The modules of ours that this one imports, at its top or in a function. Imports for types alone do not count."""
    found = set()
    for node in _running(tree(name)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {_module(f"{node.module}.{alias.name}", node.module) for alias in node.names}
    return {one for one in found if one in modules() and one != name}


def _module(long: str, short: str) -> str:
    return long if long in modules() else short


def _running(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        yield child
        yield from _running(child)


def layer(name: str) -> int:
    fitting = [
        (len(prefix), number)
        for number, prefixes in enumerate(LAYERS)
        for prefix in prefixes
        if name == prefix or name.startswith(prefix + ".")
    ]
    return max(fitting)[1]


@pytest.mark.parametrize("name", modules())
def test_a_module_imports_its_own_layer_and_those_below(name: str) -> None:
    above = sorted(one for one in imports(name) if layer(one) > layer(name))
    assert not above, f"{name} imports {', '.join(above)}, which stands above it"


def test_modules_import_one_another_in_no_circle() -> None:
    assert not _circles()


def _circles() -> list[frozenset[str]]:
    reach = {name: _reached(name) for name in modules()}
    inside = [name for name in reach if name in reach[name]]
    return list({frozenset(other for other in reach[name] if name in reach[other]) for name in inside})


def _reached(name: str) -> set[str]:
    seen: set[str] = set()
    left = [name]
    while left:
        for one in imports(left.pop()) - seen:
            seen.add(one)
            left.append(one)
    return seen


@pytest.mark.parametrize("name", [n for n in modules() if not n.startswith("fairway.cli")])
def test_only_the_cli_prints(name: str) -> None:
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Call):
            said = ast.unparse(node.func)
            assert said not in ("print", "sys.stdout.write", "sys.stderr.write"), f"{name}:{node.lineno} prints"


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        "export --help",
        "export-generation --help",
        "verify --help",
        "locate --help",
        "reduce --help",
        "quantize --help",
        "sensitivity --help",
        "bench --help",
        "optimize --help",
        "report --help",
        "ui --help",
        "publish --help",
        "pull --help",
        "run --help",
        "serve --help",
        "doctor --help",
        "matrix --help",
        "watch --help",
        "watch add --help",
        "explain FW206",
        "routes",
    ],
)
def test_help_needs_no_torch(words: str) -> None:
    program = (
        "import sys; sys.modules['torch'] = sys.modules['onnx'] = sys.modules['onnxruntime'] = None; "
        f"sys.argv = ['fairway', *{words.split()!r}]; from fairway.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", modules())
def test_a_module_is_no_longer_than_is_good_to_read(name: str) -> None:
    lines = len(modules()[name].read_text().splitlines())
    assert lines <= LONGER.get(name, MODULE_LINES)
    assert name not in LONGER or lines > MODULE_LINES, f"{name} is short again: take it off the list"


@pytest.mark.parametrize("name", modules())
def test_a_function_is_no_longer_than_is_good_to_read(name: str) -> None:
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            length = node.end_lineno - node.lineno + 1
            assert length <= FUNCTION_LINES, f"{name}.{node.name} has {length} lines"
