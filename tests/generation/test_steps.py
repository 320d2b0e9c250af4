"""The comparison of steps finds a wrong cache, position or mask, and accepts a near tie."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fairway.convert.generation import step_comparison as stepping
from fairway.convert.generation.anatomy import Anatomy, examine_generator
from fairway.convert.generation.greedy import GeneratedTokens, Player, Prompt, make_prompts
from fairway.convert.generation.step_comparison import PromptRun, compare_steps
from fairway.diagnostics import Finding

from . import generators
from .conftest import Exported

Export = Callable[[str], Exported]
AT = 5


class ChangedPlayer(Player):
    """Plays as the files do, but for one change before step AT."""

    def __init__(self, folder: Path, anatomy: Anatomy, change: Callable[[Player], None]) -> None:
        super().__init__(folder, anatomy)
        self.change, self.step = change, 0

    def follow(self, tokens: torch.Tensor) -> torch.Tensor:
        self.step += 1
        if self.step == AT:
            self.change(self)
        return super().follow(tokens)


def corrupt_one_entry(player: Player) -> None:
    player.cache["past_key_values.1.value"][0, 0, -1, 1] += 1.0


def swap_two_rows(player: Player) -> None:
    for name, tensor in player.cache.items():
        player.cache[name] = tensor.flip(0)


def forget_the_last_token(player: Player) -> None:
    player._extras["attention_mask"][:, -1] = 0


def shift_positions(player: Player) -> None:
    player._extras["position_ids"] = player._extras["position_ids"] + 3


def compare(mistral: Exported, change: Callable[[Player], None] | None, batch: int = 1) -> PromptRun:
    anatomy = examine_generator(mistral.model)
    player = Player(mistral.folder, anatomy) if change is None else ChangedPlayer(mistral.folder, anatomy, change)
    prompt = make_prompts(anatomy, None, 12, 0)[batch]
    return compare_steps(mistral.model, player, prompt, 10, lambda event: None)


@pytest.mark.slow
@pytest.mark.parametrize("change", [corrupt_one_entry, swap_two_rows, forget_the_last_token, shift_positions])
def test_a_cache_gone_wrong_is_caught_at_its_step(change: Any, exported: Export) -> None:
    run = compare(exported("mistral"), change)
    assert run.wrong
    (finding,) = run.findings
    assert finding.code in ("FW412", "FW401")
    assert all(step.choice == "same" and step.ratio <= 1 for step in run.steps[:AT])
    assert run.steps[AT].ratio > 1
    assert finding.data["step"] >= AT
    assert finding.data.get("since", AT) == AT


@pytest.mark.slow
def test_the_same_player_without_a_change_is_right(exported: Export) -> None:
    run = compare(exported("mistral"), None)
    assert run.findings == ()
    assert run.same == 10


@pytest.mark.slow
def test_a_file_that_does_not_run_is_a_finding(exported: Export) -> None:
    def cut(player: Player) -> None:
        player.cache["past_key_values.0.key"] = player.cache["past_key_values.0.key"][:, :, :2]

    run = compare(exported("mistral"), cut)
    assert [f.code for f in run.findings] == ["FW408"]


def make_generated(ours: list[float], token: int) -> tuple[GeneratedTokens, np.ndarray[Any, Any]]:
    logits = torch.tensor([[ours]])
    tokens = torch.tensor([[token]])
    return GeneratedTokens(tokens, tokens, logits, torch.ones_like(logits, dtype=torch.bool)), logits.double().numpy()


@pytest.mark.parametrize(
    ("ours", "theirs", "choice"),
    [
        ([1.0, 2.0, 0.0], [1.0, 2.0, 0.0], "same"),
        ([1.0, 1.0 + 1e-6, 0.0], [1.0 + 2e-6, 1.0, 0.0], "undecided"),
        ([1.0, 2.0, 0.0], [2.5, 2.0, 0.0], "wrong"),
        ([1.0, 2.0, 0.0], [1.0, 2.0, 9.0], "wrong"),
    ],
)
def test_a_near_tie_is_undecided_and_a_clear_lead_is_not(ours: list[float], theirs: list[float], choice: str) -> None:
    generated, own = make_generated(ours, 1)
    allowed = np.full((1, 1, 3), 1e-5)
    step, row, lead, doubt = stepping._compare_step(0, generated, own, np.array([[theirs]]), allowed, np.zeros((1, 1)))
    assert step.choice == choice
    assert (row, doubt) == (0, 2e-5)
    if choice == "wrong":
        said = stepping._report_token(Prompt("one prompt", {}, (1,)), step, row, lead, doubt, None)
        other = int(np.argmax(theirs))
        assert said.seen == (
            f"one prompt: step 0, row 0: PyTorch chose token 1, the file {other}; PyTorch's leads by {lead:.3g}, "
            "rounding explains 2e-05"
        )


def test_a_forbidden_token_is_not_chosen() -> None:
    generated, own = make_generated([1.0, 2.0, 0.0], 1)
    generated.legal[0, 0, 2] = False
    step, *_ = stepping._compare_step(
        0, generated, own, np.array([[[1.0, 2.0, 9.0]]]), np.full((1, 1, 3), 1e-5), np.zeros((1, 1))
    )
    assert step.file_tokens == (1,)


class Mute(Player):
    """Answers with NaN."""

    def __init__(self) -> None:
        pass

    def start(self, prompt: Prompt, first: torch.Tensor) -> torch.Tensor:
        return torch.full((prompt.batch, generators.WORDS), float("nan"))

    def follow(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.full((len(tokens), generators.WORDS), float("nan"))


def test_nan_is_not_taken_for_agreement() -> None:
    model = generators.llama()
    prompt = make_prompts(examine_generator(model), [[5, 6, 7]], 12, 0)[0]
    run = compare_steps(model, Mute(), prompt, 3, lambda event: None)
    findings: tuple[Finding, ...] = run.findings
    assert [f.code for f in findings] == ["FW405"]
