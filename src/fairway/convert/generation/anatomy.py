"""The anatomy of a generator: what its graphs take and give.

It is read off the model itself: a few tokens are run, and the cache that comes back tells how many layers there are and
how wide their keys and values are. Refuses what does not generate from text or from speech of one length, and caches
that hold anything but keys and values.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from typing import Any

import torch

from fairway.diagnostics.errors import complain
from fairway.judge.runtimes.eager import uncompiled

UNLIMITED = 2048
"""Tokens in a context where the model states no limit, as with relative positions."""

FEW = 3
"""Tokens that are run to look at the cache."""


@dataclass(frozen=True)
class Layer:
    """One layer's cache: how many heads, and how wide each key and each value is."""

    heads: int
    key: int
    value: int


@dataclass(frozen=True)
class Anatomy:
    """What is known of a generator. One with `cross` is an encoder-decoder, one with `features` listens to speech."""

    layers: tuple[Layer, ...]
    cross: tuple[Layer, ...]
    """The cross-attention's cache, layer by layer; empty for a plain decoder."""
    dtype: str
    vocabulary: int
    context: int
    positions: bool
    """Whether forward takes position_ids."""
    hidden: int = 0
    """Width of the encoder's states."""
    features: tuple[int, int] | None = None
    """Bands and frames of the speech that the encoder takes, which is of one length."""
    states: int = 0
    """How many states the encoder makes of such speech."""


def examine(model: torch.nn.Module) -> Anatomy:
    """Looks at the model, runs it once, and refuses what no cache of keys and values can be made for."""
    _refuse_others(model)
    known: Any = model
    config = known.config
    if config.is_encoder_decoder:
        features = _features(known)
        with torch.no_grad(), uncompiled():
            source = torch.zeros(1, *features, dtype=known.dtype) if features else torch.ones(1, FEW, dtype=torch.long)
            ids = torch.ones(1, FEW, dtype=torch.long)
            out = known(source, decoder_input_ids=ids, use_cache=True, return_dict=True)
        cache = out.get("past_key_values")
        own, cross = getattr(cache, "self_attention_cache", cache), getattr(cache, "cross_attention_cache", None)
        layers, crossed = _layers(known, own), _layers(known, cross)
        states, hidden = map(int, out.encoder_last_hidden_state.shape[1:])
    else:
        features, crossed, hidden, states = None, (), 0, 0
        with torch.no_grad(), uncompiled():
            out = known(torch.ones(1, FEW, dtype=torch.long), use_cache=True, return_dict=True)
        layers = _layers(known, out.get("past_key_values"))
    return Anatomy(
        layers=layers,
        cross=crossed,
        dtype=str(known.dtype).removeprefix("torch."),
        vocabulary=int(config.get_text_config(decoder=True).vocab_size),
        context=_context(config),
        positions=not crossed and "position_ids" in inspect.signature(known.forward).parameters,
        hidden=hidden,
        features=features,
        states=states if features else 0,
    )


def _refuse_others(model: torch.nn.Module) -> None:
    kind = type(model).__name__
    library = sys.modules.get("transformers.modeling_utils")
    if library is None or not isinstance(model, library.PreTrainedModel):
        raise complain("FW019", f"{kind} is not a model of transformers")
    known: Any = model
    if not known.can_generate():
        raise complain("FW019", f"{kind} has no `generate`; a …ForCausalLM or …ForConditionalGeneration has")
    if known.config.get_text_config(decoder=True) is not known.config and not known.config.is_encoder_decoder:
        raise complain("FW019", f"{kind} has parts for more than text")


def _features(model: Any) -> tuple[int, int] | None:
    """None for text; bands and frames for speech whose length the encoder fixes, as Whisper's does."""
    if model.main_input_name == "input_ids":
        return None
    encoder = model.get_encoder()
    known = all(hasattr(encoder, name) for name in ("conv1", "conv2", "max_source_positions"))
    if model.main_input_name != "input_features" or not known:
        raise complain("FW019", f"{type(model).__name__} generates from {model.main_input_name}")
    frames = int(encoder.max_source_positions) * int(encoder.conv1.stride[0]) * int(encoder.conv2.stride[0])
    return int(model.config.num_mel_bins), frames


def _layers(model: Any, cache: Any) -> tuple[Layer, ...]:
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    name = type(model).__name__
    layers = getattr(cache, "layers", None)
    if not layers:
        what = "no past_key_values" if cache is None else f"a {type(cache).__name__}"
        raise complain("FW213", f"{name} answers with {what}")
    # By exact type: subclasses carry further states along.
    other = [
        (i, type(layer).__name__)
        for i, layer in enumerate(layers)
        if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer)
    ]
    if other:
        place, kind = other[0]
        raise complain("FW213", f"{len(other)} of {len(layers)} layers of {name}, first layer {place}: {kind}")
    empty = [i for i, layer in enumerate(layers) if not layer.is_initialized]
    if empty:
        raise complain("FW213", f"layer {empty[0]} of {name} keeps nothing: it shares another layer's cache")
    return tuple(Layer(x.keys.shape[1], x.keys.shape[3], x.values.shape[3]) for x in layers)


def _context(config: Any) -> int:
    for name in ("max_target_positions", "max_position_embeddings"):
        found = getattr(config, name, None)
        if isinstance(found, int) and found > 0:
            return found
    return UNLIMITED
