"""The project's own files agree with each other: version, workflow, hooks, templates, distribution."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import fairway
from fairway.diagnostics.plugins import KNOWLEDGE, REMEDIES, TRANSLATIONS
from fairway.record.schema import RECORD_FORMAT

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MAKEFILE = (ROOT / "Makefile").read_text()
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
HOOK_REPOS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
HOOKS = [hook for repo in HOOK_REPOS for hook in repo["hooks"]]
TARGETS = set(re.findall(r"^([\w-]+):(?!=)", MAKEFILE, re.MULTILINE))


def workflow_commands() -> list[str]:
    return [step["run"] for job in WORKFLOW["jobs"].values() for step in job["steps"] if "run" in step]


def test_the_version_is_written_once() -> None:
    assert "version" not in PROJECT["project"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "fairway.__version__"}


def test_the_citation_and_the_changelog_have_the_packages_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == fairway.__version__
    assert citation["license"] == PROJECT["project"]["license"]
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == fairway.__version__


def test_the_workflow_runs_only_make_targets() -> None:
    commands = workflow_commands()
    assert commands
    for command in commands:
        words = command.split()
        assert words[0] == "make", command
        assert words[1] in TARGETS, command


def test_the_workflow_runs_all_that_make_test_runs() -> None:
    needed = re.search(r"^test: (.*)$", MAKEFILE, re.MULTILINE)
    assert needed is not None
    assert set(needed[1].split()) <= {command.split()[1] for command in workflow_commands()}


def test_the_workflow_tests_the_oldest_and_the_pinned_torch() -> None:
    versions = WORKFLOW["jobs"]["tests"]["strategy"]["matrix"]["torch"]
    pinned = re.search(r"^TORCH \?= (\S+)$", MAKEFILE, re.MULTILINE)
    oldest = next(line for line in PROJECT["project"]["dependencies"] if line.startswith("torch>="))
    assert pinned is not None
    assert pinned[1] in versions
    assert any(oldest.startswith(f"torch>={version.rpartition('.')[0]},") for version in versions)


def test_hooks_run_tools_of_the_projects_environment() -> None:
    requirements = (ROOT / "requirements.txt").read_text()
    assert {"ruff", "mypy"} <= {hook["id"] for hook in HOOKS}
    for hook in HOOKS:
        tool = hook["entry"].split()[0]
        assert tool.startswith(".venv/bin/"), hook["id"]
        assert Path(tool).name == "python" or f"{Path(tool).name}==" in requirements, hook["id"]


@pytest.mark.parametrize("path", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem)
def test_an_issue_form_has_what_a_form_needs(path: Path) -> None:
    form: dict[str, Any] = yaml.safe_load(path.read_text())
    if path.stem == "config":
        assert set(form) == {"blank_issues_enabled"}
        return
    assert {"name", "description", "body"} <= set(form)
    ids = [field["id"] for field in form["body"]]
    assert len(ids) == len(set(ids))
    assert all(field["attributes"]["label"] for field in form["body"])


def test_the_stability_page_lists_what_is_public() -> None:
    page = (ROOT / "docs/reference/stability.md").read_text()
    listed = re.search(r"`fairway.__all__`.*?:\n(.*?)\.\n", page, re.DOTALL)
    assert listed is not None
    assert re.findall(r"`(\w+)`", listed[1]) == sorted(fairway.__all__)
    assert f"today {RECORD_FORMAT}." in page
    assert all(f"`{group}`" in page for group in (REMEDIES, TRANSLATIONS, KNOWLEDGE))


def test_the_glossary_defines_each_word_once() -> None:
    words = re.findall(r"^- \*\*(\w+)\*\*:", (ROOT / "docs/reference/glossary.md").read_text(), re.MULTILINE)
    assert len(words) == len(set(words))
    assert {word.lower() for word in words} >= {
        *("spec", "recipe", "domain", "route", "rung", "ladder", "attempt", "remedy", "evidence", "verdict", "record"),
        *("finding", "lattice", "sample", "level", "candidate", "canary", "reproducer", "region", "piece"),
        *("yardstick", "coverage", "guard", "subject"),
    }


@pytest.mark.slow
def test_the_distribution_builds_offline_and_twine_accepts_it(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "dist"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    run("build", "--no-isolation", "--outdir", str(target), str(source), folder=tmp_path)
    files = sorted(target.iterdir())
    assert [file.suffix for file in files] == [".whl", ".gz"]
    run("twine", "check", "--strict", *map(str, files), folder=tmp_path)
    assert all(f"-{fairway.__version__}" in file.name for file in files)
    with zipfile.ZipFile(files[0]) as wheel:
        packed = set(wheel.namelist())
    assert {"fairway/py.typed", "fairway/__init__.py"} <= packed
    modules = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src/fairway").rglob("*.py")}
    assert modules <= packed
    with tarfile.open(files[1]) as archive:
        assert any(name.endswith("/LICENSE") for name in archive.getnames())


def run(module: str, *words: str, folder: Path) -> None:
    done = subprocess.run([sys.executable, "-m", module, *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
