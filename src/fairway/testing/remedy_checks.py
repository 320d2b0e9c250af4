"""Check a remedy: its metadata is complete, `detect` changes nothing, and everything that `apply` does is undone."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

import torch
from packaging.specifiers import SpecifierSet
from torch import nn

from fairway.convert.ladder.route import ROUTES, parse_route
from fairway.convert.remedies.contract import STAGES, Case, Match, Refusal, Remedy
from fairway.diagnostics import CODES
from fairway.testing.patch_watch import take_snapshot
from fairway.torch_internals import forward_hooks, forward_pre_hooks, module_buffers, module_parameters


class MixedModel(nn.Module):
    """A model in which several remedies find their defect."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(4, 4, 2, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 1)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.rnn(x, torch.zeros(2, len(x), 4))
        result: torch.Tensor = self.encoder(hidden) * (1.0 - mask)[..., None]
        return result


def make_case(
    route: str, model: nn.Module | None = None, args: tuple[object, ...] = (), input_names: tuple[str, ...] = ()
) -> Case:
    """Make a case as the ladder does. In the default model several remedies find their defect."""
    if model is None:
        model, input_names = MixedModel(), ("x", "mask")
        args = (torch.randn(2, 3, 4), torch.ones(2, 3, dtype=torch.int64))
    return Case(model.eval(), args, {}, parse_route(route), (), input_names, input_names[:1])


def check_remedy(remedy: Remedy, model: nn.Module | None = None, args: tuple[object, ...] = ()) -> None:
    """Run all checks on every route, with a model that has the defect if one is given."""
    check_metadata(remedy)
    matched = False
    for route in ROUTES:
        check_detect(remedy, make_case(route, model, args))
        matched |= check_apply(remedy, make_case(route, model, args))
    assert model is None or matched, f"{remedy.name} refuses the model given on every route"


def check_metadata(remedy: Remedy) -> None:
    """Check that the metadata is complete and names what exists."""
    assert re.fullmatch(r"[a-z][a-z0-9_]*", remedy.name), f"the name {remedy.name!r} is not the name of a module"
    assert remedy.stage in STAGES, f"the stage {remedy.stage!r} is not one of {', '.join(STAGES)}"
    assert remedy.cures in CODES, f"there is no finding {remedy.cures}"
    assert CODES[remedy.cures].todo
    assert remedy.affected, "no affected versions"
    for package, versions in remedy.affected.items():
        assert re.fullmatch(r"[a-z][a-z0-9-]*", package), f"{package!r} is not the name of a package"
        SpecifierSet(versions)
    for reference in remedy.upstream:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", reference), f"{reference!r} is not owner/repo#number"
    for text in (remedy.safety, remedy.title):
        assert text.strip(), "the title or the safety is empty"
        assert "\n" not in text, f"more than one line: {text!r}"
    assert remedy.safety.endswith("."), "the safety does not end with a period"


def check_detect(remedy: Remedy, case: Case) -> None:
    """Check that `detect` gives a reason and changes nothing."""
    weights, before = copy.deepcopy(case.model.state_dict()), copy.copy(case)
    answer = remedy.detect(case)
    assert isinstance(answer, Match | Refusal), f"detect returned {answer!r:.100}"
    assert answer.note if isinstance(answer, Match) else answer.reason, "no reason is given"
    assert case == before, "detect changed the case"
    assert (case.translations, case.passes, case.repairs) == ({}, [], []), "detect left something for the exporter"
    assert not any(module.training for module in case.model.modules()), "detect changed the mode"
    same = all(torch.equal(weights[key], value) for key, value in case.model.state_dict().items())
    assert same, "detect changed the weights"


def check_apply(remedy: Remedy, case: Case) -> bool:
    """Check that everything is undone after an error too. Returns False if the remedy refuses the case."""
    answer = remedy.detect(case)
    if isinstance(answer, Refusal):
        return False
    libraries, holders = take_snapshot(), _list_holders(case.model)
    try:
        with remedy.apply(case, answer):
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    else:
        raise AssertionError("apply swallowed an error")
    changes = libraries.find_changes()
    assert not changes, f"apply left a library patched: {', '.join(changes)}"
    assert (case.translations, case.passes, case.repairs) == ({}, [], []), "apply left something for the exporter"
    for (module, values), (_, before) in zip(_list_holders(case.model), holders, strict=True):
        assert values == before, f"apply left {type(module).__name__} patched"
    return True


def _list_holders(model: nn.Module) -> list[tuple[nn.Module, dict[tuple[str, str], int]]]:
    """Return for each module of the model, and for its class, the identities of the values they hold by name."""
    return [(module, _identify_values(module)) for module in model.modules()]


def _identify_values(module: nn.Module) -> dict[tuple[str, str], int]:
    tables: dict[str, Mapping[Any, object]] = {
        "attribute": vars(module),
        "class": vars(type(module)),
        "parameter": module_parameters(module),
        "buffer": module_buffers(module),
        "hook": dict(enumerate([*forward_hooks(module), *forward_pre_hooks(module)])),
    }
    return {(kind, str(name)): id(value) for kind, table in tables.items() for name, value in table.items()}
