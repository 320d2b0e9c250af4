"""Every model type in transformers' registry, built from its config at a tiny size, with random weights."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import settled
import torch
from case import Case, stirred
from check import call
from draw import draw
from tiny import WORDS, tinies
from torch import nn
from torchvision_names import declare_operators
from transformers.models.auto import modeling_auto as auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

declare_operators()

_HEADS = (
    ("encoder-decoder", "SEQ_TO_SEQ_CAUSAL_LM"),
    ("encoder", "MASKED_LM"),
    ("decoder", "CAUSAL_LM"),
    ("multimodal", "IMAGE_TEXT_TO_TEXT"),
    ("multimodal", "MULTIMODAL_LM"),
    ("speech", "SPEECH_SEQ_2_SEQ"),
    ("speech", "CTC"),
    ("speech", "AUDIO_CLASSIFICATION"),
    ("vision", "IMAGE_CLASSIFICATION"),
    ("vision", "VIDEO_CLASSIFICATION"),
    ("vision", "OBJECT_DETECTION"),
    ("vision", "SEMANTIC_SEGMENTATION"),
    ("vision", "DEPTH_ESTIMATION"),
)
"""The class taken for a type is the first of these that it has, else its bare model."""

PREFIX = "arch/"
LARGEST = 40_000_000
"""Parameters: more is not a tiny model, whatever the config was asked for."""

Inputs = tuple[list[str], dict[str, tuple[int, int]]]


def names() -> list[str]:
    every = dict.fromkeys(kind for table in (*_tables(), auto.MODEL_MAPPING_NAMES) for kind in table)
    return [PREFIX + kind for kind in sorted(every)]


def find(name: str) -> Case:
    """The case of one model type. What keeps it from being built is raised, and is the reason for skipping it."""
    model_type = name.removeprefix(PREFIX)
    family, kind = find_class(model_type)
    first: Exception | None = None
    candidates = chain(
        settled.cases(name, model_type, family, _built),
        _candidates(name, family, kind, CONFIG_MAPPING[model_type]),
    )
    for case in candidates:
        try:
            _try(case)
        except Exception as error:
            first = first or error
        else:
            return case
    raise first or LookupError(f"its first input is {kind.main_input_name}, which the corpus does not know how to draw")


def _built(kind: Any, config: Any) -> nn.Module:
    torch.manual_seed(0)
    return stirred(kind(config).eval())


def _try(case: Case) -> None:
    model = case.build()
    size = sum(p.numel() for p in model.parameters())
    if size > LARGEST:
        raise LookupError(f"it has {size / 1e6:.0f} million parameters, however its config is shrunk")
    for place in (0, 1):
        sizes = {name: ends[place] for name, ends in case.bounds.items()}
        call(model, draw(case, sizes, 1)[1])


def find_class(model_type: str) -> tuple[str, Any]:
    import transformers

    for (family, _), table in zip(_HEADS, _tables(), strict=True):
        if model_type in table:
            return family, getattr(transformers, _first(table[model_type]))
    return "bare", getattr(transformers, _first(auto.MODEL_MAPPING_NAMES[model_type]))


def _tables() -> list[Mapping[str, Any]]:
    """The registry's tables by head; an older transformers lacks some of them."""
    return [getattr(auto, f"MODEL_FOR_{head}_MAPPING_NAMES", {}) for _, head in _HEADS]


def _first(named: Any) -> str:
    return str(named[0] if isinstance(named, list | tuple) else named)


def _candidates(name: str, family: str, kind: Any, config_kind: type) -> Iterator[Case]:
    for config in tinies(config_kind):

        def build(config: Any = config) -> nn.Module:
            return _built(kind, config)

        for lines, bounds in _inputs(kind, config):
            yield Case(name, family, build, tuple(lines), bounds)


def _inputs(kind: Any, config: Any) -> Iterator[Inputs]:
    """Ways to call the model, by the names of forward's parameters; the plainest first."""
    taken = inspect.signature(kind.forward).parameters
    text = _text(config, taken)
    pictures = _pixels(config) if "pixel_values" in taken else []
    batch = {"batch": (1, 4)}
    if text and kind.main_input_name != "pixel_values":
        yield text[0], {**batch, **text[1]}
    for picture in pictures:
        if text:
            yield [*text[0], picture], {**batch, **text[1]}
        yield [picture], batch
    if "input_values" in taken:
        yield ["input_values: float32[batch, time]"], {**batch, "time": (1000, 1800)}
    if "input_features" in taken:
        yield from _spectrograms(config, text)


def _text(config: Any, taken: Mapping[str, Any]) -> Inputs | None:
    vocabulary = getattr(config.get_text_config(), "vocab_size", None) or WORDS
    words = min(WORDS, vocabulary)
    lines, bounds = [], {}
    if "input_ids" in taken:
        lines.append(f"input_ids: int64[batch, seq] < {words}")
        bounds["seq"] = (2, 24)
        if "attention_mask" in taken:
            lines.append("attention_mask: int64[batch, seq] = keep")
    if "decoder_input_ids" in taken:
        lines.append(f"decoder_input_ids: int64[batch, target] < {words}")
        bounds["target"] = (2, 9)
    return (lines, bounds) if lines else None


def _pixels(config: Any) -> list[str]:
    """One picture for each row of the batch; bare video models take several frames."""
    vision = getattr(config, "vision_config", None) or config
    side = getattr(vision, "image_size", None) or 64
    high, wide = (side, side) if isinstance(side, int) else side[-2:]
    channels = getattr(vision, "num_channels", 3)
    frames = getattr(vision, "num_frames", None)
    middle = [f"{channels}, {high}, {wide}"]
    if isinstance(frames, int):
        middle.append(f"{frames}, {channels}, {high}, {wide}")
    return [f"pixel_values: float32[batch, {one}]" for one in middle]


def _spectrograms(config: Any, text: Inputs | None) -> Iterator[Inputs]:
    """Frames first or bins first; some encoders take one length only."""
    audio = next((p for n in ("encoder_config", "audio_config") if (p := getattr(config, n, None)) is not None), config)
    bins = next(
        (
            n
            for name in ("num_mel_bins", "input_dim", "feature_size", "input_feat_size")
            if isinstance(n := getattr(audio, name, None), int)
        ),
        16,
    )
    lines, bounds = text or ([], {})
    longest = 2 * (getattr(audio, "max_source_positions", None) or 128)
    for shape, more in (
        (f"time, {bins}", {"time": (16, 64)}),
        (f"{bins}, time", {"time": (16, 64)}),
        (f"{bins}, {longest}", {}),
        (f"{longest}, {bins}", {}),
    ):
        spectrogram = f"input_features: float32[batch, {shape}]"
        yield [spectrogram, *lines], {"batch": (1, 4), **more, **bounds}
