"""One sentence from everything that was seen."""

from __future__ import annotations

import pytest

from fairway.debug.doctor.probe_steps import CAPTURE, DYNAMO, ORT, TORCHSCRIPT, ProbeStep
from fairway.debug.doctor.verdict import RecipeOutcome, conclude, find_working_exporters, make_findings
from fairway.diagnostics import Finding
from fairway.record.schema import Record
from fairway.record.schema_parts import RecordVerdict, RungRecord, SubjectRecord
from fairway.record.writer import describe_finding

SEED = "RuntimeError: required keyword attribute 'value' has the wrong type"

HEALTHY = [
    ProbeStep("constant", CAPTURE, DYNAMO),
    ProbeStep("constant", DYNAMO, DYNAMO),
    ProbeStep("constant", ORT, DYNAMO),
    ProbeStep("constant", TORCHSCRIPT, TORCHSCRIPT),
    ProbeStep("linear", TORCHSCRIPT, TORCHSCRIPT),
]
NO_TORCHSCRIPT = [*HEALTHY[:3], ProbeStep("constant", TORCHSCRIPT, TORCHSCRIPT, SEED), HEALTHY[4]]
NO_EXPORTER = [ProbeStep("constant", DYNAMO, DYNAMO, SEED), NO_TORCHSCRIPT[3]]
NO_RUNTIME = [*HEALTHY[:2], ProbeStep("constant", ORT, DYNAMO, "RuntimeError: no kernel")]


def record(verdict: RecordVerdict, *routes: str, code: str = "FW301") -> Record:
    return Record(
        format=2,
        subject=SubjectRecord(sha256="0" * 64, domain={}),
        versions={},
        verdict=verdict,
        route=routes[-1] if routes else None,
        remedies=(),
        ladder=tuple(RungRecord(route=route) for route in routes),
        findings=() if verdict == "verified" else (describe_finding(Finding(code, "seen")),),
    )


def say(steps: list[ProbeStep], tried: RecipeOutcome | None = None, *others: Finding) -> tuple[str, str]:
    diagnosis = conclude(steps, [*others, *make_findings(steps)], tried)
    return diagnosis.blame, diagnosis.sentence


def test_a_healthy_machine_is_called_so() -> None:
    assert say(HEALTHY) == (
        "nothing",
        "This machine is healthy: 2 models that are known to export went through every tool here.",
    )


def test_seed_000_blames_the_machine_and_names_the_working_exporter() -> None:
    blame, sentence = say(NO_TORCHSCRIPT)
    assert blame == "machine"
    assert sentence == (
        f"Your machine: TorchScript fails for 1 of 2 models that are known to export (constant: {SEED}); dynamo works."
    )


def test_a_finding_counts_the_models_and_names_the_exporter_to_take() -> None:
    (finding,) = make_findings(NO_TORCHSCRIPT)
    assert finding.code == "FW601"
    assert finding.seen == f"TorchScript fails for 1 of 2 models: constant. constant: {SEED}"
    assert finding.todo[0].startswith("Take the exporter that works here: dynamo")
    assert not any("works here" in step for step in make_findings(NO_EXPORTER)[0].todo)
    assert [f.code for f in make_findings(NO_RUNTIME)] == ["FW602"]


def test_without_a_runtime_no_way_is_whole() -> None:
    assert find_working_exporters(HEALTHY) == [DYNAMO, TORCHSCRIPT]
    assert find_working_exporters(NO_RUNTIME) == []


def test_a_recipe_that_fails_on_every_broken_exporter_is_not_to_blame() -> None:
    blame, sentence = say(NO_EXPORTER, RecipeOutcome("", record("failed", "export-dynamic", "trace")))
    assert blame == "machine"
    assert sentence.startswith("Your machine, not your model: dynamo fails for 1 of 1 models that are known to export")


def test_a_recipe_that_fails_on_a_healthy_machine_is_to_blame() -> None:
    blame, sentence = say(NO_TORCHSCRIPT, RecipeOutcome("", record("failed", "export-dynamic", "trace", code="FW303")))
    assert blame == "model"
    assert sentence.startswith("Your model: the tools that it uses work on this machine, and the recipe")
    assert "(FW303, the model makes a decision on a tensor's value); also, TorchScript fails" in sentence


def test_a_model_that_never_reached_an_exporter_is_to_blame_itself() -> None:
    assert say(NO_EXPORTER, RecipeOutcome("", record("failed", code="FW201")))[0] == "model"


def test_a_bad_model_on_a_healthy_machine() -> None:
    assert say(HEALTHY, RecipeOutcome("", record("failed", code="FW203"))) == (
        "model",
        "Your model: this machine exports models that are known to export, and the recipe comes out failed "
        "(FW203, forward is random).",
    )


def test_settings_are_to_blame_where_the_defaults_do() -> None:
    tried = RecipeOutcome("--route trace", record("wrong", "trace"), record("verified", "export-dynamic"))
    assert say(HEALTHY, tried) == (
        "settings",
        "Your settings: the recipe is verified without --route trace (export-dynamic) and wrong with it.",
    )


def test_a_route_asked_for_that_the_machine_breaks_is_the_machines() -> None:
    tried = RecipeOutcome("--route trace", record("failed", "trace"), record("verified", "export-dynamic"))
    blame, sentence = say(NO_TORCHSCRIPT, tried)
    assert blame == "machine"
    assert sentence.endswith("the recipe is verified without --route trace (export-dynamic) and failed with it.")


def test_a_recipe_that_is_verified_on_a_machine_that_is_broken_elsewhere() -> None:
    blame, sentence = say(NO_TORCHSCRIPT, RecipeOutcome("", record("verified", "export-dynamic")))
    assert blame == "machine"
    assert sentence.endswith("the recipe is verified (export-dynamic) all the same.")
    assert say(HEALTHY, RecipeOutcome("", record("verified", "trace")))[0] == "nothing"


@pytest.mark.parametrize(("code", "blame"), [("FW501", "settings"), ("FW502", "machine"), ("FW301", "model")])
def test_limits_are_not_the_models(code: str, blame: str) -> None:
    assert say(HEALTHY, RecipeOutcome("", record("failed", "export-dynamic", code=code)))[0] == blame


def test_what_cannot_be_imported_comes_before_everything_else() -> None:
    blame, sentence = say([], None, Finding("FW604", "import onnx: ImportError: no"))
    assert (blame, sentence) == (
        "machine",
        "Your machine: a package that every export needs cannot be imported (import onnx: ImportError: no).",
    )


def test_a_recipe_that_cannot_be_loaded_and_a_clash_of_versions() -> None:
    assert say(HEALTHY, RecipeOutcome("", None, finding=Finding("FW101", "r.py does not exist"))) == (
        "recipe",
        "Your recipe: it cannot be loaded (FW101, the recipe was not found: r.py does not exist).",
    )
    blame, sentence = say(HEALTHY, None, Finding("FW603", "onnx 1.19.0 and ml-dtypes 0.4.1"))
    assert (blame, sentence) == (
        "machine",
        "Your machine: versions installed do not go together (onnx 1.19.0 and ml-dtypes 0.4.1).",
    )
    assert say(HEALTHY, None, Finding("FW605", "10 MB of memory"))[0] == "nothing"
