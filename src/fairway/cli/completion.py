"""fairway completion bash"""

from __future__ import annotations

from typing import Annotated

import typer

from fairway.cli.options import words
from fairway.diagnostics.errors import complain

SHELLS = ("bash", "zsh", "fish")
ASKED = "_FAIRWAY_COMPLETE"
"""Set by the script when a shell asks what may stand here."""


def completion(
    shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", autocompletion=words(*SHELLS))],
) -> int:
    """Print the script that makes a shell's Tab key complete commands, options and their values.

    In ~/.bashrc: eval "$(fairway completion bash)". In ~/.zshrc, after compinit: eval "$(fairway completion zsh)".
    Once for fish: fairway completion fish > ~/.config/fish/completions/fairway.fish
    """
    if shell not in SHELLS:
        raise complain("FW006", f"shell {shell!r:.40}; there are {', '.join(SHELLS)}")
    # Typer keeps this, and what is below, to itself (tried with 0.29): it prints it only for the shell it runs in.
    from typer._completion_shared import get_completion_script

    print(get_completion_script(prog_name="fairway", complete_var=ASKED, shell=shell))
    return 0


def answer_shells() -> None:
    """Lets typer know the shells' ways of asking; it does so by itself only with its own two options."""
    from typer._completion_classes import completion_init

    completion_init()
