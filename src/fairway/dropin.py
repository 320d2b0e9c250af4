"""Checks the files that `torch.onnx.export` writes from now on: `import fairway.dropin` at the top of a script.

The verdict and the findings go to standard error, and the record beside each file. If a file is wrong, a repaired one
is written beside it, and the script ends with exit code 1. FAIRWAY_LEVEL chooses the level: quick, standard or deep.
"""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from fairway.cli.script import WRONG_EXIT_CODE, print_outcome
from fairway.deploy.dropin.stock_export import check_exports

if TYPE_CHECKING:
    from fairway.deploy.dropin.stock_export import CheckedExport

_wrong_files: list[str] = []
_process = os.getpid()


def _note(outcome: CheckedExport) -> None:
    print_outcome(outcome)
    if outcome.is_wrong:
        _wrong_files.append(str(outcome.path))


def _end_with_failure() -> None:
    """End the process with exit code 1 if a file was wrong; only os._exit can change the code at exit."""
    if _wrong_files and os.getpid() == _process:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(WRONG_EXIT_CODE)


_patches = ExitStack()  # kept, because the patches end with it
_patches.enter_context(check_exports(_note, os.environ.get("FAIRWAY_LEVEL", "standard")))
atexit.register(_end_with_failure)
