"""Makes captures at one point after another, until each tested point of the domain has a capture that is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fairway.convert.ladder.capture_pair import CaptureRequest
from fairway.convert.ladder.prepare_model import prepare_for_judging
from fairway.convert.pieces.domain_map import Atlas, Shot
from fairway.convert.pieces.piece import describe_regions
from fairway.convert.pieces.piece_trials import run_trials
from fairway.convert.pieces.size_map import Point
from fairway.convert.types import Candidate
from fairway.diagnostics import Code, Finding
from fairway.model.dims import describe_point
from fairway.record.progress import EventSink, StageStarted
from fairway.workers.attempt import Failure, Outcome

MAX_PIECES = 12
MAX_SHOTS = 24
"""Captures that are made at most. Most guards are harmless, so fewer captures are used."""
MAX_SHOTS_BY_GUARDS = 8
"""With fewer captures than this, points outside all guards are captured although those tested near them are right."""
MIN_SHOTS_BEFORE_ESTIMATE = 3
"""Captures that are made before the number of pieces is estimated from their regions."""
MIN_WRONG_SHOTS = 2
"""Captures that are wrong at their own point before the collection ends."""
MAX_FAILURES = 3
"""Consecutive points at which a capture may fail."""


class CollectionStopped(Exception):
    """The collection ended without pieces. The outcome has the reason."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.status)
        self.outcome = outcome


class Collection:
    """Captures, and the points at which they are right."""

    def __init__(self, request: CaptureRequest) -> None:
        self.request = request
        self.session = request.session
        self.atlas = Atlas(request.session.subject, request.wrong_points)
        self.captured: list[Candidate] = []
        self.seconds = 0.0
        self.peak_bytes = 0
        self._failed: set[int] = set()
        self._failures = 0

    def collect(self) -> None:
        """Capture until every tested point is served; raise CollectionStopped if that takes too many captures."""
        places = [self.atlas.map.find_index(self.session.subject.example)]
        while places:
            self._capture_places([place for place in places if place is not None])
            self._run_captures()
            left = [i for i in self.atlas.find_open_points() if i not in self._failed]
            if not left and self._failed & {*self.atlas.find_open_points()}:
                raise CollectionStopped(self._last_failure)
            if left:
                self._check_progress()
            elif len(self.captured) < MAX_SHOTS_BY_GUARDS:
                left = [i for i in self.atlas.find_unseen_points() if i not in self._failed]
            places = self._choose_next_points(left)

    def _choose_next_points(self, left: Sequence[int]) -> list[int | None]:
        """Return the next two points, from different cells if possible."""
        cells = self.atlas.cells()
        others = [i for i in left if cells[i] != cells[left[0]]] or left[1:]
        return [*left[:1], *others[:1]]

    def _capture_places(self, places: Sequence[int]) -> None:
        points = [self.atlas.map.get_point(place) for place in places]
        shots = self.capture_at(points, 1, "piece", len(self.captured) + len(self._failed))
        for place, point, outcome in zip(places, points, shots, strict=True):
            if outcome.status != "done":
                self._failed.add(place)
                self._failures += 1
                self._last_failure = outcome
                continue
            captured: Candidate = outcome.value
            self._failures = 0
            self.captured.append(captured)
            self.atlas.shots.append(Shot(point, captured.path, captured.guards or ()))
            for row in self.atlas.right.values():
                row.append(None)
        if self._failures >= MAX_FAILURES or not self.captured:
            raise CollectionStopped(self._last_failure)

    def capture_at(self, points: Sequence[Point], seed: int, name: str, number: int) -> list[Outcome]:
        """Capture at each point, two at a time, into files of this name and with these numbers."""
        outcomes: list[Outcome] = []
        for first in range(0, len(points), 2):
            self.session.on_event(StageStarted(f"capturing a region of sizes ({number + first + 1})"))
            jobs = [
                self.session.workers.start(
                    self.request.make_work(point, seed, self.request.make_path(f"{name}{number + first + i}.onnx"))
                )
                for i, point in enumerate(points[first : first + 2])
            ]
            outcomes += [self.account(self.session.workers.wait(job)) for job in jobs]
        return outcomes

    def account(self, outcome: Outcome) -> Outcome:
        """Add a process's time and memory to the rung's."""
        self.seconds += outcome.seconds
        self.peak_bytes = max(self.peak_bytes, outcome.peak_bytes)
        return outcome

    def _run_captures(self) -> None:
        """Run each capture at every chosen point at which it has not run yet."""
        atlas, subject, remedies = self.atlas, self.session.subject, self.session.settings.remedies
        for i in atlas.choose_points():
            atlas.right.setdefault(i, [])
        missing = [
            [i for i, row in atlas.right.items() if len(row) <= number or row[number] is None]
            for number in range(len(atlas.shots))
        ]
        points = [[atlas.map.get_point(i) for i in mine] for mine in missing]
        paths = [shot.path for shot in atlas.shots]

        def work(on_event: EventSink) -> list[list[bool | None]]:
            prepare_for_judging(subject, remedies)
            return run_trials(subject, paths, self.request.output_names, points)

        outcome = self.account(self.session.workers.run(work))
        if outcome.status != "done":
            raise CollectionStopped(outcome)
        for number, (mine, answers) in enumerate(zip(missing, outcome.value, strict=True)):
            for i, answer in zip(mine, answers, strict=True):
                row = atlas.right[i]
                row.extend([None] * (number + 1 - len(row)))
                row[number] = answer
        self._check_own_points()

    def _check_own_points(self) -> None:
        """Stop if captures are wrong at the very sizes that they were made from: then sizes are not to blame."""
        wrong = []
        for number, shot in enumerate(self.atlas.shots):
            own = self.atlas.map.find_index(shot.point)
            if own is not None and self.atlas.right.get(own, [])[number : number + 1] == [False]:
                wrong.append(describe_point(shot.point))
        if len(wrong) >= MIN_WRONG_SHOTS:
            points = " and at ".join(wrong)
            seen = f"captures made at {points} are wrong at those very sizes, so sizes are not to blame"
            finding = Finding(Code.CAPTURE_FAILED, seen)
            failure = Failure("UserError", seen, (), seen, finding)
            raise CollectionStopped(Outcome("raised", self.seconds, self.peak_bytes, failure=failure))

    def _check_progress(self) -> None:
        """Stop if the captures so far serve so few sizes each that too many pieces would be needed."""
        served = self.atlas.find_served_by_each()
        left = 1 - float(np.any(served, axis=0).mean())
        largest = max(float(mask.mean()) for mask in served)
        enough = len(self.captured) >= MIN_SHOTS_BEFORE_ESTIMATE
        if len(self.captured) >= MAX_SHOTS or (enough and left / largest > MAX_PIECES):
            raise CollectionStopped(self.refuse([self.describe(number) for number in range(len(self.captured))], left))

    def describe(self, number: int) -> str:
        """Return in words where a capture is valid, without guards that follow from the others."""
        shot, size_map = self.atlas.shots[number], self.atlas.map
        held = self.atlas.find_valid(number)
        alone = [f"{name} == {size}" for name, size in shot.point.items()]
        telling = [text for text in alone if not (held & ~size_map.where_all([text])).any()]
        for guard in shot.guards:
            mask = size_map.find_mask(guard)
            if mask is None or (size_map.where_all(telling) & ~mask).any():
                telling.append(guard)
        return " and ".join(telling) or "all sizes"

    def refuse(self, regions: Sequence[str], left: float = 0.0) -> Outcome:
        """Return the outcome of a rung that would need too many pieces."""
        listed = describe_regions(list(dict.fromkeys(regions)))
        reason = f"more than {MAX_PIECES} pieces are needed. Regions found: {listed}"
        rest = f"; {left:.0%} of the sizes are in none of them" if left else ""
        finding = Finding(Code.TOO_MANY_REGIONS, reason + rest, data={"regions": list(regions)})
        failure = Failure("UserError", finding.seen, (), finding.seen, finding)
        return Outcome("raised", self.seconds, self.peak_bytes, failure=failure)

    def finish(self, outcome: Outcome) -> Outcome:
        """Return an outcome with the time and memory of the whole rung."""
        self.account(outcome)
        return replace(outcome, seconds=self.seconds, peak_bytes=self.peak_bytes)
