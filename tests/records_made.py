"""Records, files and measurements to draw, made by hand: small, hostile, or large."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from fairway.record.files import get_record_path, hash_file
from fairway.record.schema_parts import MAX_NAME_CHARACTERS

Opened = Callable[..., Any]
"""What the fixture of that name gives: a report shown in a browser."""

HOSTILE = (
    '<img src=x onerror="window.hacked=1">',
    "</script><script>window.hacked=1</script>",
    "שלום עולם",
    "\u202etxet desrever",
    "@DATA@ @SCRIPT@ \u2028 & &lt;",
    "long" * 2500,
)
SCOPES, CLASSES = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"


def node(operator: str, takes: list[str], gives: list[str], name: str, module: str = "", **attributes: Any) -> Any:
    made = helper.make_node(operator, takes, gives, name=name, **attributes)
    if module:
        parts = module.split(".")
        paths = ["", "model", *("model." + ".".join(parts[: n + 1]) for n in range(len(parts))), name]
        classes = ["Flat", "Net", *("torch.nn." + part.title() for part in parts), "aten." + operator]
        for key, values in ((SCOPES, paths), (CLASSES, classes)):
            made.metadata_props.add(key=key, value=str(values))
    return made


def write_model(path: Path, nodes: list[Any], weights: dict[str, list[int]], gives: str) -> Path:
    tensors = [
        helper.make_tensor(key, TensorProto.FLOAT, dims, bytes(4 * _product(dims)), raw=True)
        for key, dims in weights.items()
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in ("x", gives))
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    return path


def _product(dims: list[int]) -> int:
    found = 1
    for dim in dims:
        found *= dim
    return found


def small_model(path: Path) -> Path:
    """Two modules and a node without a module: x → first.MatMul → first.Tanh → second.MatMul → Add → y."""
    nodes = [
        node("MatMul", ["x", "first.weight"], ["a"], "node_a", "first"),
        node("Tanh", ["a"], ["b"], "node_b", "first.activation"),
        node("MatMul", ["b", "second.weight"], ["c"], "node_c", "second"),
        node("Add", ["c", "x"], ["y"], "node_y"),
    ]
    return write_model(path, nodes, {"first.weight": [4, 4], "second.weight": [4, 4]}, "y")


def sampled(point: dict[str, int], right: bool = True, ratio: float | None = 0.1, **more: Any) -> dict[str, Any]:
    return {
        "point": point,
        "seed": 1,
        "flavor": "normal",
        "right": right,
        "ratio": ratio,
        "note": "",
        "data": None,
        "ratios": [ratio, 0.05],
        **more,
    }


def make_record(**changed: Any) -> dict[str, Any]:
    """A file that is right up to time=100 and wrong from 101 on."""
    points = [
        sampled({"batch": b, "time": t}, t <= 100, 0.1 if t <= 100 else 2500.0)
        for b in (1, 2, 8)
        for t in (1, 7, 50, 100, 101, 400)
    ]
    points.append(sampled({"batch": 1, "time": 3}, False, None, note="not legal in PyTorch: too short"))
    return {
        "format": 2,
        "subject": {
            "name": "smoother",
            "class": "smooth.Smoother",
            "sha256": "a" * 64,
            "inputs": ["x: float32[batch, time, 3]"],
            "outputs": ["level", "slope"],
            "domain": {
                "batch": {"low": 1, "high": 8, "multiple": 1, "declared": True},
                "time": {"low": 1, "high": 400, "multiple": 1, "declared": True},
            },
            "example": {"batch": 2, "time": 7},
        },
        "versions": {"python": "3.11.7", "fairway": "0.1.0", "torch": "2.13.0+cpu"},
        "machine": "Linux x86_64, 2 cores",
        "settings": {"level": "standard", "opset": None, "remedies": False, "routes": ["trace"]},
        "verdict": "wrong",
        "route": "trace",
        "opset": 18,
        "remedies": [
            {
                "name": "loop_unrolled",
                "note": "loops rewritten (scan): smooth.py:18",
                "cures": "FW206",
                "title": "A Python loop is unrolled",
                "safety": "The original judges the file.",
            }
        ],
        "rewritten": [{"functions": "Smoother.forward", "before": "for t in range(n):", "after": "scan(step)"}],
        "evidence": {
            "level": "standard",
            "yardstick": "at most 10 times PyTorch's own",
            "factor": 10.0,
            "seconds": 2.0,
            "tested": points,
            "smallest": {"batch": 1, "time": 101},
            "boundaries": ["right up to time=100, wrong from 101"],
            "wrong_at": {"time": [101, 150]},
            "sides": [[{"batch": 2, "time": 100}, {"batch": 2, "time": 101}]],
            "undecided": 0,
            "outputs": [
                {"name": "level", "dtype": "float32", "ratio": 2500.0, "file_error": 0.5, "own_error": 1e-8},
                {"name": "slope", "dtype": "float32", "ratio": 0.05, "file_error": 1e-8, "own_error": 1e-8},
            ],
            "differential": {"done": False, "note": "not needed"},
            "second_runtime": "not asked for",
        },
        "findings": [
            {
                "code": "FW414",
                "title": "The error begins at one node",
                "severity": "note",
                "seen": "node_c is off",
                "where": {"file": "smooth.py", "line": 19, "source": "total = total * 0.5", "function": "forward"},
                "todo": ["Look at the line."],
                "data": {"node": "node_c", "value": "c"},
            },
            {
                "code": "FW206",
                "title": "A loop is unrolled",
                "severity": "error",
                "seen": "bounded by x.shape[1]",
                "why": "It is run and recorded.",
                "todo": ["Write it as one expression."],
                "where": None,
                "data": {},
            },
        ],
        "ladder": [
            {
                "route": "export-dynamic",
                "verdict": "failed",
                "seconds": 2.0,
                "export_seconds": 2.0,
                "peak_mb": 300,
                "samples": None,
                "remedies": [],
                "findings": [{"code": "FW302", "seen": "time is fixed", "where": None}],
                "refused": [{"remedy": "vmap_mask", "reason": "no mask is built with vmap"}],
            },
            {
                "route": "trace",
                "verdict": "wrong",
                "seconds": 5.0,
                "export_seconds": 1.0,
                "peak_mb": 327,
                "samples": [12, 19],
                "remedies": ["loop_unrolled"],
                "refused": [],
                "findings": [{"code": "FW206", "seen": "unrolled", "where": "/home/me/work/smooth.py:18, in forward"}],
            },
        ],
        **changed,
    }


def put(folder: Path, name: str, record: dict[str, Any], model: Path | None = None) -> Path:
    """A model with this record beside it; the model's path."""
    path = model or small_model(folder / name)
    record = {**record, "file": {"name": path.name, "sha256": hash_file(path)}}
    get_record_path(path).write_text(json.dumps(record))
    return path


def right_record(**changed: Any) -> dict[str, Any]:
    wrong = make_record()
    evidence = wrong["evidence"]
    points = [{**one, "right": True, "ratio": 0.1, "note": ""} for one in evidence["tested"]]
    outputs = [{**one, "ratio": 0.1} for one in evidence["outputs"]]
    evidence = {
        **evidence,
        "tested": points,
        "outputs": outputs,
        "sides": [],
        "boundaries": [],
        "smallest": None,
        "wrong_at": {},
    }
    return {**wrong, "verdict": "verified", "route": "export-dynamic", "findings": [], "evidence": evidence, **changed}


def large(folder: Path, nodes: int = 10_000, points: int = 2_000) -> Path:
    """As large as a file may be that opens at once."""
    made, before = [], "x"
    for n in range(nodes):
        module = f"layers.{n // 100}.{('attention', 'mlp')[n % 2]}.part{n % 5}"
        made.append(node("Add", [before, "w"], [f"v{n}"], f"node_of_a_usual_length_{n}", module))
        before = f"v{n}"
    model = write_model(folder / "large.onnx", made, {"w": [4]}, before)
    record = make_record()
    record["evidence"]["tested"] = [
        sampled({"batch": 1 + n % 8, "time": 1 + n % 400}, n % 97 != 0, 0.01 * (n % 97 or 5000)) for n in range(points)
    ]
    return put(folder, "", record, model)


def hostile(folder: Path) -> Path:
    """Every name that a stranger can choose is one of these."""
    made, before = [], "x"
    for n, name in enumerate(HOSTILE):
        made.append(node("Add", [before, f"{name}{n}"], [f"{name}.{n}"], name, name.replace(".", "")))
        before = f"{name}.{n}"
    model = write_model(folder / "hostile.onnx", made, {f"{name}{n}": [4] for n, name in enumerate(HOSTILE)}, before)
    record = make_record()
    record["subject"] |= {"name": HOSTILE[0], "class": HOSTILE[1], "inputs": list(HOSTILE)}
    # The reader refuses names that are long or cannot be printed where a record needs short ones.
    names = [name for name in HOSTILE if name.isprintable() and len(name) <= MAX_NAME_CHARACTERS]
    dims = {name: {"low": 1, "high": 9, "multiple": 1, "declared": True} for name in names}
    record["subject"]["domain"] = dims
    record["evidence"]["tested"] = [sampled(dict.fromkeys(dims, 2), note=name, flavor=name) for name in HOSTILE]
    record["evidence"]["outputs"] = [{"name": name, "dtype": name, "ratio": 0.5} for name in HOSTILE]
    record["findings"] = [
        {
            "code": name,
            "title": name,
            "severity": name,
            "seen": name,
            "why": name,
            "todo": [name],
            "upstream": [name],
            "where": dict.fromkeys(("file", "function", "source", "module", "node"), name),
            "data": {"node": HOSTILE[1]},
        }
        for name in HOSTILE
    ]
    record["ladder"] = [
        {
            "route": name,
            "verdict": name,
            "remedies": [name],
            "refused": [{"remedy": name}],
            "findings": [{"code": name, "seen": name, "where": name}],
        }
        for name in HOSTILE
    ]
    texts = ("note", "cures", "title", "safety")
    record["remedies"] = [{"name": names[0], **dict.fromkeys(texts, name)} for name in HOSTILE]
    record["rewritten"] = [dict.fromkeys(("functions", "before", "after"), name) for name in HOSTILE]
    record["versions"] = {name: name for name in names}
    record["verdict"], record["route"] = "wrong", HOSTILE[0]
    return put(folder, "", record, model)


def bench() -> dict[str, Any]:
    """As `fairway bench --json` prints it."""

    def speed(arm: str, base: float, ratio: dict[str, Any] | None) -> dict[str, Any]:
        durations = [base * (1 + (n * 7919 % 100) / 300) for n in range(400)]
        return {
            "arm": arm,
            "p50": base * 1.16,
            "p95": base * 1.3,
            "p99": base * 1.33,
            "ratio": ratio,
            "rounds": durations[:20],
            "durations": durations,
        }

    faster = {"value": 3.1, "low": 2.9, "high": 3.3, "differs": True, "text": "3.10x (2.90..3.30)"}
    return {
        "files": [{"path": "m.onnx", "bytes": 100, "verdict": "verified", "about": "verified for batch 1..8"}],
        "arms": [
            {
                "name": name,
                "engine": name,
                "threads": 1,
                "ready_seconds": 0.2,
                "peak_bytes": 2e8,
                "level": None,
                "before_bytes": 1e8,
                "failure": None,
            }
            for name in ("eager", "ort all")
        ],
        "points": [
            {
                "point": {"batch": 1, "time": 19},
                "base": "eager",
                "failures": {},
                "speeds": [speed("eager", 3e-3, None), speed("ort all", 1e-3, faster)],
            },
            {
                "point": {"batch": 8, "time": 400},
                "base": "eager",
                "failures": {"ort all": "ran out of memory"},
                "speeds": [speed("eager", 3e-2, None)],
            },
        ],
        "profiles": [],
        "machine": {"cpu": "a cpu", "cores": 2, "load": 0.1},
    }


def ranking(groups: int = 40) -> dict[str, Any]:
    """As `fairway sensitivity` writes it."""
    rows = [
        {
            "group": f"layers.{n}",
            "modules": [f"layers.{n}"],
            "nodes": [f"node_{n}"],
            "operators": ["MatMul"],
            "weights": 100,
            "alone": 0.1 / 2**n,
            "alone_error": 1e-5,
            "kept": 0.01,
            "samples": 8,
        }
        for n in range(groups)
    ]
    return {"metric": "sqnr", "finished": True, "all_quantized": 0.2, "trials": 640, "seconds": 3.0, "ranking": rows}
