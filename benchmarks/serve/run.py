"""Measure the cost of a server, and how evenly it answers.

    python benchmarks/serve/run.py ratio --rounds 5     # 8 clients against an onnxruntime loop, in turns
    python benchmarks/serve/run.py soak --minutes 10    # HeimdallNet, 50 clients
    python benchmarks/serve/run.py mlserver --rounds 5  # MLServer beside it, in build/mlserver (see requirements)
    python benchmarks/serve/run.py write                # results.md from the rows

Every run adds rows to rows.jsonl, with the machine's load before it. Ratios are of neighboring runs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from table import write

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ROWS = HERE / "rows.jsonl"
BUILT = ROOT / "build/serve"
RECIPES = {
    "HeimdallNet": ("examples/heimdall/recipe.py:heimdall_net_patched", {"batch": 4, "receivers": 5}),
    "AirIMU": ("examples/airimu/recipe.py:airimu", {"batch": 4, "time": 1000}),
}
"""Recipe, and the sizes of one request."""
FAIRWAY = [sys.executable, "-m", "fairway"]


def fairway(*words: str) -> list[str]:
    return [*FAIRWAY, *words]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}


def model(name: str) -> Path:
    """The verified file; exported once."""
    BUILT.mkdir(parents=True, exist_ok=True)
    path = BUILT / f"{name}.onnx"
    if not path.exists():
        words = fairway("export", str(ROOT / RECIPES[name][0]), "--level", "quick", "-o", str(path))
        subprocess.run(words, check=True, env=environment(), stdout=subprocess.DEVNULL)
    return path


def request(name: str, path: Path, sizes: dict[str, int], binary: bool) -> tuple[Path, Path]:
    """The inputs as .npz, and a whole HTTP request that holds them."""
    from fairway.deploy.serve.signature import read_signature
    from fairway.deploy.serve.tensors import DATATYPES
    from fairway.model.canary import draw_canary_inputs
    from fairway.model.onnx_file import open_header
    from fairway.record.files import get_record_path
    from fairway.record.reader import read_record

    signature = read_signature(open_header(path), read_record(get_record_path(path)), False)
    feeds = draw_canary_inputs(signature.inputs, sizes)
    entries: list[dict[str, Any]] = []
    for label, array in feeds.items():
        entry = {"name": label, "shape": list(array.shape), "datatype": DATATYPES[array.dtype.name]}
        more: dict[str, Any] = {"parameters": {"binary_data_size": array.nbytes}}
        entries.append({**entry, **(more if binary else {"data": array.reshape(-1).tolist()})})
    told: dict[str, Any] = {"inputs": entries}
    if binary:
        told["parameters"] = {"binary_data_output": True}
    text = json.dumps(told).encode()
    raw = b"".join(array.tobytes() for array in feeds.values()) if binary else b""
    head = f"POST /v2/models/{name}/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(text) + len(raw)}\r\n"
    head += f"Inference-Header-Content-Length: {len(text)}\r\n" if binary else "Content-Type: application/json\r\n"
    at = BUILT / f"{name}-{'raw' if binary else 'json'}-{'-'.join(map(str, sizes.values()))}"
    at.with_suffix(".http").write_bytes(head.encode() + b"\r\n" + text + raw)
    np.savez(at.with_suffix(".npz"), **feeds)
    return at.with_suffix(".npz"), at.with_suffix(".http")


@contextlib.contextmanager
def served(name: str, *more: str) -> Iterator[int]:
    """The port of a server with this model in it."""
    words = fairway("serve", f"{name}={model(name)}", "--http-port", "0", "--grpc-port", "0", *more)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment())
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"HTTP on http://.*:(\d+)", line):
                yield int(found[1])
                return
        raise SystemExit("the server did not start")
    finally:
        process.terminate()
        process.wait(60)


def clients(port: int, request: Path, count: int, seconds: float) -> dict[str, Any]:
    words = [sys.executable, str(HERE / "clients.py"), str(port), str(request), str(count), str(seconds)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def quantiles(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    places = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return {name: round(ordered[min(len(ordered) - 1, int(q * len(ordered)))], 2) for name, q in places.items()}


def add(row: dict[str, Any]) -> None:
    with ROWS.open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps(row))


def ratio(rounds: int, seconds: float) -> None:
    """Loop and server take turns; a round's ratio is of the two that were neighbors."""
    for name, (_, sizes) in RECIPES.items():
        inputs, asked = request(name, model(name), sizes, binary=True)
        found = []
        with served(name) as port:
            clients(port, asked, 8, 2)
            load = os.getloadavg()[0]
            for _ in range(rounds):
                words = [sys.executable, str(HERE / "loop.py"), str(model(name)), str(inputs), str(seconds)]
                alone = float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
                told = clients(port, asked, 8, seconds)
                rate = len(told["times"]) / told["seconds"]
                found.append({"loop": alone, "server": rate, "errors": len(told["errors"]), **quantiles(told["times"])})
        shares = [one["server"] / one["loop"] for one in found]
        evenness = [one["p99"] / one["p50"] for one in found]
        add(
            {
                "what": "ratio",
                "model": name,
                "sizes": sizes,
                "rounds": rounds,
                "seconds": seconds,
                "load": round(load, 2),
                "loop": round(statistics.median(one["loop"] for one in found), 2),
                "server": round(statistics.median(one["server"] for one in found), 2),
                "ratio": round(statistics.median(shares), 3),
                "ratios": [round(share, 3) for share in shares],
                "p99_over_p50": round(statistics.median(evenness), 2),
                "errors": sum(one["errors"] for one in found),
            }
        )


def soak(minutes: float) -> None:
    """Fifty clients, one sample each, for as long as is said."""
    name = "HeimdallNet"
    _, asked = request(name, model(name), {"batch": 1, "receivers": 5}, binary=True)
    load = os.getloadavg()[0]
    with served(name) as port:
        told = clients(port, asked, 50, 60 * minutes)
    add(
        {
            "what": "soak",
            "model": name,
            "clients": 50,
            "minutes": minutes,
            "load": round(load, 2),
            "requests": len(told["times"]),
            "errors": len(told["errors"]),
            "first_errors": told["errors"][:3],
            "rate": round(len(told["times"]) / told["seconds"], 1),
            **quantiles(told["times"]),
        }
    )


@contextlib.contextmanager
def mlserver(name: str) -> Iterator[int]:
    """MLServer with a runtime that calls onnxruntime, as its users write one; it ships none."""
    from fairway.model.onnx_file import open_header

    python = ROOT / "build/mlserver/bin/python"
    if not python.exists():
        raise SystemExit("make build/mlserver first: python -m venv, then pip install -r requirements-mlserver.txt")
    port = 18777
    with tempfile.TemporaryDirectory() as folder:
        ports = {"http_port": port, "grpc_port": port + 1, "metrics_port": port + 2}
        whole = {"debug": False, "parallel_workers": os.cpu_count(), **ports}
        (Path(folder) / "settings.json").write_text(json.dumps(whole))
        sizes = RECIPES[name][1]
        settings = {
            "name": name,
            "implementation": "onnx_runtime_of_ours.OnnxRuntime",
            "parameters": {"uri": str(model(name)), "extra": {"outputs": len(open_header(model(name)).outputs)}},
            "max_batch_size": 8 * sizes["batch"],
            "max_batch_time": 0.002,
        }
        (Path(folder) / "model-settings.json").write_text(json.dumps(settings))
        more = {**os.environ, "PYTHONPATH": str(HERE)}
        log = (Path(folder) / "log").open("w")
        process = subprocess.Popen(
            [str(python), "-m", "mlserver.cli.main", "start", folder], env=more, stdout=log, stderr=log
        )
        try:
            import time
            import urllib.request

            for _ in range(300):
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/models/{name}/ready", timeout=5)
                    break
                time.sleep(0.2)
            else:
                raise SystemExit((Path(folder) / "log").read_text()[-3000:])
            yield port
        finally:
            process.terminate()
            process.wait(60)


def beside(rounds: int, seconds: float) -> None:
    """Fairway and MLServer in turns, JSON both, since MLServer refuses raw tensors."""
    for name, (_, sizes) in RECIPES.items():
        _, asked = request(name, model(name), {**sizes, "batch": 1}, binary=False)
        found: dict[str, list[dict[str, Any]]] = {"fairway": [], "mlserver": []}
        load = os.getloadavg()[0]
        for _ in range(rounds):
            for label, opened in (("fairway", served(name)), ("mlserver", mlserver(name))):
                with opened as port:
                    clients(port, asked, 8, 2)
                    found[label].append(clients(port, asked, 8, seconds))
        for label, runs in found.items():
            rates = [len(told["times"]) / told["seconds"] for told in runs]
            add(
                {
                    "what": "mlserver",
                    "server": label,
                    "model": name,
                    "rounds": rounds,
                    "seconds": seconds,
                    "load": round(load, 2),
                    "rate": round(statistics.median(rates), 2),
                    "rates": [round(rate, 2) for rate in rates],
                    "errors": sum(len(told["errors"]) for told in runs),
                    "first_errors": [e for told in runs for e in told["errors"]][:1],
                    **quantiles([time for told in runs for time in told["times"]] or [0.0]),
                }
            )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["ratio", "soak", "mlserver", "write"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--minutes", type=float, default=10.0)
    said = parser.parse_args()
    if said.what == "ratio":
        ratio(said.rounds, said.seconds)
    elif said.what == "soak":
        soak(said.minutes)
    elif said.what == "mlserver":
        beside(said.rounds, said.seconds)
    else:
        write(ROWS, HERE / "results.md")


if __name__ == "__main__":
    main()
