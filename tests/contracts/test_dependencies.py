"""Dependencies are bounded, justified, and only those that every export needs come with a plain install."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CORE = [Requirement(line) for line in PROJECT["dependencies"]]
EXTRAS = {extra: [Requirement(line) for line in lines] for extra, lines in PROJECT["optional-dependencies"].items()}
EVERY = [*CORE, *(one for lines in EXTRAS.values() for one in lines)]
PAGE = (ROOT / "docs/explanation/dependencies.md").read_text()

IMPORTED_AS = {"onnx-ir": "onnx_ir"}
"""Distributions that are imported by another name than they are installed by."""


def pinned() -> dict[str, str]:
    """Return the versions that the tests run with. The Makefile names torch; requirements.txt names the others."""
    text = (ROOT / "requirements.txt").read_text() + (ROOT / "Makefile").read_text()
    return {canonicalize_name(name): version for name, version in re.findall(r"([\w-]+)==([\w.]+)", text)}


@pytest.mark.parametrize("one", EVERY, ids=lambda one: one.name)
def test_a_dependency_is_bounded_on_both_sides_around_its_pinned_version(one: Requirement) -> None:
    operators = {part.operator for part in one.specifier}
    assert operators == {">=", "<"}
    assert one.specifier.contains(pinned()[canonicalize_name(one.name)])


def rows() -> list[list[str]]:
    """The tables of the page: name, bounds, extra…"""
    lines = [line for line in PAGE.splitlines() if line.startswith("| `")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def test_the_page_justifies_exactly_the_dependencies_that_there_are() -> None:
    declared = [(one.name, str(one.specifier), "") for one in CORE]
    declared += [(one.name, str(one.specifier), extra) for extra, lines in EXTRAS.items() for one in lines]
    told = [
        (name, str(Requirement(name + bounds).specifier), when.replace("always", ""))
        for name, bounds, when, *_ in rows()
    ]
    assert sorted(told) == sorted(declared)
    assert all(all(cell for cell in row) for row in rows()), "every cell of the table says something"


def third_party(path: Path) -> Iterator[str]:
    """Packages that a module imports when it is imported itself; imports in functions and for types do not count."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


LAZY = {
    "fairway.judge.deep": {"hypothesis"},
    "fairway.deploy.serve.metrics": {"prometheus_client"},
    "fairway.deploy.serve.rest": {"starlette"},
    "fairway.deploy.serve.rpc": {"grpc"},
    "fairway.deploy.serve.tensors": {"orjson"},
}
"""Modules that only a feature of an extra imports; `fairway.diagnostics.extras.require_extra` stands before them."""


def test_what_a_module_imports_at_its_top_comes_with_a_plain_install() -> None:
    core = {IMPORTED_AS.get(one.name, one.name) for one in CORE} | {"fairway", *sys.stdlib_module_names}
    for path in sorted((ROOT / "src/fairway").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        assert set(third_party(path)) - core == LAZY.get(name, set()), name


def test_no_remote_code_is_ever_asked_for() -> None:
    for folder in ("src", "examples"):
        for path in (ROOT / folder).rglob("*.py"):
            assert "trust_remote_code" not in path.read_text(), path


def closure(wanted: Iterable[Requirement]) -> set[str]:
    """The distributions that pip would install, from what each says it needs."""
    found: set[str] = set()
    left = list(wanted)
    while left:
        one = left.pop()
        name = canonicalize_name(one.name)
        if name in found or (one.marker is not None and not one.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        left += map(Requirement, metadata.requires(name) or ())
    return found


def environment(folder: Path, *extras: str) -> Path:
    """A folder with what `pip install fairway-onnx[extras]` would bring and nothing else, as links to what is here."""
    folder.mkdir()
    for name in closure([*CORE, *(one for extra in extras for one in EXTRAS[extra])]):
        for file in metadata.distribution(name).files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (folder / top).exists():
                (folder / top).symlink_to(metadata.distribution(name).locate_file(top))
    return folder


RECIPE = """\
import torch
import fairway


class Net(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1


net = fairway.Recipe(Net, ["x: float32[batch, 3]"], bounds={"batch": (1, 4)})
"""

FIRST = """\
import contextlib, io, sys
sys.path[:0] = {paths!r}
connected = []
sys.addaudithook(lambda event, arguments: connected.append(arguments) if event == "socket.connect" else None)
from fairway.cli import main


def call(*words):
    sys.argv = ["fairway", *words]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            return ended.code, out.getvalue(), err.getvalue()


export = ("export", "recipe.py", "-o", "out.onnx", "--overwrite", "--route", "trace", "--level")
"""


def run(folder: Path, program: str, *extras: str) -> str:
    """Run a program in a separate environment, which cannot see site-packages."""
    bare = environment(folder / "site-packages", *extras)  # hypothesis takes files in other places for the user's code
    (folder / "recipe.py").write_text(RECIPE)
    (folder / "bert.py").write_text("import transformers\nnet = transformers.BertModel\n")
    whole = FIRST.format(paths=[str(bare), str(ROOT / "src")]) + textwrap.dedent(program)
    whole += "assert not connected, connected\n"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", whole], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_a_plain_install_exports_and_names_the_extra_of_missing_features(tmp_path: Path) -> None:
    out = run(
        tmp_path,
        """
        from importlib.util import find_spec
        assert [name for name in ("hypothesis", "openvino", "transformers", "pytest") if find_spec(name)] == []
        assert call("--help")[0] == 0
        code, out, err = call(*export, "quick")
        assert code == 0 and out.startswith("verified"), err
        print(*call(*export, "deep"), sep="\\n")
        code, _, err = call("serve", "out.onnx")
        assert (code, "fairway-onnx[serve]" in err) == (2, True), err
        print(*call("export", "bert.py:net", "-o", "bert.onnx", "--input", "input_ids: int64[b, s] < 9"), sep="\\n")
        """,
    )
    assert out.splitlines()[:6] == [
        "2",
        "",
        "FW018 error: An optional package is not installed",
        "  seen      the level deep needs hypothesis",
        "  why       A plain install contains only what every export needs. This feature needs an extra.",
        "  do        1. Install the extra: pip install 'fairway-onnx[deep]'",
    ]
    assert "FW102 error: The recipe raised an error" in out
    assert "No module named 'transformers'" in out


@pytest.mark.slow
def test_with_the_extra_deep_onnx_reference_is_the_second_runtime(tmp_path: Path) -> None:
    out = run(
        tmp_path,
        """
        code, out, err = call(*export, "deep")
        assert code == 0, out + err
        print(out)
        """,
        "deep",
    )
    assert out.startswith("verified")
    assert "second runtime: onnx.reference agrees" in out


@pytest.mark.slow
def test_the_extras_second_runtime_and_examples_install_their_packages(tmp_path: Path) -> None:
    out = run(
        tmp_path,
        """
        code, out, err = call(*export, "deep")
        assert code == 0, out + err
        print(out)
        import transformers
        print(transformers.BertModel.__name__)
        """,
        *EXTRAS,
    )
    assert "second runtime: openvino agrees" in out
    assert out.rstrip().endswith("BertModel")
