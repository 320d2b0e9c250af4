"""Unsupported models and options are refused with the reason before anything is exported, and no file is left."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf

import fairway
from fairway.record.progress import PartStarted

from . import generators


def complaint(call: Callable[[], Any]) -> str:
    with pytest.raises(fairway.UserError) as caught:
        call()
    return f"{caught.value.finding.code}: {caught.value.finding.seen}"


def bert() -> Any:
    config = tf.BertConfig(
        vocab_size=16, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    return tf.BertModel(config)


def without_a_start() -> Any:
    model = generators.t5()
    model.generation_config.decoder_start_token_id = None
    return model


def hybrid() -> Any:
    config = tf.Qwen3NextConfig(
        **generators.SIZES,
        head_dim=4,
        layer_types=["linear_attention", "full_attention"],
        num_experts=2,
        num_experts_per_tok=1,
        moe_intermediate_size=8,
        shared_expert_intermediate_size=8,
        linear_num_value_heads=2,
        linear_num_key_heads=2,
        linear_key_head_dim=4,
        linear_value_head_dim=4,
    )
    return tf.Qwen3NextForCausalLM(config).eval()


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: torch.nn.Linear(2, 2), "FW019: expected a model of transformers, got Linear"),
        (bert, "FW019: BertModel has no `generate`; a …ForCausalLM or …ForConditionalGeneration has"),
        (
            generators.mamba,
            "FW213: expected a cache with a list of layers; MambaForCausalLM returns no past_key_values",
        ),
        (
            hybrid,
            "FW213: 1 of 2 layers of Qwen3NextForCausalLM keep another state, first layer 0: LinearAttentionLayer",
        ),
        (
            without_a_start,
            "FW201: generate raised ValueError: `decoder_start_token_id` or `bos_token_id` has to be defined for "
            "encoder-decoder generation.",
        ),
    ],
)
def test_models_that_are_not_covered(build: Callable[[], Any], said: str, tmp_path: Path) -> None:
    assert complaint(lambda: fairway.export_generation(build(), tmp_path / "out")) == said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"bounds": {"time": (1, 2)}}, "FW005: 'time' is not a dim of any input; the dims are: batch, past, seq"),
        ({"prompts": [[1, 999]]}, "FW015: prompt 0 contains token 999; expected 0..63"),
        (
            {"prompts": [[]]},
            "FW015: prompts: expected lists of token ids, none of them empty, and no prompts for a speech model",
        ),
        ({"steps": 0}, "FW006: steps: expected at least 1, got 0"),
        ({"level": "lazy"}, "FW006: level: expected one of quick, standard, deep, got 'lazy'"),
    ],
)
def test_wishes_that_cannot_be_met(words: dict[str, Any], said: str, tmp_path: Path) -> None:
    assert complaint(lambda: fairway.export_generation(generators.llama(), tmp_path / "out", **words)) == said
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_killed_leaves_no_folder(tmp_path: Path) -> None:
    def die(event: Any) -> None:
        if event == PartStarted("model.onnx"):
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        fairway.export_generation(generators.llama(), tmp_path / "out", progress=die)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    left = _settled(tmp_path)
    assert left == []


def _settled(folder: Path) -> list[Path]:
    """Return the remaining files when the janitor has swept, after a few seconds at most."""
    import time

    for _ in range(100):
        if not list(folder.iterdir()):
            break
        time.sleep(0.1)
    return list(folder.iterdir())
