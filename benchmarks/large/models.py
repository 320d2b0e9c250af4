"""Models at their real sizes, as recipes that take their weights from a checkpoint: `--checkpoint FOLDER`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

import fairway

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path[:0] = [str(EXAMPLES / "qwen_vl"), str(EXAMPLES / "heimdall")]

from localization_net import LocalizationNet  # noqa: E402  # from the examples' folders
from towers import QWEN_3B, Qwen25VLTextWrapper, Qwen25VLVision672Wrapper, build_model  # noqa: E402

VOCABULARY = 151936
HALF_BILLION = {"hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14, "num_key_value_heads": 2}


class TextTower(torch.nn.Module):
    """A text tower of half a billion parameters at 24 layers; with fewer or more of them on demand."""

    def __init__(self, layers: int = 24) -> None:
        super().__init__()
        config = Qwen2Config(
            **HALF_BILLION, num_hidden_layers=layers, vocab_size=VOCABULARY, tie_word_embeddings=True, use_cache=False
        )
        config._attn_implementation = "sdpa"
        self.language = Qwen2ForCausalLM(config).eval()

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.language(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits


def qwen_text() -> torch.nn.Module:
    """Qwen2.5-VL-3B without its vision tower, which the text wrapper never calls."""
    model = build_model(QWEN_3B, "sdpa", torch.float16)
    del model.model.visual
    return Qwen25VLTextWrapper(model)


def qwen_vision() -> torch.nn.Module:
    return Qwen25VLVision672Wrapper(build_model(QWEN_3B, "sdpa", torch.float16)).eval()


TOKENS: dict[str, Any] = {
    "inputs": [f"input_ids: int64[batch, seq] < {VOCABULARY}", "attention_mask: int64[batch, seq] = keep-right-padded"],
    "bounds": {"batch": (1, 2), "seq": (1, 64)},
    "example": {"batch": 2, "seq": 9},
    "output_names": ["logits"],
}

text_half = fairway.Recipe(model=TextTower, **TOKENS)
text_half_4 = fairway.Recipe(model=partial(TextTower, 4), **TOKENS)
text_half_48 = fairway.Recipe(model=partial(TextTower, 48), **TOKENS)
text_3b = fairway.Recipe(model=qwen_text, **TOKENS)
vision_3b = fairway.Recipe(
    model=qwen_vision, inputs=["pixel_values: float16[1, 3, 672, 672]"], output_names=["image_embeds"]
)
convnext_large = fairway.Recipe(
    model=lambda: LocalizationNet("large").eval(),
    inputs=["mel_spectrogram: float32[batch, 3, 128, 32]"],
    bounds={"batch": (1, 8)},
    example={"batch": 2},
)
