"""Every command and every script in the docs is run, and shows what the page says it shows.

In a ```console block a line that starts with `$ ` is a command, run by bash from the repository's root. `$OUT` is a
folder for what it writes. It must end with 0, or with the number in a comment at its end (`# exit 1`). The lines below
it must occur in its output in that order, where `…` stands for anything.

A ```python block whose first line is `# name.py` is written to `$OUT/name.py`. In the README and the tutorial, any
other ```python block is run, from `$OUT`.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from documented import Documented, run

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/*.md")]
)
SCRIPTED = ("README.md", "docs/tutorial.md")
"""Pages whose unnamed Python blocks are run."""

NOT_RUN = {
    "git clone": "needs the network",
    "pip install": "needs the network, and would change the environment that runs this test",
    "make demo": "sets up an environment; its one command is run from the example's page",
    "make test": "is what runs this test",
    "python examples/airimu/make_weights.py": "trains; its result is in the repository",
    "python examples/swipe/make_weights.py": "trains for more than a minute; its result is in the repository",
    "fairway matrix": "makes environments from the network; benchmarks/matrix holds what it gave",
    "export AWS_ENDPOINT_URL": "names a server that is not there; tests/publish starts a real one",
    "fairway publish $OUT/scale.onnx s3://": "as above",
    "fairway pull s3://": "as above",
    "export MLFLOW_TRACKING_URI": "as above",
    "fairway publish $OUT/scale.onnx mlflow:": "as above",
    "fairway ui": "runs until Ctrl-C; tests/ui starts it and ends it so",
    "make site": "sets up an environment; test_site.py builds it",
    "make docs": "sets up an environment; test_reference.py runs the generator",
}
"""Commands by their beginning, and why they are left out."""


@dataclass(frozen=True)
class Command:
    """One command with the exit code and the output lines that the page promises."""

    text: str
    status: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Script:
    """A Python block; to be kept as `name`, or run where it has none."""

    name: str | None
    text: str


def steps(page: Path) -> list[Command | Script]:
    """Return the commands of the page, in its order."""
    found: list[Command | Script] = []
    for kind, body in re.findall(r"^```(console|python)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        if kind == "console":
            found += commands(body)
            continue
        name = re.match(r"# (\w+\.py)\n", body)
        if name or str(page.relative_to(ROOT)) in SCRIPTED:
            found.append(Script(name[1] if name else None, body))
    return found


def commands(block: str) -> list[Command]:
    found = []
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        first, *lines = part.replace("\\\n", "").splitlines()
        status = re.search(r"\s+# exit (\d+)$", first)
        text = first[: status.start()] if status else first
        found.append(Command(text, int(status[1]) if status else 0, tuple(line for line in lines if line.strip())))
    return found


def missing_line(expected: tuple[str, ...], output: str) -> str | None:
    """The first expected line that does not come after those before it; None where all are there."""
    rest = iter(output.splitlines())
    for line in expected:
        pattern = re.compile(".*".join(re.escape(part) for part in line.rstrip().split("…")))
        if line.strip() != "…" and not any(pattern.fullmatch(real.rstrip()) for real in rest):
            return line
    return None


LONGEST_FIRST = sorted((p for p in PAGES if steps(p)), key=lambda p: -len(steps(p)))
"""So that no worker is left alone with the longest page at the end."""


@pytest.mark.slow
@pytest.mark.parametrize("page", LONGEST_FIRST, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_command_of_the_page_does_what_the_page_shows(page: Path, out: Path, documented: Documented) -> None:
    for step in steps(page):
        if isinstance(step, Script):
            if step.name:
                (out / step.name).write_text(step.text)
                continue
            status, output = run([sys.executable, "-c", step.text], out, out)
            assert status == 0, f"{step.text}\n{output}"
            continue
        if step.text.startswith(tuple(NOT_RUN)):
            continue
        status, output = documented(step.text)
        assert status == step.status, f"$ {step.text}\nended with {status}, not {step.status}\n{output}"
        lost = missing_line(step.lines, output)
        assert lost is None, f"$ {step.text}\ndid not show\n{lost}\nbut\n{output}"


def test_a_line_that_is_not_shown_is_noticed() -> None:
    promised = ("verified  … (trace)", "  domain    batch …")
    assert missing_line(promised, "verified  a.onnx (trace)\n  domain    b\n") == promised[1]


def test_lines_in_another_order_are_noticed() -> None:
    assert missing_line(("second", "first"), "first\nsecond\n") == "first"


def test_an_exit_code_in_a_comment_is_read() -> None:
    assert commands("$ fairway explain FW999  # exit 2\nFW014 error: …\n\n$ true\n") == [
        Command("fairway explain FW999", 2, ("FW014 error: …",)),
        Command("true", 0, ()),
    ]


def test_every_page_of_the_folder_map_is_there() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} points to {target}, which is not there"


def test_no_page_names_a_place_on_one_machine() -> None:
    for page in PAGES:
        found = re.search(r"/(?:home|root|work|tmp)/\S*", page.read_text())
        assert found is None, f"{page.relative_to(ROOT)}: {found and found[0]}"


def test_no_two_pages_write_different_things_under_one_name() -> None:
    """Pages share a folder and are run in any order, beside each other."""
    written: dict[str, set[tuple[str, str]]] = {}
    for page in PAGES:
        for step in steps(page):
            if isinstance(step, Command) and "--overwrite" in step.text:
                continue
            named = re.findall(r"-o \$OUT/(\S+)", step.text) if isinstance(step, Command) else [step.name]
            inside = re.findall(r'"(\w+\.onnx)"', step.text) if isinstance(step, Script) and not step.name else []
            for name in (*named, *inside):
                if name:
                    written.setdefault(name, set()).add((page.name, step.text))
    twice = {name: {page for page, _ in said} for name, said in written.items() if len({text for _, text in said}) > 1}
    assert {name: pages for name, pages in twice.items() if len(pages) > 1} == {}
