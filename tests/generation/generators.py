"""Tiny generators whose random weights make them talk: decoders and an encoder-decoder.

With the library's initial weights they would repeat one token, and a wrong cache would not show. Here matrices have the
standard deviation gain / √(fan-in), norms have random weights, and the seeds are those of lively sequences.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers as tf

WORDS = 64
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
SIZES = {
    **TOKENS,
    "vocab_size": WORDS,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "max_position_embeddings": 128,
}


def draw(model: Any, gain: float, seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                drawn *= gain * parameter[0].numel() ** -0.5
            elif name.endswith("bias"):
                drawn *= 0.1
            parameter.copy_(drawn)
    return model.eval()


def llama() -> Any:
    return draw(tf.LlamaForCausalLM(tf.LlamaConfig(**SIZES)), 2.0, 4)


def mistral() -> Any:
    """Its attention looks back six tokens only, fewer than are generated."""
    return draw(tf.MistralForCausalLM(tf.MistralConfig(**SIZES, sliding_window=6)), 2.0, 4)


def t5() -> Any:
    config = tf.T5Config(
        vocab_size=WORDS, d_model=16, d_kv=4, d_ff=24, num_layers=1, num_heads=4, decoder_start_token_id=0
    )
    return draw(tf.T5ForConditionalGeneration(config), 1.0, 1)


def mamba() -> Any:
    config = tf.MambaConfig(vocab_size=WORDS, hidden_size=16, num_hidden_layers=2, state_size=4)
    return tf.MambaForCausalLM(config).eval()
