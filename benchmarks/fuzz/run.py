"""Throws changed inputs at whatever reads what others wrote: `python benchmarks/fuzz/run.py --target spec`.

Only a finding may come out. Anything else, and anything over five seconds, is a crash: it is saved below build/fuzz and
the run ends with 1, and its count starts again from nothing. Otherwise executions add up in results.json until there
are as many as asked for, so a run that was stopped goes on. Inputs that reach a new line are kept and changed further;
lines are looked at in one execution of fifty.

With `--engine atheris`, where that package is installed, libFuzzer steers the same targets and mutators.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build/fuzz"
RESULTS = HERE / "results.json"
SECONDS = 5
SLICE = 20_000
TRACED = 50
GIGABYTES = 6
"""Address space beyond what the imports took: a bomb that goes off ends in a MemoryError, which is a crash."""


class Hang(BaseException):
    """An execution took too long."""


def lines_of(module: str) -> dict[str, set[int]]:
    """The lines of a module's functions that can run, by file."""
    found: set[int] = set()

    def walk(code: CodeType) -> None:
        if code.co_flags & CO_OPTIMIZED:  # a function; the body of a class runs once, when it is imported
            found.update(line for _, _, line in code.co_lines() if line and line != code.co_firstlineno)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                walk(constant)

    loaded = importlib.import_module(module)
    path = str(loaded.__file__)
    top = compile(Path(path).read_text(), path, "exec")
    for constant in top.co_consts:
        if isinstance(constant, CodeType):
            walk(constant)
    return {path: found}


class Tally:
    """Counts of the outcomes of one target so far."""

    def __init__(self, name: str, modules: tuple[str, ...], before: dict[str, Any]) -> None:
        self.name = name
        self.lines = {path: lines for module in modules for path, lines in lines_of(module).items()}
        self.covered = {path: set(before.get("lines", {}).get(Path(path).name, ())) for path in self.lines}
        self.executions = int(before.get("executions", 0))
        self.seconds = float(before.get("seconds", 0.0))
        self.slowest = float(before.get("slowest_seconds", 0.0))
        self.ended = collections.Counter(before.get("ended", {}))

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        covered = self.covered.get(frame.f_code.co_filename)
        if covered is None:
            return None

        def line(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "line":
                covered.add(frame.f_lineno)
            return line

        return line

    def reached(self) -> int:
        return sum(len(self.covered[path] & lines) for path, lines in self.lines.items())

    def as_dict(self, engine: str) -> dict[str, Any]:
        return {
            "engine": engine,
            "executions": self.executions,
            "seconds": round(self.seconds, 1),
            "slowest_seconds": round(self.slowest, 3),
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            "covered": {Path(p).name: [len(self.covered[p] & lines), len(lines)] for p, lines in self.lines.items()},
            "ended": dict(self.ended.most_common()),
            "lines": {Path(p).name: sorted(self.covered[p] & lines) for p, lines in self.lines.items()},
        }


def alarmed(number: int, frame: object) -> None:
    raise Hang


def execute(target: Any, tally: Tally, data: bytes, traced: bool) -> None:
    """One execution, counted; raises what a finding is not."""
    from fairway.diagnostics.errors import UserError

    started = time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    if traced:
        sys.settrace(tally.trace)
    try:
        target.run(data)
        ended = "passed"
    except UserError as error:
        ended = error.finding.code
    finally:
        sys.settrace(None)
        signal.setitimer(signal.ITIMER_REAL, 0)
    spent = time.perf_counter() - started
    if spent >= SECONDS:
        raise Hang  # the alarm's own may have been taken for an error of the recipe
    tally.slowest = max(tally.slowest, spent)
    tally.executions += 1
    tally.ended[ended] += 1


def crash(name: str, data: bytes, error: BaseException) -> None:
    folder = BUILD / "crashes" / name
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"{type(error).__name__}-{abs(hash(data)) % 10**8:08d}"
    place.write_bytes(data)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if results.pop(name, None) is not None:
        RESULTS.write_text(json.dumps(results) + "\n")
    print(f"\nCRASH of {name}, saved in {place.relative_to(ROOT)}: {data[:200]!r}")
    traceback.print_exception(error, limit=-12)
    sys.exit(1)


def save(name: str, tally: Tally, engine: str) -> None:
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results[name] = tally.as_dict(engine)
    RESULTS.write_text(json.dumps(dict(sorted(results.items()))) + "\n")
    from report import write

    write(results, HERE / "results.md")


def climb(name: str, target: Any, tally: Tally, wanted: int, seed: int, clean_up: Callable[[], None]) -> None:
    """Our own engine: change one of the pool, run it, keep it where it led to a new line."""
    pool = list(target.seeds)
    for data in pool:
        guarded(name, target, tally, data, True)
    while tally.executions < wanted:
        rng = random.Random(f"{seed}/{name}/{tally.executions}")
        started, first = time.monotonic(), tally.executions
        while tally.executions < min(first + SLICE, wanted):
            data = target.mutate(rng.choice(pool), rng)
            traced = tally.executions % TRACED == 0
            before = tally.reached() if traced else 0
            guarded(name, target, tally, data, traced)
            if traced and tally.reached() > before and len(data) < 1 << 16:
                pool.append(data)
        tally.seconds += time.monotonic() - started
        save(name, tally, "own")
        speed = (tally.executions - first) / (time.monotonic() - started)
        print(
            f"{name}: {tally.executions} executions, {speed:.0f}/s, {tally.reached()} lines, "
            f"{len(tally.ended)} ends, slowest {tally.slowest:.2f} s",
            flush=True,
        )


def guarded(name: str, target: Any, tally: Tally, data: bytes, traced: bool) -> None:
    try:
        execute(target, tally, data, traced)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        crash(name, data, error)


def steer(name: str, target: Any, tally: Tally, wanted: int, seed: int, clean_up: Callable[[], None]) -> None:
    """libFuzzer by way of atheris; it never returns, so results are saved on the way."""
    import atheris

    started = [time.monotonic()]

    def one(data: bytes) -> None:
        guarded(name, target, tally, data, tally.executions % TRACED == 0)
        if tally.executions % SLICE == 0 or tally.executions >= wanted:
            tally.seconds += time.monotonic() - started[0]
            started[0] = time.monotonic()
            save(name, tally, "atheris")
            print(f"{name}: {tally.executions} executions, {tally.reached()} lines", flush=True)
        if tally.executions >= wanted:
            clean_up()
            os._exit(0)

    def change(data: bytes, most: int, number: int) -> bytes:
        return bytes(target.mutate(data, random.Random(number)))[:most]

    corpus = BUILD / "corpus" / name.split(",")[0]
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(data)
    atheris.Setup(
        [sys.argv[0], f"-seed={seed + 1}", "-max_len=65536", "-verbosity=0", str(corpus)], one, custom_mutator=change
    )
    atheris.Fuzz()


def attack(name: str, engine: str, wanted: int, seed: int, again: Path | None) -> None:
    """Sets up one target in a separate folder and runs it."""
    from targets import table

    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))

    def clean_up() -> None:
        os.chdir(ROOT)
        shutil.rmtree(folder, ignore_errors=True)

    try:
        if engine == "atheris":
            import atheris

            with atheris.instrument_imports(include=["fairway"]):
                target = table()[name](folder)
        else:
            target = table()[name](folder)
        if again is not None:
            print(target.run(again.read_bytes()))
            return
        title = f"{name}, atheris" if engine == "atheris" else name
        before = json.loads(RESULTS.read_text()).get(title, {}) if RESULTS.exists() and engine != "check" else {}
        tally = Tally(title, target.modules, before)
        if engine == "check":
            check(name, target, tally, wanted, seed)
        else:
            {"own": climb, "atheris": steer}[engine](title, target, tally, wanted, seed, clean_up)
    finally:
        clean_up()


def check(name: str, target: Any, tally: Tally, wanted: int, seed: int) -> None:
    """A short run from the seeds alone, of which nothing is kept."""
    for data in target.seeds:
        guarded(name, target, tally, data, False)
    rng = random.Random(f"{seed}/{name}")
    for _ in range(wanted):
        guarded(name, target, tally, target.mutate(rng.choice(target.seeds), rng), False)
    print(f"{name}: {tally.executions} executions, {len(tally.ended)} ends")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", help="One of the targets; all of them with --check.")
    parser.add_argument("--executions", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", choices=("own", "atheris"), default="own")
    parser.add_argument("--check", type=int, metavar="N", help="N executions of every target; writes no results.")
    parser.add_argument("--again", metavar="FILE", help="Run one saved input and nothing else.")
    asked = parser.parse_args()
    sys.path[:0] = [str(HERE), str(ROOT / "src")]
    import torch
    from targets import table

    torch.set_num_threads(1)
    again = Path(asked.again).resolve() if asked.again else None
    if again is None:
        signal.signal(signal.SIGALRM, alarmed)
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + GIGABYTES * 2**30,) * 2)
    if asked.check:
        for name in table():
            attack(name, "check", asked.check, asked.seed, None)
    elif asked.target in table():
        attack(asked.target, asked.engine, asked.executions, asked.seed, again)
    else:
        parser.error(f"--target is one of {', '.join(table())}")


if __name__ == "__main__":
    main()
