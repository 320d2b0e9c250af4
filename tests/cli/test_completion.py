"""The Tab key in a real bash, and in zsh and fish where they are installed."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .command_line import Fairway

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def shell_path(folder: Path) -> dict[str, str]:
    """An environment in which `fairway` is this one."""
    program = folder / "bin/fairway"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport sys; sys.path.insert(0, {str(ROOT / 'src')!r}); sys.argv[0] = 'fairway'\n"
        "from fairway.cli import main\nmain()\n"
    )
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "TERM": "dumb", "PS1": "$ "}


def typed(words: list[str], environment: dict[str, str], folder: Path, keys: list[tuple[str, str]]) -> str:
    """What an interactive shell shows while keys are typed, each after what the ones before it were to show."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        words, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as shell:
        os.close(theirs)
        said = ""
        try:
            for key, shown in keys:
                os.write(ours, key.encode())
                new, end = "", time.monotonic() + 30
                while shown not in new and time.monotonic() < end:
                    if select.select([ours], [], [], 0.1)[0]:
                        new += os.read(ours, 65536).decode(errors="replace").replace("\x07", "")
                said += new
                assert shown in new, said
        finally:
            shell.kill()
            os.close(ours)
    return said


def test_bash_completes_commands_options_values_and_files(folder: Path, shell_path: dict[str, str]) -> None:
    bash = ["bash", "--norc", "--noprofile", "-i"]
    ready = ('eval "$(fairway completion bash)"; echo rea""dy\r', "ready\r\n")
    tabs = [("fairway expl\t", "fairway explain "), ("\x15fairway export rec\t", "recipe.py "), ("--lev\t", "--level ")]
    typed(bash, shell_path, folder, [ready, *tabs, ("st\t", "standard ")])


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("export-", ["export-generation"]),
        ("export r.py --route ex", ["export-dynamic", "export-auto", "export-named"]),
        ("quantize m.onnx --scheme int8", ["int8-dynamic", "int8-static"]),
        ("explain FW20", [f"FW20{n}" for n in range(1, 10)]),
        ("run m.onnx d.npy --stitch ", ["blend", "mean", "last"]),
        ("completion ", ["bash", "zsh", "fish"]),
        ("watch a", ["add"]),
    ],
)
def test_what_is_offered(folder: Path, shell_path: dict[str, str], line: str, offered: list[str]) -> None:
    words = f"fairway {line}"
    environment = {
        **shell_path,
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
        "_FAIRWAY_COMPLETE": "complete_bash",
    }
    done = subprocess.run(["fairway"], env=environment, cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.split()) >= set(offered)
    assert all(word.startswith(words.rsplit(" ", 1)[1]) for word in done.stdout.split())


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes(folder: Path, shell_path: dict[str, str]) -> None:
    command = (
        'autoload -U compinit; compinit -u -D; eval "$(fairway completion zsh)"; echo $_comps[fairway]; '
        'words=(fairway expl); CURRENT=2; eval() { echo "$@" }; _fairway_completion'
    )
    done = run_shell(["zsh", "-f", "-c", command], shell_path, folder)
    assert done.startswith("_fairway_completion\n")
    assert '"explain":' in done


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(folder: Path, shell_path: dict[str, str]) -> None:
    command = "fairway completion fish | source; complete -C 'fairway export --lev'; complete -C 'fairway export rec'"
    done = run_shell(["fish", "--no-config", "-c", command], shell_path, folder)
    assert done.startswith("--level\tHow closely to look.\n")
    assert done.endswith("\nrecipe.py\n")


def run_shell(words: list[str], environment: dict[str, str], folder: Path) -> str:
    return subprocess.run(
        words, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=60
    ).stdout


def test_another_shell_is_refused(fairway: Fairway) -> None:
    said = fairway("completion", "tcsh")
    assert said.code == 2
    assert "there are bash, zsh, fish" in said.err
