"""Any transformers config at a tiny size, by what its settings are called; no model type is named here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from transformers import AutoConfig

WIDTH, HEADS, VOCABULARY, WORDS = 32, 4, 128, 100
"""Ordinary token ids lie below WORDS; special ones that the defaults put further up are moved between the two."""

_SIZES: tuple[tuple[str, int], ...] = (
    (r"mamba_n_heads|mamba_num_heads", 8),
    (r"mamba_d_ssm", 64),
    (r"rotary_dim", 4),
    (r"num_kv_shared_layers|num_nextn_predict_layers|num_mem_blocks", 0),
    (r"(\w+_)?(num_hidden_layers|num_layers|(en|de)coder_layers|n_layers?|num_(en|de)coder_layers|depth)", 2),
    (r"(\w+_)?(num_attention_heads|attention_heads|num_heads|n_heads?|num_v_heads)|index_n_heads", HEADS),
    (r"(\w+_)?num_(key_value|kv|k)_heads|num_query_groups", 2),
    (r"(\w*_)?(hidden_size|d_model|n_embd|embed_dim|embedding_size|hidden_dim|projection_dim|emb_dim)|dim", WIDTH),
    (r"(encoder|decoder)_hidden_dim|attention_hidden_size|pooler_output_size|attention_dim|fpn_dim", WIDTH),
    (r"(\w*_)?(intermediate_size|ffn_dim|d_ff|n_inner|feed_?forward_dim|mlp_dim|dim_feedforward|linear_units)", 48),
    (r"moe_(\w+_)?intermediate_size|shared_expert_intermediate_size|expert_ffn_hidden_size", 16),
    (r"(\w*_)?head_dim|d_kv|kv_channels|d_head|attention_head_dim|head_size|dim_head|mamba_d_head|key_dim", 8),
    (r"(q|kv|o|gated_norm|laurel|decay|gate|a|v|w)_(lora_)?rank(_dim)?|low_rank_dim", 16),
    (r"(num_local|num|n_routed|moe_num)_experts|zero_expert_num", 4),
    (r"(num_experts_per_tok(en)?|moe_top_?k|moe_k|num_selected_experts|top_k_experts)", 2),
    (r"n_group|topk_group|num_expert_group|n_shared_experts|mamba_n_groups|first_k_dense_replace", 1),
    (r"(attn|expert|attention|moe)_layer_(period|freq|interval)|full_attention_interval|decoder_sparse_step", 2),
    (r"(attn|expert)_layer_offset", 1),
    (r"state_size|mamba_d_state|ssm_state_size|d_state", 8),
    (r"(time_step_rank|mamba_dt_rank)", 4),
    (r"mamba_chunk_size|chunk_size|block_size|index_topk|attention_chunk_size|local_attention", 8),
    (r"sliding_window|attention_window", 8),
    (r"(\w+_)?vocab_size(_\w+)?|(\w+_)?codebook_size|num_embeddings", VOCABULARY),
    (r"(\w+_)?max_position_embeddings|n_positions|n_ctx|max_seq_len|max_source_positions|max_target_positions", 128),
    (r"(\w+_)?image_size|pretrain_image_size|input_size", 32),
    (r"(\w+_)?patch_size", 8),
    (r"num_queries|num_query_tokens|num_latents|latent_query_num|resampler_num_latents", 6),
    (r"d_latents", WIDTH),
    (r"num_mel_bins|feature_size", 16),
    (r"encoder_stride|output_stride", 8),
    (r"window_size", 4),
)
_LISTS = {"depths": 1, "depth": 1, "num_block_repeats": 1, "block_repeats": 1, "conv_dim": 16, "tdnn_dim": 16}


_UNSAID = {
    "vocab_size": VOCABULARY,
    "head_dim": 8,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "pad_token_id": 0,
    "moe_intermediate_size": 16,
    "n_shared_experts": 1,
    "layer_types": ["full_attention"] * 2,
}
"""Settings that some classes leave as None and cannot do without."""


def tinies(kind: type) -> Iterator[Any]:
    """Configs of this class whose default settings are made small where they are large; the first that works is it."""
    for unsaid in ({}, _UNSAID):
        config = kind(**shrunk(kind(), unsaid))
        for part in map(config.__dict__.get, getattr(config, "sub_configs", {})):
            if getattr(part, "use_cache", False):  # some turn it on again for their decoder
                part.use_cache = False
        yield config


def shrunk(config: Any, unsaid: dict[str, Any]) -> dict[str, Any]:
    settings = config.to_dict()
    taken: set[int] = set()
    found: dict[str, Any] = {}
    parts = getattr(config, "sub_configs", {})
    for name, value in settings.items():
        part = getattr(config, name, None) if isinstance(value, dict) else None
        if hasattr(part, "to_dict"):
            known = parts.get(name) not in (None, AutoConfig)
            found[name] = shrunk(part, unsaid) | ({} if known else {"model_type": part.model_type})
        elif name == "rope_parameters" and isinstance(value, dict):
            found |= _rotary(value)
        elif isinstance(value, bool) or name in ("qk_head_dim", "max_length"):
            continue
        elif isinstance(value, int):
            found |= _number(name, value, settings, taken)
        elif isinstance(value, list | tuple) and value and all(type(one) is int for one in value):
            found |= _several(name, list(value))
    found |= _layers(settings)
    found |= {name: False for name in ("use_cache", "use_mambapy", "scale_embedding") if settings.get(name) is True}
    return found | {name: value for name, value in unsaid.items() if settings.get(name, 0) is None}


def _rotary(settings: dict[str, Any]) -> dict[str, Any]:
    """Sections of the rotary dims that add up to half a head; such heads are twice as wide as others."""
    if "mrope_section" not in settings:
        return {}
    half = int(16 * settings.get("partial_rotary_factor", 1.0)) // 2
    sections = [half - 2 * (half // 4), half // 4, half // 4]
    return {"rope_parameters": {**settings, "mrope_section": sections}, "head_dim": 16}


def _number(name: str, value: int, settings: dict[str, Any], taken: set[int]) -> dict[str, int]:
    if re.fullmatch(r"\w*token_(id|index)|\w+_(start|end)_id", name):
        if value < WORDS:
            return {}
        moved = next(n for n in range(WORDS, VOCABULARY) if n not in taken)
        taken.add(moved)
        return {name: moved}
    if re.fullmatch(r"(\w+_)?num_(key_value|kv)_heads", name):
        heads = settings.get("num_attention_heads")
        return {name: 1 if value == 1 else HEADS if value == heads else 2}
    for pattern, size in _SIZES:
        if re.fullmatch(pattern, name):
            return {name: size} if value > size else {}
    return {}


def _several(name: str, values: list[int]) -> dict[str, Any]:
    if name in _LISTS:
        return {name: [min(v, _LISTS[name]) for v in values]}
    if name in ("eos_token_id", "bos_token_id"):
        return {name: 2}
    if name in ("hidden_sizes", "embed_dim", "embed_dims", "stem_channels", "neck_hidden_sizes"):
        return {name: [16 * 2**i for i in range(len(values))] if values != sorted(values)[::-1] else [32] * len(values)}
    if name in ("num_heads", "num_attention_heads"):
        return {name: [min(v, 2) for v in values]}
    if name in ("image_size", "patch_size") and max(values) > 32:
        return {name: [32] * len(values)}
    return {}


def _layers(settings: dict[str, Any]) -> dict[str, Any]:
    """One layer of each kind that the default has, in its order, and at least two."""
    kinds = settings.get("layer_types") or settings.get("layers_block_type")
    if not isinstance(kinds, list | tuple) or not kinds:
        return {}
    chosen = list(dict.fromkeys(kinds))
    chosen = chosen * 2 if len(chosen) == 1 else chosen
    name = "layer_types" if settings.get("layer_types") else "layers_block_type"
    return {name: chosen, "num_hidden_layers": len(chosen)}
