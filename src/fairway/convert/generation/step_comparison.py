"""Every step compared: the token that the file chooses, and the logits that it chose from.

Truth is the model in float64 on the whole sequence at once. What the file may be off by is learnt from PyTorch, with
its cache and without. Where two tokens are closer than that, PyTorch's own choice hangs on rounding: a file that takes
the other one is undecided there, not wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch

from fairway.convert.generation.greedy import Player, Prompt, Told, generate, play
from fairway.convert.generation.wrappers import WholeSequences
from fairway.diagnostics import Finding
from fairway.judge.cells import bucket, collect
from fairway.judge.compare import Difference, measure
from fairway.judge.judge import tidy
from fairway.judge.runtimes.eager import nudged, run_eager, to_array
from fairway.judge.runtimes.liberties import PlainArithmetic
from fairway.judge.runtimes.truth import run_truth
from fairway.judge.yardstick import FACTOR, STATED, Real, Yardstick
from fairway.model.subject import Subject, build_subject

Choice = Literal["same", "undecided", "wrong"]
NUDGES = 3


@dataclass(frozen=True)
class ComparedStep:
    """One step of a batch. `margin` is the least lead of PyTorch's token over the next, `doubt` what rounding explains
    of it, `ratio` the logits' worst error in units of what is allowed."""

    number: int
    tokens: tuple[int, ...]
    file_tokens: tuple[int, ...]
    margin: float
    doubt: float
    ratio: float
    choice: Choice


@dataclass(frozen=True)
class Run:
    """One prompt or batch, step by step."""

    what: str
    lengths: tuple[int, ...]
    steps: tuple[ComparedStep, ...]
    yardstick: str
    findings: tuple[Finding, ...] = ()

    @property
    def wrong(self) -> bool:
        return any(f.severity == "error" for f in self.findings)

    @property
    def same(self) -> int:
        return sum(step.choice == "same" for step in self.steps)

    @property
    def distinct(self) -> int:
        """How many different tokens were generated; a sequence of one token over and over says little."""
        return len({token for step in self.steps for token in step.tokens})

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "distinct": self.distinct, "findings": [f.as_dict() for f in self.findings]}


def compare_steps(
    model: torch.nn.Module, player: Player, prompt: Prompt, steps: int, heard: Callable[[Any], None]
) -> Run:
    """Generates with both and compares every step."""
    told = generate(model, prompt, steps)
    scale = _Scale(model, prompt, told)
    try:
        theirs = to_array(play(player, prompt, told, heard)).astype(np.float64)
    except Exception as error:
        said = Finding("FW408", f"{prompt.what}: {tidy(str(error))}")
        return Run(prompt.what, prompt.lengths, (), scale.words(), (said,))
    ours = to_array(told.logits).astype(np.float64)
    found = measure("logits", scale.truth, ours, theirs)
    if isinstance(found, Difference):
        said = Finding(found.code, f"{prompt.what}: {found.text}")
        return Run(prompt.what, prompt.lengths, (), scale.words(), (said,))
    tolerance = scale.tolerance()
    if (_ratios(scale.truth, theirs, tolerance) > 1).any():
        tolerance = scale.tolerance(generously=True)
    ratios = _ratios(scale.truth, theirs, tolerance)
    taken = [_step(i, told, ours, theirs, tolerance, ratios) for i in range(steps)]
    since = next((step.number for step, *_ in taken if step.ratio > 1), None)
    findings = [_say_token(prompt, *one, since) for one in taken if one[0].choice == "wrong"][:1]
    if not findings and (ratios > 1).any():
        findings = [_say_logits(prompt, scale.truth, ours, theirs, ratios)]
    return Run(prompt.what, prompt.lengths, tuple(one[0] for one in taken), scale.words(), tuple(findings))


class _Scale:
    """The truth, and the yardstick learnt from PyTorch at the same tokens."""

    def __init__(self, model: torch.nn.Module, prompt: Prompt, told: Told) -> None:
        self._subject, self._tensors = _whole(model, prompt, told)
        self._steps = told.tokens.shape[1]
        self._ours = to_array(told.logits).astype(np.float64)
        self._again = self._cut(run_eager(self._subject, self._tensors))
        self._dtype = str(told.logits.dtype).removeprefix("torch.")
        self.reason = ""
        try:
            self.truth = self._cut(run_truth(self._subject, self._tensors))
        except Exception as error:
            self.reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            self.truth = self._ours

    def _cut(self, outputs: list[torch.Tensor]) -> Real:
        """The positions at which tokens were chosen."""
        return to_array(outputs[0][:, -self._steps :]).astype(np.float64)

    def tolerance(self, generously: bool = False) -> Real:
        """By element. Generously: PyTorch also with its weights nudged and its sums taken in plain order."""
        yardstick = Yardstick(self._dtype, not self.reason)
        if self.reason:
            yardstick.learn(collect(bucket(self.truth), np.zeros_like(self.truth)), 0.0)
            return yardstick.allow(bucket(self.truth))
        answers = [self._ours, self._again]
        if generously:
            with PlainArithmetic():
                answers.append(self._cut(run_eager(self._subject, self._tensors)))
            for seed in range(NUDGES):
                with nudged(self._subject.model, seed):
                    answers.append(self._cut(run_eager(self._subject, self._tensors)))
        largest = float(np.abs(self.truth).max(initial=0.0))
        for answer in answers:
            yardstick.learn(collect(bucket(self.truth), np.abs(answer - self.truth)), largest)
        return yardstick.allow(bucket(self.truth))

    def words(self) -> str:
        if self.reason:
            stated = STATED.get(self._dtype, STATED["float32"])
            return f"stated relative tolerance {stated:g}, since float64 does not run: {self.reason}"
        return f"error against float64 at most {FACTOR:g} times PyTorch's own"


def _whole(model: torch.nn.Module, prompt: Prompt, told: Told) -> tuple[Subject, list[torch.Tensor]]:
    """The sequence that PyTorch generated, without its last token, as one call."""
    ids = torch.cat([told.start, told.tokens[:, :-1]], 1)
    known: Any = model
    if known.config.is_encoder_decoder:
        inputs = {**prompt.inputs, "decoder_input_ids": ids}
    else:
        mask = torch.cat([prompt.inputs["attention_mask"], torch.ones_like(told.tokens[:, :-1])], 1)
        inputs = {"input_ids": ids, "attention_mask": mask}
        if "position_ids" in _parameters(known):
            inputs["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
    subject = build_subject(WholeSequences(model), inputs)
    return subject, list(inputs.values())


def _parameters(model: Any) -> set[str]:
    import inspect

    return set(inspect.signature(model.forward).parameters)


def _ratios(truth: Real, theirs: Real, tolerance: Real) -> Real:
    """By row and step: the worst error in units of what is allowed for the element.

    Where either is not finite, `measure` has seen already that both are alike.
    """
    with np.errstate(invalid="ignore"):
        error = np.nan_to_num(np.abs(theirs - truth), nan=0.0, posinf=0.0)
    worst: Real = (error / tolerance).max(-1)
    return worst


def _step(
    number: int, told: Told, ours: Real, theirs: Real, allowed: Real, ratios: Real
) -> tuple[ComparedStep, int, float, float]:
    """The step, and of its worst row the number, the lead of PyTorch's token over the file's, and what is explained."""
    legal = to_array(told.legal[:, number])
    own = np.where(legal, ours[:, number], -np.inf)
    tokens = to_array(told.tokens[:, number]).astype(np.int64)
    chosen = np.where(legal, theirs[:, number], -np.inf).argmax(-1)
    rows = np.arange(len(tokens))
    second = np.argsort(own, -1)[:, -2]
    rival = np.where(chosen == tokens, second, chosen)
    lead = own[rows, tokens] - own[rows, rival]
    doubt = allowed[rows, number, tokens] + allowed[rows, number, rival]
    differs = chosen != tokens
    unexplained = np.where(differs, lead - doubt, -np.inf)
    row = int(unexplained.argmax())
    choice: Choice = "same" if not differs.any() else "wrong" if unexplained[row] > 0 else "undecided"
    margins = own[rows, tokens] - own[rows, second]
    least = int(margins.argmin())
    step = ComparedStep(
        number=number,
        tokens=tuple(map(int, tokens)),
        file_tokens=tuple(map(int, chosen)),
        margin=float(margins[least]),
        doubt=float(doubt[least]),
        ratio=float(ratios[:, number].max()),
        choice=choice,
    )
    return step, row, float(lead[row]), float(doubt[row])


def _say_token(prompt: Prompt, step: ComparedStep, row: int, lead: float, doubt: float, since: int | None) -> Finding:
    """The first wrong token, and since when the logits are off: a token can be right by luck."""
    tokens = [step.tokens[row], step.file_tokens[row]]
    return Finding(
        "FW412",
        f"{prompt.what}: step {step.number}, row {row}: PyTorch chose token {tokens[0]}, the file {tokens[1]}; "
        f"PyTorch's leads by {lead:.3g}, rounding explains {doubt:.2g}"
        + ("" if since is None else f"; the logits are off from step {since} on"),
        data={"step": step.number, "row": row, "tokens": tokens, "margin": lead, "since": since},
    )


def _say_logits(prompt: Prompt, truth: Real, ours: Real, theirs: Real, ratios: Real) -> Finding:
    number = int(np.argmax(ratios.max(0) > 1))
    row = int(ratios[:, number].argmax())
    token = int(np.argmax(np.abs(theirs - truth)[row, number]))
    place = row, number, token
    return Finding(
        "FW401",
        f"{prompt.what}: step {number}, row {row}, token {token}: PyTorch {ours[place]:.7g}, file {theirs[place]:.7g}, "
        f"float64 truth {truth[place]:.7g}; {ratios[row, number]:.3g} times what is allowed",
        data={"step": number, "row": row, "token": token},
    )
