"""Only known places open a model or a checkpoint, and each opens files that were checked first or that Fairway made."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

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
    "open_session",
    "load_structure",
    "load_model",
    "load_file",
    "safe_open",
)

KNOWN = {
    "model/ort_session.py": {"InferenceSession"},
    "model/onnx_file.py": {"load"},
    # The file that a user names: `verify_subject` has checked it with `open_model` before.
    "judge/gather.py": {"open_runtime", "load"},
    "judge/judge.py": {"OrtSession"},
    "judge/runtimes/ort.py": {"open_session"},
    "judge/runtimes/second.py": {"open_second", "compile_model", "ReferenceEvaluator"},
    "judge/graph_constants.py": {"load"},
    # TorchScript and exported programs: as much code as a recipe is, and SECURITY.md says so.
    "model/accept_model.py": {"load"},
    "model/program_model.py": {"load"},
    "judge/locate/locate.py": {"load_structure"},
    "judge/locate/node_replay.py": {"open_session"},
    "judge/locate/file_runs.py": {"open_session"},
    "debug/find_wrong_node.py": {"load_structure"},
    "deploy/publish/ort_format.py": {"OrtSession"},
    "deploy/run/window_engine.py": {"open_session"},
    # So have `run_bench` and `optimize_file`, for the file, its processes and the passes, whose files are checked too.
    "judge/file_subject.py": {"OrtSession"},
    "tune/bench/arm_program.py": {"open_session", "compile_model", "load"},
    "tune/bench/profile.py": {"load"},
    "tune/optimize/optimize.py": {"load"},
    "tune/optimize/passes.py": {"load", "open_session"},
    # So has `fetch_model`, for the copies that a server hands to its workers.
    "deploy/serve/rest.py": {"load"},
    "deploy/serve/rpc.py": {"load"},
    "deploy/serve/model_registry.py": {"load"},
    "deploy/serve/worker.py": {"open_session"},
    # So have `quantize_file` and `measure_sensitivity`, for the file that they prepare.
    "tune/quantize/prepare.py": {"load"},
    # Candidates that Fairway has made itself, in its own folder.
    "tune/quantize/accuracy.py": {"open_session"},
    "tune/quantize/schemes.py": {"load"},
    "tune/quantize/slices.py": {"load"},
    "record/delivery.py": {"load"},
    "judge/differential.py": {"load"},
    "convert/ladder/capture_trace.py": {"load"},
    "convert/ladder/capture_pair.py": {"open_runtime"},
    "convert/pieces/assemble.py": {"load"},
    "convert/pieces/piece_trials.py": {"open_runtime"},
    "convert/generation/greedy.py": {"OrtSession"},
    "debug/reduce/trial_export.py": {"open_session"},
    "debug/reduce/suspect_calls.py": {"load_structure"},
    "judge/answers.py": {"load"},
    "testing/operator_trial.py": {"open_session"},
    "debug/doctor/examine.py": {"OrtSession"},
    # Code that the user named or installed, which is run like an import.
    "cli/export_generation.py": {"load_model"},
    "model/recipe.py": {"load_model"},
    "diagnostics/plugins.py": {"load"},
    # Weights and data, as tensors only.
    "model/checkpoint.py": {"load", "load_file"},
    "model/data.py": {"load", "load_file"},
    "deploy/run/recordings.py": {"load", "safe_open"},
    "deploy/run/walk.py": {"load"},
}
"""The names of the functions that each module may open files with."""


def list_calls(node: ast.AST) -> list[str]:
    """Return the last names of the functions that are called, in the order of the lines."""
    calls = [call for call in ast.walk(node) if isinstance(call, ast.Call)]
    calls.sort(key=lambda call: (call.lineno, call.col_offset))
    return [ast.unparse(call.func).rsplit(".", 1)[-1] for call in calls]


def find_function(module: str, name: str) -> ast.FunctionDef:
    body = ast.parse((SOURCE / module).read_text()).body
    return next(node for node in body if isinstance(node, ast.FunctionDef) and node.name == name)


def test_no_other_place_opens_a_model_or_a_checkpoint() -> None:
    for path in sorted(SOURCE.rglob("*.py")):
        module = str(path.relative_to(SOURCE))
        calls = set(list_calls(ast.parse(path.read_text())))
        assert calls & set(OPENERS) <= KNOWN.get(module, set()), module


@pytest.mark.parametrize(
    ("module", "function", "check", "later"),
    [
        ("convert/export.py", "verify_subject", "open_model", {"judge_file", "compare_with_record"}),
        ("deploy/run/runner.py", "run", "open_model", {"_load_engine", "Engine"}),
        ("deploy/publish/bundle.py", "gather_bundle", "open_header", {"compare_with_record"}),
        ("deploy/serve/model_sources.py", "fetch_model", "open_model", {"compare_with_record"}),
        ("tune/bench/bench.py", "run_bench", "_open_files", {"_choose_subject", "_start_arms"}),
        ("tune/bench/bench.py", "_open_files", "open_model", {"compare_with_record"}),
        ("tune/optimize/optimize.py", "optimize_file", "open_model", {"build_file_subject", "Workers"}),
        ("tune/quantize/quantize_file.py", "quantize_file", "open_model", {"compare_with_record"}),
    ],
)
def test_a_file_is_checked_before_it_is_used(module: str, function: str, check: str, later: set[str]) -> None:
    calls = list_calls(find_function(module, function))
    uses = [calls.index(name) for name in later if name in calls]
    assert uses
    assert calls.index(check) < min(uses)


def test_a_server_loads_only_files_that_were_fetched() -> None:
    registry = (SOURCE / "deploy/serve/model_registry.py").read_text()
    assert registry.count("self._pool.load(") == 1
    assert "await self._pool.load(served.number, fetched.path)" in registry


def test_only_messages_of_fairways_own_processes_are_unpickled() -> None:
    places = {
        (str(path.relative_to(SOURCE)), ast.unparse(node.func))
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith(("pickle.load", "marshal.", "shelve."))
    }
    assert places <= {("workers/attempt.py", "pickle.loads")}
