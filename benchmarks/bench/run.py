"""Does paired timing cry wolf, and does it see a wolf? A model against itself, and against itself slowed down.

    python benchmarks/bench/run.py             # adds to rows.jsonl what is not there yet
    python benchmarks/bench/run.py --write     # results.md from the rows

Arms are two processes with ONNX Runtime each, as in `fairway bench`, or two sessions in one process. `noisy` starts
a neighbor that burns a core for a while, at random moments that have nothing to do with the rounds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from slowed import slowed

from fairway.tune.bench.arm import ArmProcess
from fairway.tune.bench.paired_timing import Arm, Timings, time_in_rounds
from fairway.workers.attempt import Limits
from fairway.workers.workshop import Janitor

HERE = Path(__file__).parent
ROWS = HERE / "rows.jsonl"
SLOWER = (3, 5, 10)
SECONDS = 1.0
BURN = "import time\nend = time.monotonic() + {seconds}\nwhile time.monotonic() < end: pass"


WIDTHS = {"1 ms": (512, 6), "0.1 ms": (256, 2), "0.01 ms": (64, 1)}
"""Models by how long a call takes, about: the width of a layer, and how many there are."""


def make_model(path: Path, width: int, layers: int) -> None:
    """A multi-layer perceptron."""
    from onnx import TensorProto, helper, numpy_helper, save

    rng = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for i in range(layers):
        weights.append(numpy_helper.from_array(rng.normal(0, 0.05, (width, width)).astype(np.float32), f"w{i}"))
        nodes.append(helper.make_node("MatMul", [last, f"w{i}"], [f"m{i}"]))
        nodes.append(helper.make_node("Relu", [f"m{i}"], [f"r{i}"]))
        last = f"r{i}"
    shape = ["batch", width]
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, shape)],
        weights,
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)


def batch(width: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(16, width)).astype(np.float32)


@contextmanager
def neighbor(noisy: bool, rng: random.Random) -> Iterator[None]:
    """Burns one core for 0.05 to 1.5 s, again and again, from a random moment on."""
    stop = threading.Event()

    def burn() -> None:
        while not stop.wait(rng.uniform(0.05, 1.5)):
            program = BURN.format(seconds=rng.uniform(0.05, 1.5))
            subprocess.run([sys.executable, "-c", program], check=False)

    thread = threading.Thread(target=burn)
    if noisy:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if noisy:
            thread.join()


class Slowed(ArmProcess):
    program = (str(HERE / "slowed.py"),)


def in_one_process(path: Path, percent: int, seed: int) -> Timings:
    import onnxruntime

    def session() -> Callable[[], object]:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        made = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        x = batch(made.get_inputs()[0].shape[1])
        return lambda: made.run(None, {"x": x})

    one, two = session(), session()
    return time_in_rounds(
        [Arm("a", one), Arm("b", slowed(two, percent) if percent else two)], seconds=SECONDS, seed=seed
    )


def in_two_processes(path: Path, percent: int, seed: int) -> Timings:
    folder = path.parent / "points"
    folder.mkdir(exist_ok=True)
    np.savez(folder / "0.npz", **{"0": batch(WIDTHS[path.stem][0])})
    job = {
        "engine": "ort",
        "path": str(path),
        "level": "all",
        "threads": 1,
        "names": ["x"],
        "dtypes": ["float32"],
        "points": str(folder),
    }
    janitor = Janitor()
    arms = [ArmProcess("a", job, Limits(60), janitor), Slowed("b", {**job, "slower": percent}, Limits(60), janitor)]
    try:
        for arm in arms:
            arm.open()
        return time_in_rounds([arm.make_arm(0) for arm in arms], seconds=SECONDS, seed=seed)
    finally:
        for arm in arms:
            arm.close()
        janitor.dismiss()


WAYS = {"two processes": in_two_processes, "one process": in_one_process}


def wanted(tries: int, power: int, short: int) -> Iterator[tuple[str, str, bool, int, int]]:
    for number in range(tries):
        for way, noisy, percent in itertools.product(WAYS, (False, True), (0, *SLOWER)):
            if not percent or number < power:
                yield "1 ms", way, noisy, percent, number
        for model in ("0.1 ms", "0.01 ms"):
            if number < short:
                yield model, "two processes", False, 0, number


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tries", type=int, default=100)
    parser.add_argument("--power", type=int, default=10, help="tries with an arm that is slower")
    parser.add_argument("--short", type=int, default=20, help="tries with shorter calls")
    parser.add_argument("--only", choices=WAYS, help="leave the other way to another run beside this one")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--raw", type=Path, help="keep every round here, for trying other intervals")
    asked = parser.parse_args()
    if asked.write:
        import table

        (HERE / "results.md").write_text(table.write([json.loads(line) for line in ROWS.read_text().splitlines()]))
        return
    done = {_key(json.loads(line)) for line in ROWS.read_text().splitlines()} if ROWS.exists() else set()
    with tempfile.TemporaryDirectory() as folder, ROWS.open("a") as rows:
        for name, (width, layers) in WIDTHS.items():
            make_model(Path(folder) / f"{name}.onnx", width, layers)
        for key in wanted(asked.tries, asked.power, asked.short):
            if key in done or asked.only not in (None, key[1]):
                continue
            model, way, noisy, percent, number = key
            seed = number * 1000 + percent * 10 + noisy
            with neighbor(noisy, random.Random(seed)):
                timings = WAYS[way](Path(folder) / f"{model}.onnx", percent, seed)
            ratio = timings.ratio("b", "a")
            row: dict[str, Any] = {
                "model": model,
                "way": way,
                "noisy": noisy,
                "slower": percent,
                "try": number,
                "rounds": timings.rounds,
                "value": round(ratio.value, 5),
                "low": round(ratio.low, 5),
                "high": round(ratio.high, 5),
                "differs": ratio.differs,
            }
            rows.write(json.dumps(row) + "\n")
            rows.flush()
            if asked.raw:
                with asked.raw.open("a") as raw:
                    raw.write(json.dumps({**row, "durations": timings.durations}) + "\n")


def _key(row: dict[str, Any]) -> tuple[str, str, bool, int, int]:
    return row["model"], row["way"], row["noisy"], row["slower"], row["try"]


if __name__ == "__main__":
    main()
