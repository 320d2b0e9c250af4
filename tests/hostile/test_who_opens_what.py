"""Only known places hand a file to an engine, and each sees files that were looked at first or that Fairway made."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src/fairway"

OPENERS = (
    "load",
    "InferenceSession",
    "ReferenceEvaluator",
    "compile_model",
    "read_model",
    "OrtSession",
    "open_second",
    "open_runtime",
    "load_model",
    "load_file",
    "safe_open",
)

KNOWN = {
    # The file that a user names: `verify_subject` has had `open_header` look at it before.
    ("evidence/gather.py", "open_runtime"),
    ("evidence/judge.py", "OrtSession"),
    ("runtimes/ort.py", "onnxruntime.InferenceSession"),
    ("runtimes/second.py", "open_second"),
    ("runtimes/second.py", "core.compile_model"),
    ("runtimes/second.py", "ReferenceEvaluator"),
    ("evidence/hints.py", "ir.load"),
    ("evidence/gather.py", "ir.load"),
    ("locate/locate.py", "onnx.load"),
    ("locating.py", "onnx.load"),
    ("locate/replay.py", "onnxruntime.InferenceSession"),
    ("publish/ort.py", "OrtSession"),
    ("run/engine.py", "onnxruntime.InferenceSession"),
    # Likewise `bench` and `optimize_file`, for the file, its processes and the passes, whose files go back through it.
    ("file_subject.py", "OrtSession"),
    ("bench/engine.py", "onnxruntime.InferenceSession"),
    ("bench/engine.py", "openvino.Core().compile_model"),
    ("bench/profile.py", "ir.load"),
    ("optimize/optimize.py", "ir.load"),
    ("optimize/passes.py", "ir.load"),
    ("optimize/passes.py", "onnxruntime.InferenceSession"),
    # Likewise `serve.sources.fetch`, for the copies that a server hands to its workers.
    ("serve/rest.py", "self._service.shelf.load"),
    ("serve/rpc.py", "self._service.shelf.load"),
    ("serve/shelf.py", "self._pool.load"),
    ("serve/worker.py", "onnxruntime.InferenceSession"),
    # Likewise `quantize_file` and `sense_file`, for the file that they prepare.
    ("quantize/prepare.py", "onnx.load"),
    # Candidates that Fairway made itself a moment ago, in a folder of its own.
    ("quantize/judge.py", "onnxruntime.InferenceSession"),
    ("quantize/schemes.py", "ir.load"),
    ("quantize/schemes.py", "making.prepared.load"),
    ("quantize/schemes.py", "onnx.load"),
    ("quantize/schemes.py", "prepared.load"),
    ("quantize/slices.py", "making.prepared.load"),
    ("deliver.py", "ir.load"),
    ("evidence/differential.py", "ir.load"),
    ("ladder/capture_trace.py", "ir.load"),
    ("ladder/twice.py", "open_runtime"),
    ("pieces/assemble.py", "ir.load"),
    ("pieces/trials.py", "open_runtime"),
    ("generation/greedy.py", "OrtSession"),
    ("reduce/trial.py", "onnxruntime.InferenceSession"),
    ("reduce/point.py", "onnx.load"),
    ("evidence/answers.py", "torch.load"),
    ("bench/engine.py", "np.load"),
    ("testing/trial.py", "onnxruntime.InferenceSession"),
    ("doctor/examine.py", "OrtSession"),
    # Code that the user named or installed, as `import` would.
    ("cli/export_generation.py", "load_model"),
    ("cli/quantize.py", "load"),
    ("cli/sensitivity.py", "load"),
    ("subject/recipe.py", "load_model"),
    ("plugins.py", "point.load"),
    # Weights and data, as tensors only.
    ("subject/checkpoint.py", "torch.load"),
    ("subject/checkpoint.py", "load_file"),
    ("subject/data.py", "torch.load"),
    ("subject/data.py", "load_file"),
    ("subject/data.py", "np.load"),
    ("run/sources.py", "np.load"),
    ("run/sources.py", "safe_open"),
    ("run/walk.py", "np.load"),
}


def calls(path: Path) -> set[str]:
    found = {ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)}
    return {one for one in found if one.rsplit(".", 1)[-1] in OPENERS}


def test_no_other_place_opens_a_model_or_a_checkpoint() -> None:
    found = {(str(path.relative_to(SOURCE)), one) for path in SOURCE.rglob("*.py") for one in calls(path)}
    assert found - KNOWN == set()


def test_verify_looks_at_the_header_before_anything_else_sees_the_file() -> None:
    tree = ast.parse((SOURCE / "exporting.py").read_text())
    verify = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "verify_subject")
    called = [ast.unparse(n.func) for n in ast.walk(verify) if isinstance(n, ast.Call)]
    firsts = [ast.unparse(statement) for statement in verify.body[2:4]]
    assert firsts == ["header = open_header(path)", "check_room(header)"]
    assert "judge_file" in called


def test_run_and_publish_look_at_the_header_first_too() -> None:
    for name, function in (("run/whole.py", "run"), ("publish/bundle.py", "gather")):
        tree = ast.parse((SOURCE / name).read_text())
        found = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function)
        called = [ast.unparse(n.func) for s in found.body for n in ast.walk(s) if isinstance(n, ast.Call)]
        engines = [called.index(one) for one in ("Engine", "_load", "find") if one in called]
        assert called.index("open_header") < min(engines, default=len(called))


def test_serve_looks_at_the_header_of_whatever_its_workers_load() -> None:
    tree = ast.parse((SOURCE / "serve/sources.py").read_text())
    fetch = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "fetch")
    called = [ast.unparse(n.func) for n in ast.walk(fetch) if isinstance(n, ast.Call)]
    assert {"open_header", "check_room"} <= set(called)
    shelf = (SOURCE / "serve/shelf.py").read_text()
    assert shelf.count("self._pool.load(") == 1
    assert "await self._pool.load(served.number, fetched.path)" in shelf


def test_nothing_is_unpickled_but_by_torch_and_from_fairways_own_processes() -> None:
    places = {
        (str(path.relative_to(SOURCE)), ast.unparse(node.func))
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith(("pickle.load", "marshal.", "shelve."))
    }
    assert places <= {("ladder/attempt.py", "pickle.loads")}


def test_bench_and_optimize_look_at_the_header_before_anything_else_sees_the_file() -> None:
    for name, function in (("bench/bench.py", "bench"), ("optimize/optimize.py", "optimize_file")):
        tree = ast.parse((SOURCE / name).read_text())
        body = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function)
        called = [ast.unparse(node.func) for node in ast.walk(body) if isinstance(node, ast.Call)]
        looks = [one for one in called if one in ("_look_at", "open_header")]
        opens = [one for one in called if one in ("file_subject", "_subject", "_started", "Workers", "race.check")]
        assert looks
        assert opens
        lines = {ast.unparse(n.func): n.lineno for n in ast.walk(body) if isinstance(n, ast.Call)}
        assert lines[looks[0]] < min(lines[one] for one in opens)
