"""Captures a model in pieces: the candidate of a rung, and the second export that it is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fairway.convert.ladder.capture_pair import CaptureRequest
from fairway.convert.pieces.assemble import assemble_pieces
from fairway.convert.pieces.collect import MAX_PIECES, Collection, CollectionStopped
from fairway.convert.pieces.piece import Piece, guards_by_piece
from fairway.convert.pieces.separate import CannotSeparate, Region, find_regions
from fairway.convert.pieces.size_map import Mask, Point
from fairway.convert.types import Candidate
from fairway.record.progress import EventSink
from fairway.workers.attempt import Outcome

MAX_SIDES_PER_CONDITION = 3
"""Changes of a condition along each dim for which both sides are judged."""
SECOND_EXPORT_SEED = 2


class PiecewiseCapture:
    """One rung's pieces. `first` makes the candidate, `second` makes it again from other examples in its regions."""

    def __init__(self, request: CaptureRequest) -> None:
        self._request = request
        self._collection = Collection(request)
        self._chosen: tuple[int, ...] = ()
        self._regions: list[Region] = []
        self.points: list[Point] = []
        """The points at which the pieces were captured, for the first and for the second export."""

    def first(self) -> Outcome:
        """Return the outcome of the whole rung's capture."""
        collection = self._collection
        try:
            collection.collect()
            self._choose_captures()
        except CollectionStopped as stopped:
            return collection.finish(replace(stopped.outcome, seconds=0.0))
        except CannotSeparate:
            return collection.refuse([collection.describe(k) for k in self._chosen])
        captured = [collection.captured[region.piece] for region in self._regions]
        return collection.finish(self._assemble(captured, "joined.onnx"))

    def _choose_captures(self) -> None:
        """Choose the fewest captures, and find the regions that they serve, in order."""
        atlas = self._collection.atlas
        self._chosen = atlas.choose_fewest()
        if len(self._chosen) > MAX_PIECES:
            raise CollectionStopped(self._collection.refuse([self._collection.describe(k) for k in self._chosen]))
        if len(self._chosen) == 1:
            self._regions = [Region(self._chosen[0], ())]
            return
        sure = [atlas.find_sure(k) for k in self._chosen]
        regions = find_regions(atlas.map, atlas.atoms, atlas.assign_points(self._chosen), sure)
        self._regions = [replace(region, piece=self._chosen[region.piece]) for region in regions]

    def _assemble(self, captured: Sequence[Candidate], name: str) -> Outcome:
        session, path = self._request.session, self._request.make_path(name)
        spec, regions = session.subject.spec, self._regions
        fixed: list[Mapping[str, int]] = [self._collection.atlas.list_fixed_dims(region.piece) for region in regions]

        def work(on_event: EventSink) -> Candidate:
            return assemble_pieces(captured, regions, spec, fixed, path)

        outcome = session.workers.run(work)
        if outcome.status != "done":
            return outcome
        return replace(outcome, value=self._describe(outcome.value))

    def _describe(self, captured: Candidate) -> Candidate:
        """Return the joined capture with its pieces, its guards and the points on both sides of each condition."""
        if len(self._regions) == 1:
            return captured
        atlas = self._collection.atlas
        texts = [str(region) for region in self._regions]
        shots = [atlas.shots[region.piece] for region in self._regions]
        pieces = tuple(
            Piece(text, shot.point, shot.guards, int(owned.sum()), atlas.map.complete)
            for text, shot, owned in zip(texts, shots, self._find_owned_points(), strict=True)
        )
        conditions = dict.fromkeys(text for region in self._regions for term in region.terms for text in term)
        sides = [point for text in conditions for point in atlas.map.find_borders(text, MAX_SIDES_PER_CONDITION)]
        unique = {tuple(point.items()): point for point in sides}
        guards = guards_by_piece(texts, [shot.guards for shot in shots])
        return replace(captured, guards=guards, pieces=pieces, sides=tuple(unique.values()))

    def _find_owned_points(self) -> list[Mask]:
        """Return the points of each region, in order."""
        size_map = self._collection.atlas.map
        left = np.ones(size_map.count, bool)
        owned = []
        for region in self._regions:
            owned.append(left & size_map.where_any(region.terms) if region.terms else left)
            left = left & ~owned[-1]
        return owned

    def drop(self) -> None:
        """Do nothing: no other process runs beside the candidate's."""

    def second(self) -> Outcome:
        """Return the outcome of capturing each piece again, at another point of its region."""
        points = [
            self._choose_other_point(region, owned)
            for region, owned in zip(self._regions, self._find_owned_points(), strict=True)
        ]
        self.points = [self._collection.atlas.shots[region.piece].point for region in self._regions] + points
        outcomes = self._collection.capture_at(points, SECOND_EXPORT_SEED, "again", 0)
        failed = next((outcome for outcome in outcomes if outcome.status != "done"), None)
        return failed or self._assemble([outcome.value for outcome in outcomes], "again.onnx")

    def _choose_other_point(self, region: Region, owned: Mask) -> Point:
        """Return a point with other sizes at which the piece's guards hold, or its own point if there is no other."""
        atlas = self._collection.atlas
        own = atlas.shots[region.piece].point
        fitting = np.flatnonzero(owned & atlas.find_sure(region.piece) & atlas.affordable)
        points = [atlas.map.get_point(i) for i in fitting[: len(fitting) : max(1, len(fitting) // 500)]]
        return max(points, key=lambda p: (sum(p[n] != own[n] for n in p), -sum(p.values())), default=own)
