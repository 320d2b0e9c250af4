"""Names that lead to versions: an alias is a route with one target, weighted traffic one with several."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairway.diagnostics.errors import complain


@dataclass
class Alias:
    """A name that leads to others, in turns by weight."""

    targets: tuple[tuple[str, str | None, int], ...]
    """Model, version or None, weight."""
    credit: list[int] = field(default_factory=list)

    def next(self) -> tuple[str, str | None]:
        """Smooth turns: over any stretch each target gets its share, without runs of one of them."""
        self.credit = self.credit or [0] * len(self.targets)
        for number, (_, _, weight) in enumerate(self.targets):
            self.credit[number] += weight
        best = max(range(len(self.targets)), key=lambda number: self.credit[number])
        self.credit[best] -= sum(weight for _, _, weight in self.targets)
        return self.targets[best][:2]


def parse_route(text: str) -> tuple[str, Alias]:
    """`NAME=MODEL@VERSION:WEIGHT,…`; a weight that is not said is 1."""
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
        raise complain("FW006", f"--route {text!r:.120} is not understood", todo=todo)
    return alias, Alias(tuple(targets))
