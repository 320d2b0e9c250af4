"""Tiny generators of transformers with random weights that nevertheless say something.

With the library's own initial weights a tiny model repeats one token for ever, and a wrong cache would not show. So the
weights are drawn again: matrices with the standard deviation gain / √(fan-in), the weights of norms from a normal
distribution too (tied embeddings would otherwise echo the last token), biases with 0.1. Of eight seeds and the gains 1
and 2, the draw is taken whose three sequences hold the most different tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import torch
import transformers as tf

WORDS = 96
_SIZES = {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
_PLAIN = {**_SIZES, **_TOKENS, "intermediate_size": 48, "max_position_embeddings": 256}
_GROUPED = {**_PLAIN, "num_key_value_heads": 2}
_PAIR = {
    **_TOKENS,
    "vocab_size": WORDS,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
}
_SHORT = {"max_position_embeddings": 256, "decoder_start_token_id": 2, "forced_eos_token_id": None}

DECODERS: dict[str, Callable[[], Any]] = {
    "llama": lambda: tf.LlamaConfig(**_GROUPED),
    "qwen2": lambda: tf.Qwen2Config(**_GROUPED),
    "qwen3": lambda: tf.Qwen3Config(**_GROUPED, head_dim=8),
    "mistral": lambda: tf.MistralConfig(**_GROUPED, sliding_window=12),
    "gemma2": lambda: tf.Gemma2Config(**_GROUPED, head_dim=8, sliding_window=12, query_pre_attn_scalar=8),
    "phi3": lambda: tf.Phi3Config(**_GROUPED),
    "mixtral": lambda: tf.MixtralConfig(**_GROUPED, num_local_experts=4),
    "gpt_neox": lambda: tf.GPTNeoXConfig(**_PLAIN),
    "gpt2": lambda: tf.GPT2Config(**_TOKENS, vocab_size=WORDS, n_positions=256, n_embd=32, n_layer=2, n_head=4),
    "opt": lambda: tf.OPTConfig(**_SIZES, **_TOKENS, ffn_dim=48, max_position_embeddings=256, word_embed_proj_dim=32),
    "bloom": lambda: tf.BloomConfig(**_TOKENS, vocab_size=WORDS, hidden_size=32, n_layer=2, n_head=4),
}
PAIRS: dict[str, Callable[[], Any]] = {
    "t5": lambda: tf.T5Config(
        vocab_size=WORDS, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0
    ),
    "bart": lambda: tf.BartConfig(**_PAIR, **_SHORT),
    "marian": lambda: tf.MarianConfig(**_PAIR, **_SHORT),
    "whisper": lambda: tf.WhisperConfig(
        **_PAIR, num_mel_bins=16, max_source_positions=20, max_target_positions=256, decoder_start_token_id=3
    ),
}
REFUSED: dict[str, Callable[[], Any]] = {
    "mamba": lambda: tf.MambaConfig(vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, state_size=8),
    "jamba": lambda: tf.JambaConfig(
        **_GROUPED,
        attn_layer_period=2,
        attn_layer_offset=1,
        expert_layer_period=2,
        expert_layer_offset=1,
        num_experts=2,
        num_experts_per_tok=1,
        mamba_d_state=8,
        mamba_dt_rank=4,
        use_mamba_kernels=False,
    ),
    "qwen3_next": lambda: tf.Qwen3NextConfig(
        **_GROUPED,
        head_dim=8,
        layer_types=["linear_attention", "full_attention"],
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
    ),
}
NAMES = (*DECODERS, *PAIRS, *REFUSED)


def build(name: str) -> Any:
    """The model, with weights that make it talk."""
    config = {**DECODERS, **PAIRS, **REFUSED}[name]()
    kind = tf.AutoModelForCausalLM
    if name in PAIRS:
        kind = tf.AutoModelForSpeechSeq2Seq if name == "whisper" else tf.AutoModelForSeq2SeqLM
    torch.manual_seed(0)
    model = kind.from_config(config).eval()
    return model if name in REFUSED else enliven(model)


def enliven(model: Any) -> Any:
    """The liveliest of sixteen draws."""
    tries = {(gain, seed): _variety(draw(model, gain, seed)) for gain, seed in product((1.0, 2.0), range(8))}
    return draw(model, *max(tries, key=lambda one: tries[one]))


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
    return model


def _variety(model: Any) -> tuple[int, int]:
    """Different tokens in the dullest of three sequences, and in all of them."""
    generator = torch.Generator().manual_seed(1)
    if model.main_input_name == "input_features":
        inputs = {"input_features": torch.randn(3, 16, 40, generator=generator)}
    else:
        ids = torch.randint(3, WORDS, (3, 9), generator=generator)
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    out = tf.GenerationMixin.generate(model, **inputs, do_sample=False, max_new_tokens=32, min_new_tokens=32)
    rows = out[:, -32:].tolist()
    return min(len(set(row)) for row in rows), len({token for row in rows for token in row})
