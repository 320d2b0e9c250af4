"""Greedy generation twice: by PyTorch's `generate`, and by the delivered files in ONNX Runtime.

The files are led: at each step they are given the token that PyTorch chose, with the cache that they made themselves.
So one step that goes astray, or a near tie, does not spoil the comparison of those after it. As long as every step
agrees, being led and walking alone are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fairway.convert.generation.anatomy import Anatomy
from fairway.convert.generation.file_names import DECODER, ENCODER, FIRST, NEXT
from fairway.judge.runtimes.eager import uncompiled
from fairway.judge.runtimes.ort import OrtSession

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Prompt:
    """A batch to start from: `input_ids` and `attention_mask`, or `input_features`."""

    what: str
    inputs: Tensors
    lengths: tuple[int, ...]

    @property
    def batch(self) -> int:
        return len(self.lengths)


@dataclass(frozen=True)
class Told:
    """What PyTorch generated: tokens [batch, steps], logits [batch, steps, vocabulary], and which tokens it could take.

    The end of the sequence is forbidden, so that there are as many steps as were asked for.
    """

    start: torch.Tensor
    tokens: torch.Tensor
    logits: torch.Tensor
    legal: torch.Tensor


def generate(model: torch.nn.Module, prompt: Prompt, steps: int) -> Told:
    """transformers' own greedy search, without the penalties and forced tokens of a checkpoint's settings.

    `GenerationMixin.generate` is called by name: Whisper's own cuts speech into pieces and tries some of them again.
    """
    from transformers import GenerationMixin

    known: Any = model
    with _plain_settings(known), torch.no_grad(), uncompiled():
        out: Any = GenerationMixin.generate(
            known,
            **prompt.inputs,
            do_sample=False,
            num_beams=1,
            max_new_tokens=steps,
            min_new_tokens=steps,
            use_cache=True,
            output_logits=True,
            output_scores=True,
            return_dict_in_generate=True,
        )
    logits, scores = torch.stack(out.logits, 1), torch.stack(out.scores, 1)
    tokens = out.sequences[:, -steps:]
    return Told(out.sequences[:, :-steps], tokens, logits, torch.isfinite(scores))


@contextmanager
def _plain_settings(model: Any) -> Iterator[None]:
    from transformers import GenerationConfig

    kept = model.generation_config
    ids = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
    plain = GenerationConfig(**{name: getattr(kept, name, None) for name in ids})
    if plain.pad_token_id is None:
        plain.pad_token_id = 0  # only ever written where the mask says padding
    model.generation_config = plain
    try:
        yield
    finally:
        model.generation_config = kept


class Player:
    """The delivered files as one generator: `start` takes the prompt, `follow` one token per row; both give logits."""

    def __init__(self, folder: Path, anatomy: Anatomy) -> None:
        names = (ENCODER, FIRST, NEXT) if anatomy.cross else (DECODER,)
        self._sessions = {name: OrtSession(folder / name) for name in names}
        self._anatomy = anatomy
        self._given: dict[str, torch.Tensor] = {}
        self.cache: dict[str, torch.Tensor] = {}
        """By the name of the input that it goes to next."""

    def start(self, prompt: Prompt, first: torch.Tensor) -> torch.Tensor:
        """Logits after the prompt; `first` are the tokens that the decoder starts with."""
        if self._anatomy.cross:
            states = self._run(ENCODER, dict(prompt.inputs))["last_hidden_state"]
            mask = prompt.inputs.get("attention_mask")
            self._given = {} if mask is None else {"encoder_attention_mask": mask}
            return self._step(FIRST, {"input_ids": first, "encoder_hidden_states": states, **self._given})
        mask = prompt.inputs["attention_mask"]
        self._given = {"attention_mask": mask, "position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
        dtype = getattr(torch, self._anatomy.dtype)
        for i, layer in enumerate(self._anatomy.layers):
            for what, width in (("key", layer.key), ("value", layer.value)):
                empty = torch.zeros(prompt.batch, layer.heads, 0, width, dtype=dtype)
                self.cache[f"past_key_values.{i}.{what}"] = empty
        return self._step(DECODER, {"input_ids": first, **self._given, **self.cache})

    def follow(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits after one more token in each row."""
        ids = tokens[:, None]
        if self._anatomy.cross:
            return self._step(NEXT, {"input_ids": ids, **self._given, **self.cache})
        mask = self._given["attention_mask"]
        self._given = {
            "attention_mask": torch.cat([mask, torch.ones_like(ids)], 1),
            "position_ids": self._given["position_ids"][:, -1:] + 1,
        }
        return self._step(DECODER, {"input_ids": ids, **self._given, **self.cache})

    def _step(self, file: str, feeds: Tensors) -> torch.Tensor:
        out = self._run(file, feeds)
        for name, tensor in out.items():
            if name.startswith("present."):
                self.cache[name.replace("present", "past_key_values", 1)] = tensor
        return out["logits"][:, -1]

    def _run(self, file: str, feeds: Tensors) -> dict[str, torch.Tensor]:
        session = self._sessions[file]
        got = session.run(session.input_names, [feeds[name] for name in session.input_names])
        # A copy: ONNX Runtime may hand out memory of its own.
        return {name: torch.from_numpy(np.array(one)) for name, one in zip(session.output_names, got, strict=True)}


def play(player: Player, prompt: Prompt, told: Told, heard: Callable[[Any], None]) -> torch.Tensor:
    """The files' logits [batch, steps, vocabulary], led by PyTorch's tokens."""
    logits = [player.start(prompt, told.start)]
    for step in range(1, told.tokens.shape[1]):
        heard(("count", step, told.tokens.shape[1], "steps", prompt.what))
        logits.append(player.follow(told.tokens[:, step - 1]))
    return torch.stack(logits, 1)


def make_prompts(
    anatomy: Anatomy, rows: Sequence[Sequence[int]] | None, longest: int, padding: int, seed: int = 1
) -> tuple[Prompt, Prompt]:
    """One prompt alone, and a batch of prompts of different lengths: the rows given, else random ones.

    A decoder's prompts are padded on the left, an encoder's on the right, as tokenizers do it. Speech has one length.
    """
    generator = torch.Generator().manual_seed(seed)
    if anatomy.features is not None:
        speech = torch.randn(3, *anatomy.features, generator=generator).to(getattr(torch, anatomy.dtype))
        one, three = (anatomy.features[1],), (anatomy.features[1],) * 3
        return (
            Prompt("one recording", {"input_features": speech[:1]}, one),
            Prompt("three recordings", {"input_features": speech}, three),
        )
    if rows is None:
        lengths = [max(1, longest * share // 4) for share in (3, 1, 4)]
        rows = [torch.randint(0, anatomy.vocabulary, (n,), generator=generator).tolist() for n in lengths]
    side = "right" if anatomy.cross else "left"
    spread = f"{min(map(len, rows))} to {max(map(len, rows))}"
    return (
        _padded(f"one prompt of {len(rows[0])} tokens", rows[:1], side, padding),
        _padded(f"{len(rows)} prompts of {spread} tokens, padded on the {side}", rows, side, padding),
    )


def _padded(what: str, rows: Sequence[Sequence[int]], side: str, padding: int) -> Prompt:
    width = max(map(len, rows))
    ids = torch.full((len(rows), width), padding)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    for i, row in enumerate(rows):
        place = slice(width - len(row), width) if side == "left" else slice(0, len(row))
        ids[i, place], mask[i, place] = torch.tensor(row), 1
    return Prompt(what, {"input_ids": ids, "attention_mask": mask}, tuple(map(len, rows)))
