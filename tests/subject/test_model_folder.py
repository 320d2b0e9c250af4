"""A transformers folder is exported as it is: inputs from its config, and files of its tokenizer beside the graphs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import transformers as tf

import forked
from fairway.diagnostics.errors import UserError
from fairway.model.recipe import Overrides, load_subject

SMALL: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
TEXT: dict[str, Any] = {**SMALL, "vocab_size": 50, "max_position_embeddings": 24}


def make(kind: Any, config: Any, folder: Path) -> Path:
    kind(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    return folder


def describe(folder: Path) -> tuple[list[str], str]:
    subject = load_subject(str(folder), Overrides())
    return [str(line) for line in subject.spec], str(subject.domain)


def test_inputs_of_text_come_from_the_config(tmp_path: Path) -> None:
    folder = make(tf.BertForSequenceClassification, tf.BertConfig(**TEXT), tmp_path / "bert")
    assert describe(folder) == (
        [
            "input_ids: int64[batch, seq] < 50",
            "attention_mask: int64[batch, seq] = keep",
            "token_type_ids: int64[batch, seq] < 2",
        ],
        "batch 1..8, seq 1..24",
    )


def test_the_positions_of_roberta_begin_behind_its_padding(tmp_path: Path) -> None:
    config = tf.RobertaConfig(**{**TEXT, "max_position_embeddings": 18}, pad_token_id=1, type_vocab_size=1)
    folder = make(tf.RobertaModel, config, tmp_path / "roberta")
    lines = ["input_ids: int64[batch, seq] < 50", "attention_mask: int64[batch, seq] = keep"]
    assert describe(folder) == (lines, "batch 1..8, seq 1..16")


def test_inputs_of_a_decoder_are_declared_too(tmp_path: Path) -> None:
    config = tf.T5Config(
        vocab_size=50, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0
    )
    lines, domain = describe(make(tf.T5ForConditionalGeneration, config, tmp_path / "t5"))
    assert lines[-1] == "decoder_input_ids: int64[batch, target] < 50"
    assert domain == "batch 1..8, seq 1..512, target 1..512"


def test_inputs_of_images_and_sound_come_from_the_config(tmp_path: Path) -> None:
    vit = make(tf.ViTForImageClassification, tf.ViTConfig(**SMALL, image_size=32, patch_size=8), tmp_path / "vit")
    assert describe(vit) == (["pixel_values: float32[batch, 3, 32, 32]"], "batch 1..8")
    sizes = {"conv_dim": (8, 8), "conv_stride": (5, 2), "conv_kernel": (10, 3), "num_feat_extract_layers": 2}
    config = tf.Wav2Vec2Config(**SMALL, **sizes, num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2)
    wav2vec = make(tf.Wav2Vec2ForCTC, config, tmp_path / "wav2vec")
    assert describe(wav2vec) == (["input_values: float32[batch, time]"], "batch 1..8, time 1600..32000")


def run(folder: Path, *words: str) -> tuple[int, str]:
    return forked.fairway([*words, "--level", "quick"], folder, dict(os.environ), 600, errors=False)


def test_a_folder_is_exported_by_its_name(tmp_path: Path) -> None:
    make(tf.BertForSequenceClassification, tf.BertConfig(**TEXT), tmp_path / "bert")
    status, output = run(tmp_path, "export", "bert", "-o", "bert.onnx")
    assert (status, output.splitlines()[0].split()[:2]) == (0, ["verified", "bert.onnx"])
    assert json.loads((tmp_path / "bert.fairway.json").read_text())["subject"]["name"] == "bert"


def test_a_generator_takes_its_tokenizer_along(tmp_path: Path) -> None:
    make(tf.LlamaForCausalLM, tf.LlamaConfig(**TEXT), tmp_path / "llama")
    status, output = run(tmp_path, "export-generation", "llama", "-o", "talker", "--steps", "3", "--dim", "past=0..16")
    assert (status, output.splitlines()[0].split()[0]) == (0, "verified"), output
    assert {"model.onnx", "config.json", "tokenizer.json"} <= {path.name for path in (tmp_path / "talker").iterdir()}


@pytest.mark.parametrize(
    ("files", "text"),
    [
        (
            {"config.json": {"architecture": "resnet18"}},
            "folder is a folder of timm\n  do: Write a recipe: Recipe(lambda: timm.create_model(NAME), "
            '["x: float32[batch, 3, 224, 224]"], checkpoint="model.safetensors").',
        ),
        (
            {"model_index.json": {"_class_name": "StableDiffusionPipeline"}},
            "folder is a diffusers pipeline, which is several models\n"
            "  do: Write a recipe for each: Recipe(lambda: UNet2DConditionModel.from_pretrained(...), inputs).",
        ),
        (
            {"config.json": {"architectures": ["NoSuchModel"]}},
            f"folder is a NoSuchModel, which transformers {tf.__version__} does not have\n"
            "  do: Install the version of transformers that has it.",
        ),
        (
            {},
            "folder is a folder without a config.json that names a transformers architecture\n"
            "  do: Name a recipe: path/to/file.py[:name].",
        ),
    ],
    ids=["timm", "diffusers", "unknown architecture", "empty"],
)
def test_other_folders_are_refused_with_the_cure(
    files: dict[str, Any], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name, content in files.items():
        (tmp_path / "folder" / name).write_text(json.dumps(content))
    with pytest.raises(UserError) as caught:
        load_subject("folder", Overrides())
    assert str(caught.value) == f"FW103: The recipe does not identify a model: {text}"
