"""What holds for every remedy: its record is whole, looking changes nothing, and applying is undone."""

from __future__ import annotations

import copy
import re
from typing import Any

import torch
from packaging.specifiers import SpecifierSet
from torch import nn

from fairway.convert.ladder.route import ROUTES, parse_route
from fairway.convert.remedies.contract import STAGES, Case, Match, Refusal, Remedy
from fairway.diagnostics import CODES


class Mixed(nn.Module):
    """Something of everything that Fairway's own remedies look for."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(4, 4, 2, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 1)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.rnn(x, torch.zeros(2, len(x), 4))
        result: torch.Tensor = self.encoder(hidden) * (1.0 - mask)[..., None]
        return result


def make_case(
    route: str, model: nn.Module | None = None, args: tuple[Any, ...] = (), input_names: tuple[str, ...] = ()
) -> Case:
    """A case as the ladder makes it; without a model, one that has something of everything."""
    if model is None:
        model, input_names = Mixed(), ("x", "mask")
        args = (torch.randn(2, 3, 4), torch.ones(2, 3, dtype=torch.int64))
    return Case(model.eval(), args, {}, parse_route(route), (), input_names, input_names[:1])


def check_remedy(remedy: Remedy, model: nn.Module | None = None, args: tuple[Any, ...] = ()) -> None:
    """Everything that Fairway asks of its own, on every route; with a model in which the defect is, if one is given."""
    check_metadata(remedy)
    matched = False
    for route in ROUTES:
        check_detect(remedy, make_case(route, model, args))
        matched |= check_apply(remedy, make_case(route, model, args))
    assert model is None or matched, f"{remedy.name} refuses the model given on every route"


def check_metadata(remedy: Remedy) -> None:
    """The record is whole and can be looked up."""
    assert re.fullmatch(r"[a-z][a-z0-9_]*", remedy.name), f"the name {remedy.name!r} is no name of a module"
    assert remedy.stage in STAGES, f"the stage {remedy.stage!r} is none of {', '.join(STAGES)}"
    assert remedy.cures in CODES, f"there is no finding {remedy.cures}"
    assert CODES[remedy.cures].todo
    assert remedy.affected, "no affected versions"
    for package, versions in remedy.affected.items():
        assert re.fullmatch(r"[a-z][a-z0-9-]*", package), f"{package!r} is no package"
        SpecifierSet(versions)
    for reference in remedy.upstream:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", reference), f"{reference!r} is not owner/repo#number"
    for text in (remedy.safety, remedy.title):
        assert text.strip(), "the title or the safety is empty"
        assert "\n" not in text, f"more than one line: {text!r}"
    assert remedy.safety.endswith("."), "the safety is no sentence"


def check_detect(remedy: Remedy, case: Case) -> None:
    """It answers with a reason, and changes nothing."""
    weights, before = copy.deepcopy(case.model.state_dict()), copy.copy(case)
    answer = remedy.detect(case)
    assert isinstance(answer, Match | Refusal), f"detect answered {answer!r:.100}"
    assert answer.note if isinstance(answer, Match) else answer.reason, "no reason is given"
    assert case == before, "detect changed the case"
    assert (case.translations, case.passes, case.repairs) == ({}, [], []), "detect left something for the exporter"
    assert not any(module.training for module in case.model.modules()), "detect changed the mode"
    same = all(torch.equal(weights[key], value) for key, value in case.model.state_dict().items())
    assert same, "detect changed the weights"


def check_apply(remedy: Remedy, case: Case) -> bool:
    """Everything is as it was after an error too; False where it refuses the case."""
    answer = remedy.detect(case)
    if isinstance(answer, Refusal):
        return False
    before = patched_places()
    try:
        with remedy.apply(case, answer):
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    else:
        raise AssertionError("apply swallowed an error")
    assert patched_places() == before, "apply left a library patched"
    assert (case.translations, case.passes, case.repairs) == ({}, [], []), "apply left something for the exporter"
    hooked = [m for m in case.model.modules() if m._forward_pre_hooks or "forward" in vars(m)]
    assert not hooked, f"apply left {type(hooked[0]).__name__} patched" if hooked else ""
    return True


def patched_places() -> list[object]:
    """The library functions that remedies replace, and the settings they change."""
    modules: Any = nn.modules
    functional: Any = nn.functional
    config: Any = torch._dynamo.config
    return [
        torch.vmap,
        torch.func.vmap,
        modules.rnn._VF,
        modules.transformer._detect_is_causal_mask,
        functional._in_projection_packed,
        functional.scaled_dot_product_attention,
        torch.backends.mha.get_fastpath_enabled(),
        config.allow_rnn,
        nn.GRU.forward,
    ]
