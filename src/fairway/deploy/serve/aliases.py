"""Aliases: other names of models and versions, and traffic divided between several by weight."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain


@dataclass
class Alias:
    """A name for one or several models, which take turns by weight."""

    targets: tuple[tuple[str, str | None, int], ...]
    """Model, version or None, weight."""
    credit: list[int] = field(default_factory=list)

    def take_turn(self) -> tuple[str, str | None]:
        """Return the next model and version. Targets alternate, so that each has its share at all times."""
        self.credit = self.credit or [0] * len(self.targets)
        for number, (_, _, weight) in enumerate(self.targets):
            self.credit[number] += weight
        best = max(range(len(self.targets)), key=lambda number: self.credit[number])
        self.credit[best] -= sum(weight for _, _, weight in self.targets)
        return self.targets[best][:2]


def parse_route(text: str) -> tuple[str, Alias]:
    """Read `NAME=MODEL@VERSION:WEIGHT,…`. The default weight is 1."""
    alias, equals, rest = text.partition("=")
    targets = []
    for part in rest.split(","):
        target, colon, weight = part.partition(":")
        model, _, version = target.partition("@")
        if not model or (colon and not weight.isdecimal()):
            equals = ""
            break
        targets.append((model, version or None, int(weight) if colon else 1))
    if not alias or not equals or sum(weight for _, _, weight in targets) < 1:
        todo = ("Write an alias, NAME=MODEL@VERSION, or weights, NAME=MODEL@1:9,MODEL@2:1.",)
        raise complain(
            Code.UNKNOWN_OPTION, f"--traffic: expected NAME=MODEL@VERSION:WEIGHT, got {text!r:.120}", todo=todo
        )
    return alias, Alias(tuple(targets))
