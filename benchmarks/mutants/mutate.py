"""The flat table of mutations, and how one of them becomes a file."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import content
import onnx_ir as ir
import planted
import structural
from graph import Know, load

Propose = Callable[[ir.Model, Know], structural.Proposals]

MUTATIONS: dict[str, Propose] = {
    "operator swapped": structural.operator_swapped,
    "attribute off by one": structural.attribute_off,
    "axis changed": structural.axis_changed,
    "weight perturbed": content.weight_perturbed,
    "constant baked": content.constant_baked,
    "mask inverted or dropped": content.mask_lost,
    "state not carried": content.state_dropped,
    "dim fixed": content.dim_fixed,
    "cast narrowed": content.cast_narrowed,
    "outputs permuted": structural.outputs_permuted,
    "branch frozen": structural.branch_frozen,
    "opset semantics mixed": structural.opset_mixed,
    "beyond a length": planted.beyond_a_length,
    "dtype edge": planted.dtype_edge,
    "padded rows": planted.padded_rows,
}


@dataclass(frozen=True)
class Mutant:
    """One wrong file, by the model, the class of mutation and the place; enough to make it again."""

    model: str
    kind: str
    place: str

    @property
    def key(self) -> str:
        return f"{self.model}/{self.kind}/{self.place}"


def propose(name: str, path: Path, know: Know) -> list[Mutant]:
    """Every place of every class, the classes taken in turn so that any beginning of the list is balanced."""
    by_kind = []
    for kind, proposals in MUTATIONS.items():
        places = list(dict.fromkeys(place for place, _ in proposals(load(path), know)))
        random.Random(f"{name}{kind}").shuffle(places)
        by_kind.append([Mutant(name, kind, place) for place in places])
    mixed = []
    for turn in range(max(map(len, by_kind))):
        mixed += [places[turn] for places in by_kind if turn < len(places)]
    return mixed


def write(mutant: Mutant, source: Path, know: Know, target: Path) -> None:
    """The wrong file itself."""
    model = load(source)
    for place, edit in MUTATIONS[mutant.kind](model, know):
        if place == mutant.place:
            edit()
            ir.save(model, target)
            return
    raise LookupError(mutant.key)
