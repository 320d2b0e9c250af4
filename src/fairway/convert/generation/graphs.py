"""Plans the graphs of a generator, with the names and layout that optimum's ORTModel and onnxruntime-genai expect.

A decoder is one graph for prefill and decode. An encoder-decoder is three graphs: the encoder, the first step, which
makes the cache of both attentions, and the later steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from fairway.convert.generation.anatomy import Anatomy, Layer
from fairway.convert.generation.file_names import DECODER, ENCODER, FIRST, NEXT
from fairway.convert.generation.wrappers import CachedDecoder, Encoder, FirstStep, NextStep
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.model.subject import Subject, build_subject

Bounds = Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class GeneratorGraph:
    """One file: its name, the module it is captured from, and its inputs as spec lines."""

    file: str
    module: torch.nn.Module
    lines: tuple[str, ...]
    bounds: Bounds


def plan_graphs(model: torch.nn.Module, anatomy: Anatomy, given: Bounds) -> list[GeneratorGraph]:
    """Return every graph of the generator, with the given bounds, or default ones for the other dims."""
    if not anatomy.cross:
        module: torch.nn.Module = CachedDecoder(model)
        parts = [(DECODER, module, list(_declare_decoder(anatomy)), choose_default_bounds(anatomy))]
    else:
        first, after = (
            choose_default_bounds(anatomy),
            {**choose_default_bounds(anatomy), "past": (1, _find_longest_past(anatomy))},
        )
        parts = [
            (ENCODER, Encoder(model), list(_declare_encoder(anatomy)), first),
            (FIRST, FirstStep(model), list(_declare_first_step(anatomy)), first),
            (NEXT, NextStep(model, anatomy.hidden), list(_declare_next_step(anatomy)), after),
        ]
    planned = []
    used: set[str] = set()
    for file, part, lines, chosen in parts:
        dims = {name for name in chosen if any(_has_dim(line, name) for line in lines)}
        used |= dims
        planned.append(
            GeneratorGraph(file, part, tuple(lines), {n: given.get(n, chosen[n]) for n in chosen if n in dims})
        )
    for name in given:
        if name not in used:
            raise complain(
                Code.UNKNOWN_DIM, f"{name!r} is not a dim of any input; the dims are: {', '.join(sorted(used))}"
            )
    return planned


def build_graph_subject(graph: GeneratorGraph, name: str) -> Subject:
    return build_subject(graph.module, list(graph.lines), bounds=graph.bounds, name=name)


def choose_default_bounds(anatomy: Anatomy) -> dict[str, tuple[int, int]]:
    """Return bounds within the context that are quick to test."""
    seq = max(1, min(32, anatomy.context // 4))
    return {
        "batch": (1, 4),
        "source": (1, anatomy.states or seq),
        "past": (0, _find_longest_past(anatomy)),
        "seq": (1, seq),
    }


def _find_longest_past(anatomy: Anatomy) -> int:
    return max(1, min(64, anatomy.context - max(1, min(32, anatomy.context // 4))))


def _has_dim(line: str, dim: str) -> bool:
    shape = line[line.index("[") + 1 : line.index("]")]
    return dim in shape.replace("+", ",").replace(" ", "").split(",")


def _declare_decoder(anatomy: Anatomy) -> Iterator[str]:
    yield f"input_ids: int64[batch, seq] < {anatomy.vocabulary}"
    yield "attention_mask: int64[batch, past+seq] = keep"
    if anatomy.positions:
        yield f"position_ids: int64[batch, seq] < {anatomy.context}"
    yield from _declare_cache("past_key_values.{}", anatomy.layers, anatomy.dtype, "past")


def _declare_encoder(anatomy: Anatomy) -> Iterator[str]:
    if anatomy.features is not None:
        yield f"input_features: {anatomy.dtype}[batch, {anatomy.features[0]}, {anatomy.features[1]}]"
    else:
        yield f"input_ids: int64[batch, source] < {anatomy.vocabulary}"
        yield "attention_mask: int64[batch, source] = keep"


def _declare_mask(anatomy: Anatomy) -> Iterator[str]:
    if anatomy.features is None:
        yield "encoder_attention_mask: int64[batch, source] = keep"


def _declare_first_step(anatomy: Anatomy) -> Iterator[str]:
    yield from _declare_mask(anatomy)
    yield f"input_ids: int64[batch, seq] < {anatomy.vocabulary}"
    yield f"encoder_hidden_states: {anatomy.dtype}[batch, source, {anatomy.hidden}]"


def _declare_next_step(anatomy: Anatomy) -> Iterator[str]:
    yield from _declare_mask(anatomy)
    yield f"input_ids: int64[batch, seq] < {anatomy.vocabulary}"
    pairs = zip(anatomy.layers, anatomy.cross, strict=True)
    for i, (own, cross) in enumerate(pairs):
        yield from _declare_cache(f"past_key_values.{i}.decoder", [own], anatomy.dtype, "past")
        yield from _declare_cache(f"past_key_values.{i}.encoder", [cross], anatomy.dtype, "source")


def _declare_cache(name: str, layers: Sequence[Layer], dtype: str, length: str) -> Iterator[str]:
    for i, layer in enumerate(layers):
        yield f"{name.format(i)}.key: {dtype}[batch, {layer.heads}, {length}, {layer.key}]"
        yield f"{name.format(i)}.value: {dtype}[batch, {layer.heads}, {length}, {layer.value}]"
