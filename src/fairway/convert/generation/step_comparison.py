"""Compares every step: the token that the file chooses, and the logits that it chooses from.

The truth is the model in float64 on the complete sequence at once. The allowed error is learned from PyTorch, with and
without its cache. If two tokens are closer than that, PyTorch's own choice depends on rounding: a file that takes the
other one is undecided at this step, not wrong.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import torch

from fairway.convert.generation.greedy import GeneratedTokens, Player, Prompt, follow_tokens, generate_tokens
from fairway.convert.generation.wrappers import TransformersModel, WholeSequences
from fairway.diagnostics import Code, Finding
from fairway.judge.cells import collect_cells, find_buckets
from fairway.judge.compare import Difference, measure_errors
from fairway.judge.judge import tidy_runtime_message
from fairway.judge.runtimes.eager import nudge_weights, run_eager, to_array
from fairway.judge.runtimes.liberties import PlainArithmetic
from fairway.judge.runtimes.truth import run_truth
from fairway.judge.yardstick import ERROR_FACTOR, STATED_TOLERANCES, FloatArray, Yardstick
from fairway.model.subject import Subject, build_subject
from fairway.record.progress import EventSink

TokenChoice = Literal["same", "undecided", "wrong"]
NUDGED_ANSWERS = 3


@dataclass(frozen=True)
class ComparedStep:
    """One step of a batch.

    `margin` is the smallest lead of PyTorch's token over the next, `doubt` the part of it that rounding explains, and
    `ratio` the largest error of the logits as a multiple of the allowed error.
    """

    number: int
    tokens: tuple[int, ...]
    file_tokens: tuple[int, ...]
    margin: float
    doubt: float
    ratio: float
    choice: TokenChoice


@dataclass(frozen=True)
class PromptRun:
    """One prompt or batch, step by step."""

    title: str
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
        """The number of different tokens that were generated; a sequence of one repeated token is weak evidence."""
        return len({token for step in self.steps for token in step.tokens})

    def as_dict(self) -> dict[str, object]:
        fields = asdict(self)
        title = fields.pop("title")
        findings = [finding.as_dict() for finding in self.findings]
        return {"what": title, **fields, "distinct": self.distinct, "findings": findings}


def compare_steps(model: torch.nn.Module, player: Player, prompt: Prompt, steps: int, on_event: EventSink) -> PromptRun:
    """Generate with PyTorch and with the files, and compare every step."""
    generated = generate_tokens(model, prompt, steps)
    scale = _LogitScale(model, prompt, generated)
    try:
        theirs = to_array(follow_tokens(player, prompt, generated, on_event)).astype(np.float64)
    except Exception as error:
        finding = Finding(Code.RUNTIME_FAILS, f"{prompt.title}: {tidy_runtime_message(str(error))}")
        return PromptRun(prompt.title, prompt.lengths, (), scale.describe(), (finding,))
    ours = to_array(generated.logits).astype(np.float64)
    difference = measure_errors("logits", scale.truth, ours, theirs)
    if isinstance(difference, Difference):
        finding = Finding(difference.code, f"{prompt.title}: {difference.text}")
        return PromptRun(prompt.title, prompt.lengths, (), scale.describe(), (finding,))
    tolerance = scale.tolerance()
    if (_compute_ratios(scale.truth, theirs, tolerance) > 1).any():
        tolerance = scale.tolerance(generously=True)
    ratios = _compute_ratios(scale.truth, theirs, tolerance)
    taken = [_compare_step(i, generated, ours, theirs, tolerance, ratios) for i in range(steps)]
    since = next((step.number for step, *_ in taken if step.ratio > 1), None)
    findings = [_report_token(prompt, *step, since) for step in taken if step[0].choice == "wrong"][:1]
    if not findings and (ratios > 1).any():
        findings = [_report_logits(prompt, scale.truth, ours, theirs, ratios)]
    return PromptRun(prompt.title, prompt.lengths, tuple(step[0] for step in taken), scale.describe(), tuple(findings))


class _LogitScale:
    """The truth, and the yardstick learned from PyTorch at the same tokens."""

    def __init__(self, model: torch.nn.Module, prompt: Prompt, generated: GeneratedTokens) -> None:
        self._subject, self._tensors = _build_full_call(model, prompt, generated)
        self._steps = generated.tokens.shape[1]
        self._ours = to_array(generated.logits).astype(np.float64)
        self._again = self._cut(run_eager(self._subject, self._tensors))
        self._dtype = str(generated.logits.dtype).removeprefix("torch.")
        self.reason = ""
        try:
            self.truth = self._cut(run_truth(self._subject, self._tensors))
        except Exception as error:
            self.reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            self.truth = self._ours

    def _cut(self, outputs: list[torch.Tensor]) -> FloatArray:
        """Return the outputs at the positions at which tokens were chosen."""
        return to_array(outputs[0][:, -self._steps :]).astype(np.float64)

    def tolerance(self, generously: bool = False) -> FloatArray:
        """Return each element's allowed error.

        With `generously`, it also covers PyTorch's results with nudged weights and with plain arithmetic.
        """
        yardstick = Yardstick(self._dtype, not self.reason)
        if self.reason:
            yardstick.learn(collect_cells(find_buckets(self.truth), np.zeros_like(self.truth)), 0.0)
            return yardstick.allow(find_buckets(self.truth))
        answers = [self._ours, self._again]
        if generously:
            with PlainArithmetic():
                answers.append(self._cut(run_eager(self._subject, self._tensors)))
            for seed in range(NUDGED_ANSWERS):
                with nudge_weights(self._subject.model, seed):
                    answers.append(self._cut(run_eager(self._subject, self._tensors)))
        largest = float(np.abs(self.truth).max(initial=0.0))
        for answer in answers:
            yardstick.learn(collect_cells(find_buckets(self.truth), np.abs(answer - self.truth)), largest)
        return yardstick.allow(find_buckets(self.truth))

    def describe(self) -> str:
        if self.reason:
            stated = STATED_TOLERANCES.get(self._dtype, STATED_TOLERANCES["float32"])
            return f"stated relative tolerance {stated:g}, since float64 does not run: {self.reason}"
        return f"error against float64 at most {ERROR_FACTOR:g} times PyTorch's own"


def _build_full_call(
    model: torch.nn.Module, prompt: Prompt, generated: GeneratedTokens
) -> tuple[Subject, list[torch.Tensor]]:
    """Return the sequence that PyTorch generated, without its last token, as one call."""
    ids = torch.cat([generated.start, generated.tokens[:, :-1]], 1)
    known: TransformersModel = model
    if known.config.is_encoder_decoder:
        inputs = {**prompt.inputs, "decoder_input_ids": ids}
    else:
        mask = torch.cat([prompt.inputs["attention_mask"], torch.ones_like(generated.tokens[:, :-1])], 1)
        inputs = {"input_ids": ids, "attention_mask": mask}
        if "position_ids" in _list_parameters(known):
            inputs["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
    subject = build_subject(WholeSequences(model), inputs)
    return subject, list(inputs.values())


def _list_parameters(model: TransformersModel) -> set[str]:
    import inspect

    return set(inspect.signature(model.forward).parameters)


def _compute_ratios(truth: FloatArray, theirs: FloatArray, tolerance: FloatArray) -> FloatArray:
    """Return the largest error by row and step, as a multiple of the error allowed for the element.

    If one side is not finite, `measure` has checked before that both are equal.
    """
    with np.errstate(invalid="ignore"):
        error = np.nan_to_num(np.abs(theirs - truth), nan=0.0, posinf=0.0)
    worst: FloatArray = (error / tolerance).max(-1)
    return worst


def _compare_step(
    number: int,
    generated: GeneratedTokens,
    ours: FloatArray,
    theirs: FloatArray,
    allowed: FloatArray,
    ratios: FloatArray,
) -> tuple[ComparedStep, int, float, float]:
    """Return the step, and the worst row with the lead of PyTorch's token there and the part that is explained."""
    legal = to_array(generated.legal[:, number])
    own = np.where(legal, ours[:, number], -np.inf)
    tokens = to_array(generated.tokens[:, number]).astype(np.int64)
    chosen = np.where(legal, theirs[:, number], -np.inf).argmax(-1)
    rows = np.arange(len(tokens))
    second = np.argsort(own, -1)[:, -2]
    rival = np.where(chosen == tokens, second, chosen)
    lead = own[rows, tokens] - own[rows, rival]
    doubt = allowed[rows, number, tokens] + allowed[rows, number, rival]
    differs = chosen != tokens
    unexplained = np.where(differs, lead - doubt, -np.inf)
    row = int(unexplained.argmax())
    choice: TokenChoice = "same" if not differs.any() else "wrong" if unexplained[row] > 0 else "undecided"
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


def _report_token(
    prompt: Prompt, step: ComparedStep, row: int, lead: float, doubt: float, since: int | None
) -> Finding:
    """Report the first wrong token, and the first step with wrong logits: a token can be right by luck."""
    tokens = [step.tokens[row], step.file_tokens[row]]
    return Finding(
        Code.TOKEN_DIFFERS,
        f"{prompt.title}: step {step.number}, row {row}: PyTorch chose token {tokens[0]}, the file {tokens[1]}; "
        f"PyTorch's leads by {lead:.3g}, rounding explains {doubt:.2g}"
        + ("" if since is None else f"; the logits are off from step {since} on"),
        data={"step": step.number, "row": row, "tokens": tokens, "margin": lead, "since": since},
    )


def _report_logits(
    prompt: Prompt, truth: FloatArray, ours: FloatArray, theirs: FloatArray, ratios: FloatArray
) -> Finding:
    """Report the largest error at the first step with wrong logits."""
    number = int(np.argmax(ratios.max(0) > 1))
    row = int(ratios[:, number].argmax())
    token = int(np.argmax(np.abs(theirs - truth)[row, number]))
    place = row, number, token
    return Finding(
        Code.NUMBERS_DIFFER,
        f"{prompt.title}: step {number}, row {row}, token {token}: "
        f"PyTorch {ours[place]:.7g}, file {theirs[place]:.7g}, float64 truth {truth[place]:.7g}; "
        f"{ratios[row, number]:.3g} times what is allowed",
        data={"step": number, "row": row, "token": token},
    )
