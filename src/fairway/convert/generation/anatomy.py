"""The anatomy of a generator: the inputs and outputs of its graphs.

The model is run on a few tokens, and the cache that it returns shows the number of layers and the widths of their keys
and values. Models that do not generate from text, or from speech of one length, are refused, and so are caches with
anything but keys and values.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass

import torch

from fairway.convert.generation.wrappers import TransformersCache, TransformersModel
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.judge.runtimes.eager import disable_compilation

DEFAULT_CONTEXT_TOKENS = 2048
"""Tokens in a context if the model states no limit, as with relative positions."""

PROBE_TOKENS = 3
"""Tokens of the run that shows the cache."""


@dataclass(frozen=True)
class Layer:
    """One layer's cache: the number of heads, and the widths of keys and values."""

    heads: int
    key: int
    value: int


@dataclass(frozen=True)
class Anatomy:
    """The properties of a generator. With `cross` it is an encoder-decoder, with `features` its input is speech."""

    layers: tuple[Layer, ...]
    cross: tuple[Layer, ...]
    """The cross-attention's cache, layer by layer; empty for a plain decoder."""
    dtype: str
    vocabulary: int
    context: int
    positions: bool
    """True if forward takes position_ids."""
    hidden: int = 0
    """Width of the encoder's states."""
    features: tuple[int, int] | None = None
    """Bands and frames of the speech that the encoder takes, which is of one length."""
    states: int = 0
    """The number of states that the encoder computes from such speech."""


def examine_generator(model: torch.nn.Module) -> Anatomy:
    """Run the model once and return its anatomy; refuse models without a plain cache of keys and values."""
    _refuse_other_models(model)
    known: TransformersModel = model
    config = known.config
    if config.is_encoder_decoder:
        features = _read_features(known)
        with torch.no_grad(), disable_compilation():
            source = (
                torch.zeros(1, *features, dtype=known.dtype)
                if features
                else torch.ones(1, PROBE_TOKENS, dtype=torch.long)
            )
            ids = torch.ones(1, PROBE_TOKENS, dtype=torch.long)
            out = known(source, decoder_input_ids=ids, use_cache=True, return_dict=True)
        cache = out.get("past_key_values")
        own, cross = getattr(cache, "self_attention_cache", cache), getattr(cache, "cross_attention_cache", None)
        layers, crossed = _read_layers(known, own), _read_layers(known, cross)
        states, hidden = map(int, out.encoder_last_hidden_state.shape[1:])
    else:
        features, crossed, hidden, states = None, (), 0, 0
        with torch.no_grad(), disable_compilation():
            out = known(torch.ones(1, PROBE_TOKENS, dtype=torch.long), use_cache=True, return_dict=True)
        layers = _read_layers(known, out.get("past_key_values"))
    return Anatomy(
        layers=layers,
        cross=crossed,
        dtype=str(known.dtype).removeprefix("torch."),
        vocabulary=int(config.get_text_config(decoder=True).vocab_size),
        context=_read_context(config),
        positions=not crossed and "position_ids" in inspect.signature(known.forward).parameters,
        hidden=hidden,
        features=features,
        states=states if features else 0,
    )


def _refuse_other_models(model: torch.nn.Module) -> None:
    kind = type(model).__name__
    library = sys.modules.get("transformers.modeling_utils")
    if library is None or not isinstance(model, library.PreTrainedModel):
        raise complain(Code.NOT_A_GENERATOR, f"expected a model of transformers, got {kind}")
    known: TransformersModel = model
    if not known.can_generate():
        raise complain(
            Code.NOT_A_GENERATOR, f"{kind} has no `generate`; a …ForCausalLM or …ForConditionalGeneration has"
        )
    if known.config.get_text_config(decoder=True) is not known.config and not known.config.is_encoder_decoder:
        raise complain(
            Code.NOT_A_GENERATOR, f"expected a model of text alone, got {kind}, which also takes images or sound"
        )


def _read_features(model: TransformersModel) -> tuple[int, int] | None:
    """Return bands and frames for speech of the length that the encoder fixes, like Whisper's, or None for text."""
    if model.main_input_name == "input_ids":
        return None
    encoder = model.get_encoder()
    known = all(hasattr(encoder, name) for name in ("conv1", "conv2", "max_source_positions"))
    if model.main_input_name != "input_features" or not known:
        name = type(model).__name__
        raise complain(
            Code.NOT_A_GENERATOR,
            f"expected a model of text or fixed-length speech; {name} takes {model.main_input_name}",
        )
    frames = int(encoder.max_source_positions) * int(encoder.conv1.stride[0]) * int(encoder.conv2.stride[0])
    return int(model.config.num_mel_bins), frames


def _read_layers(model: TransformersModel, cache: TransformersCache) -> tuple[Layer, ...]:
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    name = type(model).__name__
    layers = getattr(cache, "layers", None)
    if not layers:
        kind = "no past_key_values" if cache is None else f"a {type(cache).__name__}"
        raise complain(Code.CACHE_NOT_KEY_VALUE, f"expected a cache with a list of layers; {name} returns {kind}")
    # Compared by exact type: subclasses have more state.
    other = [
        (i, type(layer).__name__)
        for i, layer in enumerate(layers)
        if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer)
    ]
    if other:
        place, kind = other[0]
        raise complain(
            Code.CACHE_NOT_KEY_VALUE,
            f"{len(other)} of {len(layers)} layers of {name} keep another state, first layer {place}: {kind}",
        )
    empty = [i for i, layer in enumerate(layers) if not layer.is_initialized]
    if empty:
        raise complain(
            Code.CACHE_NOT_KEY_VALUE, f"layer {empty[0]} of {name} keeps nothing: it shares another layer's cache"
        )
    return tuple(Layer(x.keys.shape[1], x.keys.shape[3], x.values.shape[3]) for x in layers)


def _read_context(config: TransformersModel) -> int:
    for name in ("max_target_positions", "max_position_embeddings"):
        tokens = getattr(config, name, None)
        if isinstance(tokens, int) and tokens > 0:
            return tokens
    return DEFAULT_CONTEXT_TOKENS
