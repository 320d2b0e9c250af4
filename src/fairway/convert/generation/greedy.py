"""Generates greedily with PyTorch's `generate`, and with the exported files in ONNX Runtime.

At each step the files get the token that PyTorch chose, and the cache that they made themselves. So one wrong step, or
a near tie, does not affect the comparison of later steps. As long as every step agrees, this equals free generation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fairway.convert.generation.anatomy import Anatomy
from fairway.convert.generation.file_names import DECODER, ENCODER, FIRST, NEXT
from fairway.convert.generation.wrappers import TransformersModel
from fairway.judge.runtimes.eager import disable_compilation
from fairway.judge.runtimes.ort import OrtSession
from fairway.model.tree import Tree
from fairway.record.progress import EventSink, ItemsCounted

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Prompt:
    """A batch to start with: `input_ids` and `attention_mask`, or `input_features`."""

    title: str
    inputs: Tensors
    lengths: tuple[int, ...]

    @property
    def batch(self) -> int:
        return len(self.lengths)


@dataclass(frozen=True)
class GeneratedTokens:
    """PyTorch's result: tokens [batch, steps], logits [batch, steps, vocabulary], and the tokens that were allowed.

    The end of the sequence is forbidden, so that all requested steps are generated.
    """

    start: torch.Tensor
    tokens: torch.Tensor
    logits: torch.Tensor
    legal: torch.Tensor


def generate_tokens(model: torch.nn.Module, prompt: Prompt, steps: int) -> GeneratedTokens:
    """Run transformers' greedy search, without the penalties and forced tokens of a checkpoint's settings.

    `GenerationMixin.generate` is called directly: Whisper's own method splits speech and retries some parts.
    """
    from transformers import GenerationMixin

    known: TransformersModel = model
    with _use_plain_settings(known), torch.no_grad(), disable_compilation():
        out: Tree = GenerationMixin.generate(
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
    return GeneratedTokens(out.sequences[:, :-steps], tokens, logits, torch.isfinite(scores))


@contextmanager
def _use_plain_settings(model: TransformersModel) -> Iterator[None]:
    from transformers import GenerationConfig

    kept = model.generation_config
    ids = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
    plain = GenerationConfig(**{name: getattr(kept, name, None) for name in ids})
    if plain.pad_token_id is None:
        plain.pad_token_id = 0  # written only where the mask marks padding
    model.generation_config = plain
    try:
        yield
    finally:
        model.generation_config = kept


class Player:
    """The exported files as one generator. `start` takes the prompt, `follow` one token per row; both return logits."""

    def __init__(self, folder: Path, anatomy: Anatomy) -> None:
        names = (ENCODER, FIRST, NEXT) if anatomy.cross else (DECODER,)
        self._sessions = {name: OrtSession(folder / name) for name in names}
        self._anatomy = anatomy
        self._extras: dict[str, torch.Tensor] = {}
        """The mask and the positions."""
        self.cache: dict[str, torch.Tensor] = {}
        """The cache by the names of the inputs that take it at the next step."""

    def start(self, prompt: Prompt, first: torch.Tensor) -> torch.Tensor:
        """Return the logits after the prompt; `first` are the tokens that the decoder starts with."""
        if self._anatomy.cross:
            states = self._run(ENCODER, dict(prompt.inputs))["last_hidden_state"]
            mask = prompt.inputs.get("attention_mask")
            self._extras = {} if mask is None else {"encoder_attention_mask": mask}
            return self._step(FIRST, {"input_ids": first, "encoder_hidden_states": states, **self._extras})
        mask = prompt.inputs["attention_mask"]
        self._extras = {"attention_mask": mask, "position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
        dtype = getattr(torch, self._anatomy.dtype)
        for i, layer in enumerate(self._anatomy.layers):
            for part, width in (("key", layer.key), ("value", layer.value)):
                empty = torch.zeros(prompt.batch, layer.heads, 0, width, dtype=dtype)
                self.cache[f"past_key_values.{i}.{part}"] = empty
        return self._step(DECODER, {"input_ids": first, **self._extras, **self.cache})

    def follow(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits after one more token in each row."""
        ids = tokens[:, None]
        if self._anatomy.cross:
            return self._step(NEXT, {"input_ids": ids, **self._extras, **self.cache})
        mask = self._extras["attention_mask"]
        self._extras = {
            "attention_mask": torch.cat([mask, torch.ones_like(ids)], 1),
            "position_ids": self._extras["position_ids"][:, -1:] + 1,
        }
        return self._step(DECODER, {"input_ids": ids, **self._extras, **self.cache})

    def _step(self, file: str, feeds: Tensors) -> torch.Tensor:
        out = self._run(file, feeds)
        for name, tensor in out.items():
            if name.startswith("present."):
                self.cache[name.replace("present", "past_key_values", 1)] = tensor
        return out["logits"][:, -1]

    def _run(self, file: str, feeds: Tensors) -> dict[str, torch.Tensor]:
        session = self._sessions[file]
        outputs = session.run(session.input_names, [feeds[name] for name in session.input_names])
        # Copied, since ONNX Runtime may return its own memory.
        pairs = zip(session.output_names, outputs, strict=True)
        return {name: torch.from_numpy(np.array(output)) for name, output in pairs}


def follow_tokens(player: Player, prompt: Prompt, generated: GeneratedTokens, on_event: EventSink) -> torch.Tensor:
    """Return the files' logits [batch, steps, vocabulary] for PyTorch's tokens."""
    logits = [player.start(prompt, generated.start)]
    for step in range(1, generated.tokens.shape[1]):
        on_event(ItemsCounted(step, generated.tokens.shape[1], "steps", prompt.title))
        logits.append(player.follow(generated.tokens[:, step - 1]))
    return torch.stack(logits, 1)


def make_prompts(
    anatomy: Anatomy, rows: Sequence[Sequence[int]] | None, longest: int, padding: int, seed: int = 1
) -> tuple[Prompt, Prompt]:
    """Return one prompt alone, and a batch of prompts of different lengths: the user's, or random ones.

    A decoder's prompts are padded on the left, an encoder's on the right, like tokenizers do. Speech has one length.
    """
    generator = torch.Generator().manual_seed(seed)
    if anatomy.features is not None:
        speech = torch.randn(3, *anatomy.features, generator=generator).to(getattr(torch, anatomy.dtype))
        frames = anatomy.features[1]
        return (
            Prompt("one recording", {"input_features": speech[:1]}, (frames,)),
            Prompt("three recordings", {"input_features": speech}, (frames,) * 3),
        )
    if rows is None:
        lengths = [max(1, longest * share // 4) for share in (3, 1, 4)]
        rows = [torch.randint(0, anatomy.vocabulary, (n,), generator=generator).tolist() for n in lengths]
    side = "right" if anatomy.cross else "left"
    spread = f"{min(map(len, rows))} to {max(map(len, rows))}"
    return (
        _pad_prompt(f"one prompt of {len(rows[0])} tokens", rows[:1], side, padding),
        _pad_prompt(f"{len(rows)} prompts of {spread} tokens, padded on the {side}", rows, side, padding),
    )


def _pad_prompt(title: str, rows: Sequence[Sequence[int]], side: str, padding: int) -> Prompt:
    width = max(map(len, rows))
    ids = torch.full((len(rows), width), padding)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    for i, row in enumerate(rows):
        place = slice(width - len(row), width) if side == "left" else slice(0, len(row))
        ids[i, place], mask[i, place] = torch.tensor(row), 1
    return Prompt(title, {"input_ids": ids, "attention_mask": mask}, tuple(map(len, rows)))
