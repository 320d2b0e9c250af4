"""Imports run one way, `cli` alone prints, `fairway --help` needs no torch, and nothing grows too long."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest
from source_tree import imports, layer, modules, reach, tree

MODULE_LINES = 400
FUNCTION_LINES = 80

LONGER: dict[str, int] = {
    "fairway.api": 520,  # one function for each command, which are read one at a time
    "fairway.torch_internals": 630,  # one table with its accessors
    "fairway.diagnostics.codes": 1500,  # one flat table, which is looked up in and not read through
}
"""Modules that are longer, with the limit of each."""


@pytest.mark.parametrize("name", modules())
def test_a_module_imports_its_own_layer_and_those_below(name: str) -> None:
    above = sorted(one for one in imports(name) if layer(one) > layer(name))
    assert not above, f"{name} imports {', '.join(above)}, which stands above it"


def test_modules_import_one_another_in_no_circle() -> None:
    reached = {name: reach(name, imports) for name in modules()}
    assert [name for name in modules() if name in reached[name]] == []


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
