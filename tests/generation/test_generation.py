"""Graphs, names and files are those that other runtimes expect, and 32 tokens are those of `generate`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from .conftest import Exported

Export = Callable[[str], Exported]
BESIDE = ["config.json", "generation.fairway.json", "generation_config.json"]


def signature(path: Path) -> tuple[list[str], list[str]]:
    graph = onnx.load(path, load_external_data=False).graph
    return [i.name for i in graph.input], [o.name for o in graph.output]


def shape_of(path: Path, name: str) -> list[str | int]:
    graph = onnx.load(path, load_external_data=False).graph
    value = next(v for v in (*graph.input, *graph.output) if v.name == name)
    return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mistral", "t5"])
def test_every_graph_is_verified_and_every_token_is_that_of_generate(name: str, exported: Export) -> None:
    result = exported(name).result
    assert result.verified, str(result)
    assert {graph.verdict for graph in result.graphs.values()} == {"verified"}
    assert [len(run.lengths) for run in result.runs] == [1, 3]
    assert result.runs[1].lengths == (9, 3, 12)
    for run in result.runs:
        assert [step.number for step in run.steps] == list(range(32))
        assert {step.choice for step in run.steps} == {"same"}
        assert all(step.tokens == step.file_tokens for step in run.steps)
        assert 0 < max(step.ratio for step in run.steps) <= 1
        assert run.distinct >= 8, "the model does not talk; the comparison says little"


@pytest.mark.slow
def test_a_decoder_is_one_graph_with_keys_and_values_by_layer(exported: Export) -> None:
    folder = exported("mistral").folder
    assert sorted(p.name for p in folder.iterdir()) == sorted(
        [*BESIDE, "genai_config.json", "model.fairway.json", "model.onnx"]
    )
    inputs, outputs = signature(folder / "model.onnx")
    pairs = [f"{i}.{what}" for i in range(2) for what in ("key", "value")]
    assert inputs == ["input_ids", "attention_mask", "position_ids", *(f"past_key_values.{one}" for one in pairs)]
    assert outputs == ["logits", *(f"present.{one}" for one in pairs)]
    assert shape_of(folder / "model.onnx", "past_key_values.1.key")[1::2] == [2, 4]
    varies = shape_of(folder / "model.onnx", "attention_mask")
    assert all(isinstance(size, str) for size in varies), varies


@pytest.mark.slow
def test_an_encoder_decoder_is_three_graphs_with_both_caches(exported: Export) -> None:
    folder = exported("t5").folder
    names = ("encoder_model", "decoder_model", "decoder_with_past_model")
    assert sorted(p.name for p in folder.iterdir()) == sorted(
        [*BESIDE, *(f"{name}{end}" for name in names for end in (".onnx", ".fairway.json"))]
    )
    own, cross = ([f"0.{side}.{what}" for what in ("key", "value")] for side in ("decoder", "encoder"))
    assert signature(folder / "encoder_model.onnx") == (["input_ids", "attention_mask"], ["last_hidden_state"])
    assert signature(folder / "decoder_model.onnx") == (
        ["encoder_attention_mask", "input_ids", "encoder_hidden_states"],
        ["logits", *(f"present.{one}" for one in (*own, *cross))],
    )
    assert signature(folder / "decoder_with_past_model.onnx") == (
        ["encoder_attention_mask", "input_ids", *(f"past_key_values.{one}" for one in (*own, *cross))],
        ["logits", *(f"present.{one}" for one in own)],
    )


@pytest.mark.slow
def test_settings_of_other_runtimes_lie_beside_the_graph(exported: Export) -> None:
    folder = exported("mistral").folder
    config, genai = (json.loads((folder / name).read_text()) for name in ("config.json", "genai_config.json"))
    assert config["model_type"] == genai["model"]["type"] == "mistral"
    assert genai["model"]["context_length"] == genai["search"]["max_length"] == 128
    decoder = genai["model"]["decoder"]
    assert {key: decoder[key] for key in ("filename", "head_size", "num_key_value_heads", "num_hidden_layers")} == {
        "filename": "model.onnx",
        "head_size": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
    }
    inputs, outputs = signature(folder / "model.onnx")
    for names, there in ((decoder["inputs"], inputs), (decoder["outputs"], outputs)):
        assert {name.replace("%d", "1") for name in names.values()} <= set(there)


@pytest.mark.slow
def test_the_record_and_the_text_say_what_was_compared(exported: Export) -> None:
    mistral = exported("mistral")
    record = json.loads((mistral.folder / "generation.fairway.json").read_text())
    assert record["verdict"] == "verified"
    assert [len(run["steps"]) for run in record["steps"]] == [32, 32]
    assert record["steps"][0]["steps"][7]["choice"] == "same"
    assert set(record["files"]) == {p.name for p in mistral.folder.iterdir()} - {"generation.fairway.json"}
    lines = str(mistral.result).splitlines()
    assert lines[0].startswith("verified  ")
    assert "past 0..64" in lines[1]
    assert lines[2].startswith("  steps     one prompt of 9 tokens: 32 of 32 tokens the same, ")
    assert lines[4].strip().startswith("3 prompts of 3 to 12 tokens, padded on the left: 96 of 96 tokens the same, ")
