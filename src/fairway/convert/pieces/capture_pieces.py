"""Piecewise capture: a rung's candidate made of several captures, and the second export that it is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fairway.convert.ladder.capture import Captured
from fairway.convert.ladder.twice import Request
from fairway.convert.pieces.assemble import assemble
from fairway.convert.pieces.collect import MOST_PIECES, Collection, Stopped
from fairway.convert.pieces.piece import Piece, guards_by_piece
from fairway.convert.pieces.separate import CannotSeparate, Region, separate
from fairway.convert.pieces.size_map import Mask, Point
from fairway.workers.attempt import Outcome

SIDES_PER_QUESTION = 3
"""Changes of a condition along each dim of which both sides are judged."""
OTHER_SEED = 2


class Pieces:
    """One rung's pieces: `first` makes the candidate, `second` the same from other examples in the same regions."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._collection = Collection(request)
        self._kept: tuple[int, ...] = ()
        self._regions: list[Region] = []
        self.points: list[Point] = []
        """Where the pieces were captured, for the first and for the second export."""

    def first(self) -> Outcome:
        """Return the outcome of the whole rung's capture."""
        collection = self._collection
        try:
            collection.collect()
            self._choose()
        except Stopped as stopped:
            return collection.finish(replace(stopped.outcome, seconds=0.0))
        except CannotSeparate:
            return collection.refuse([collection.describe(k) for k in self._kept])
        captured = [collection.captured[region.piece] for region in self._regions]
        return collection.finish(self._assembled(captured, "joined.onnx"))

    def _choose(self) -> None:
        """Keep the fewest captures, and find the regions that they serve, in order."""
        atlas = self._collection.atlas
        self._kept = atlas.fewest()
        if len(self._kept) > MOST_PIECES:
            raise Stopped(self._collection.refuse([self._collection.describe(k) for k in self._kept]))
        if len(self._kept) == 1:
            self._regions = [Region(self._kept[0], ())]
            return
        sure = [atlas.sure(k) for k in self._kept]
        regions = separate(atlas.map, atlas.atoms, atlas.served(self._kept), sure)
        self._regions = [replace(region, piece=self._kept[region.piece]) for region in regions]

    def _assembled(self, captured: Sequence[Captured], name: str) -> Outcome:
        path = self._request.place(name)
        spec, regions = self._request.subject.spec, self._regions
        fixed: list[Mapping[str, int]] = [self._collection.atlas.fixed(region.piece) for region in regions]

        def work(tell: Any) -> Captured:
            return assemble(captured, regions, spec, fixed, path)

        outcome = self._request.workers.run(work)
        if outcome.status != "done":
            return outcome
        return replace(outcome, value=self._described(outcome.value))

    def _described(self, captured: Captured) -> Captured:
        """Return the joined capture with its pieces, its guards and the points on either side of each condition."""
        if len(self._regions) == 1:
            return captured
        atlas = self._collection.atlas
        texts = [str(region) for region in self._regions]
        shots = [atlas.shots[region.piece] for region in self._regions]
        pieces = tuple(
            Piece(text, shot.point, shot.guards, int(owned.sum()), atlas.map.complete)
            for text, shot, owned in zip(texts, shots, self._owned(), strict=True)
        )
        questions = dict.fromkeys(one for region in self._regions for term in region.terms for one in term)
        sides = [point for one in questions for point in atlas.map.borders(one, SIDES_PER_QUESTION)]
        unique = {tuple(point.items()): point for point in sides}
        guards = guards_by_piece(texts, [shot.guards for shot in shots])
        return replace(captured, guards=guards, pieces=pieces, sides=tuple(unique.values()))

    def _owned(self) -> list[Mask]:
        """Return the points of each region, in order."""
        size_map = self._collection.atlas.map
        left = np.ones(size_map.count, bool)
        owned = []
        for region in self._regions:
            owned.append(left & size_map.where_any(region.terms) if region.terms else left)
            left = left & ~owned[-1]
        return owned

    def drop(self) -> None:
        """Nothing runs beside the candidate."""

    def second(self) -> Outcome:
        """Return the outcome of capturing each piece again, at another point of its region."""
        points = [self._other(region, owned) for region, owned in zip(self._regions, self._owned(), strict=True)]
        self.points = [self._collection.atlas.shots[region.piece].point for region in self._regions] + points
        outcomes = self._collection.capture_at(points, OTHER_SEED, "again", 0)
        failed = next((one for one in outcomes if one.status != "done"), None)
        return failed or self._assembled([one.value for one in outcomes], "again.onnx")

    def _other(self, region: Region, owned: Mask) -> Point:
        """Return a point with other sizes at which the piece's guards hold, or its own point if there is none."""
        atlas = self._collection.atlas
        own = atlas.shots[region.piece].point
        fitting = np.flatnonzero(owned & atlas.sure(region.piece) & atlas.affordable)
        points = [atlas.map.point(i) for i in fitting[: len(fitting) : max(1, len(fitting) // 500)]]
        return max(points, key=lambda p: (sum(p[n] != own[n] for n in p), -sum(p.values())), default=own)
