"""A piece: one capture, and the region of the domain that it serves in a joined file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

OTHERWISE = "otherwise"
"""The region of the last piece: every size that no earlier piece serves."""

SHOWN_REGIONS = 16
"""Regions that a message lists."""


@dataclass(frozen=True)
class Piece:
    """One capture in a joined file. Regions are evaluated in order, and the first that holds decides."""

    region: str
    """A Python condition on the dims' names, or `otherwise`."""
    point: dict[str, int]
    """The sizes of the example it was captured from."""
    guards: tuple[str, ...]
    """Conditions on the dims under which the capture is valid."""
    points: int = 0
    """Points of the domain that it serves."""
    complete: bool = True
    """True if every point of the domain was counted, false for a part of a very large domain."""

    def as_dict(self) -> dict[str, object]:
        return {
            "region": self.region,
            "captured_at": self.point,
            "guards": list(self.guards),
            "points": self.points,
            "counted": "all points" if self.complete else "a part of the points",
        }


def describe_regions(regions: Sequence[str]) -> str:
    """Return regions in one line, at most SHOWN_REGIONS of them."""
    shown = "; ".join(regions[:SHOWN_REGIONS])
    return shown + (f"; and {len(regions) - SHOWN_REGIONS} more" if len(regions) > SHOWN_REGIONS else "")


def guards_by_piece(regions: Sequence[str], guards: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the guards of a joined file: at each point, those of the piece that serves it."""
    conditions: list[str] = []
    before: list[str] = []
    for region, own in zip(regions, guards, strict=True):
        here = [f"not ({earlier})" for earlier in before] + ([f"({region})"] if region != OTHERWISE else [])
        conditions += [f"not ({' and '.join(here)}) or ({guard})" if here else guard for guard in own]
        before.append(region)
    return tuple(dict.fromkeys(conditions))
