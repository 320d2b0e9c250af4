"""Runs `fairway` in a process forked from one that has done the imports, which are half of a small export."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

IMPORTED = [
    "fairway.cli.app", "fairway.exporting", "fairway.ladder.capture_export", "fairway.ladder.capture_trace",
    "onnxruntime", "onnxscript.function_libs.torch_lib.ops", "torch._dynamo", "torch.onnx",
]  # fmt: skip


def fairway(words: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float) -> tuple[int, str]:
    """Exit code and output, errors included, of `fairway WORDS`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    with tempfile.TemporaryFile("w+") as log:
        process = context.Process(target=_main, args=(list(words), str(folder), dict(environment), _path(log.fileno())))
        process.start()
        process.join(seconds)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise TimeoutError(f"fairway {' '.join(words)}: more than {seconds} s")
        log.seek(0)
        return process.exitcode, log.read()


def _path(handle: int) -> str:
    return f"/proc/{os.getpid()}/fd/{handle}"


def _main(words: list[str], folder: str, environment: dict[str, str], log: str) -> None:
    handle = os.open(log, os.O_WRONLY | os.O_APPEND)
    for place in (1, 2):
        os.dup2(handle, place)
    sys.stdout, sys.stderr = (open(place, "w", 1, closefd=False) for place in (1, 2))  # noqa: SIM115  # until it ends
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["fairway", *words]
    from fairway.cli import main

    main()
