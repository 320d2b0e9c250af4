"""Writes the settings that runtimes read: config.json, generation_config.json, and genai_config.json.

The first two are those of transformers. The third is for onnxruntime-genai, and for decoders alone: its layout of
encoder-decoders differs from optimum's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fairway.convert.generation.anatomy import Anatomy
from fairway.convert.generation.file_names import CONFIG, DECODER, GENAI, GENERATION
from fairway.convert.generation.wrappers import TransformersModel

GENAI_TYPES = (
    "gemma",
    "gemma2",
    "gemma3_text",
    "granite",
    "llama",
    "mistral",
    "nemotron",
    "olmo",
    "phi",
    "phi3",
    "phimoe",
    "qwen2",
    "qwen3",
    "smollm3",
)
"""Model types that onnxruntime-genai 0.18 knows by transformers' name, each a plain decoder. All others are called
`decoder`, its general name; so is gpt2, whose name means an older layout there."""


def write_configs(model: TransformersModel, anatomy: Anatomy, folder: Path) -> list[str]:
    """Write the settings files into the folder; return their names."""
    (folder / CONFIG).write_text(model.config.to_json_string())
    (folder / GENERATION).write_text(model.generation_config.to_json_string())
    if anatomy.cross:
        return [CONFIG, GENERATION]
    (folder / GENAI).write_text(json.dumps(make_genai_config(model, anatomy), indent=4) + "\n")
    return [CONFIG, GENERATION, GENAI]


def make_genai_config(model: TransformersModel, anatomy: Anatomy) -> dict[str, object]:
    """Return onnxruntime-genai's settings for a decoder: greedy search, unless the model's settings name another."""
    settings, config = model.generation_config, model.config
    inputs = {"input_ids": "input_ids", "attention_mask": "attention_mask"}
    if anatomy.positions:
        inputs["position_ids"] = "position_ids"
    inputs |= {"past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"}
    end = _take_first(settings.eos_token_id, config.eos_token_id, 0)
    padding = _take_first(settings.pad_token_id, config.pad_token_id, end[0] if isinstance(end, list) else end)
    layer = anatomy.layers[0]
    return {
        "model": {
            "type": config.model_type if config.model_type in GENAI_TYPES else "decoder",
            "vocab_size": anatomy.vocabulary,
            "context_length": anatomy.context,
            "bos_token_id": _take_first(settings.bos_token_id, config.bos_token_id, 0),
            "eos_token_id": end,
            "pad_token_id": padding,
            "decoder": {
                "filename": DECODER,
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
                "hidden_size": config.hidden_size,
                "head_size": layer.key,
                "num_attention_heads": config.num_attention_heads,
                "num_key_value_heads": layer.heads,
                "num_hidden_layers": len(anatomy.layers),
                "inputs": inputs,
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
            },
        },
        "search": {
            "do_sample": bool(_take_first(settings.do_sample, False)),
            "max_length": anatomy.context,
            "min_length": 0,
            "num_beams": 1,
            "past_present_share_buffer": False,
            "repetition_penalty": float(_take_first(settings.repetition_penalty, 1.0)),
            "temperature": float(_take_first(settings.temperature, 1.0)),
            "top_k": int(_take_first(settings.top_k, 50)),
            "top_p": float(_take_first(settings.top_p, 1.0)),
        },
    }


def _take_first(*values: Any) -> Any:
    """Return the first value that is not None."""
    return next(value for value in values if value is not None)
