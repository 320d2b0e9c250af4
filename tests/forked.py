"""Runs `fairway` in a process forked from one that has done the imports, which are half of a small export."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

IMPORTED = [
    "fairway.cli.app",
    "fairway.convert.export",
    "fairway.convert.ladder.capture_export",
    "fairway.convert.ladder.capture_trace",
    "onnxruntime",
    "onnxscript.function_libs.torch_lib.ops",
    "torch._dynamo",
    "torch.onnx",
]


def fairway(
    words: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float, errors: bool = True
) -> tuple[int, str]:
    """Run `fairway WORDS` and return its exit code and output, by default with its standard error."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    with tempfile.TemporaryFile("w+") as log:
        places = [_path(log.fileno()), _path(log.fileno()) if errors else os.devnull]
        process = context.Process(target=_main, args=(list(words), str(folder), dict(environment), places))
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


def _main(words: list[str], folder: str, environment: dict[str, str], places: list[str]) -> None:
    for number, place in enumerate(places, 1):
        os.dup2(os.open(place, os.O_WRONLY | os.O_APPEND), number)
    sys.stdout, sys.stderr = (open(number, "w", 1, closefd=False) for number in (1, 2))  # noqa: SIM115  # until it ends
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["fairway", *words]
    from fairway.cli import main

    main()
