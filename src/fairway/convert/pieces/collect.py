"""Captures at one point after another, until each point of the domain that is run has a capture that is right there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fairway.convert.ladder.capture import Captured
from fairway.convert.ladder.judge_worker import settle
from fairway.convert.ladder.twice import Request
from fairway.convert.pieces.domain_map import Atlas, Shot
from fairway.convert.pieces.piece import describe_regions
from fairway.convert.pieces.piece_trials import run_trials
from fairway.convert.pieces.size_map import Point
from fairway.diagnostics import Finding
from fairway.workers.attempt import Failure, Outcome

MOST_PIECES = 12
MOST_SHOTS = 24
"""Captures that are made. Most guards are harmless, so that fewer are kept."""
SHOTS_BY_GUARDS = 8
"""Captures up to which points are captured of which nothing is known but that those beside them are right."""
SHOTS_BEFORE_GUESS = 3
"""Captures after which their regions are taken to say how many more there are."""
MOST_FAILURES = 3
"""Points at which a capture may fail, one after another."""


class Stopped(Exception):
    """No pieces: the outcome says why."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.status)
        self.outcome = outcome


class Collection:
    """Captures, and what they were right at."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.atlas = Atlas(request.subject, request.points)
        self.captured: list[Captured] = []
        self.seconds = 0.0
        self.peak_bytes = 0
        self._failed: set[int] = set()
        self._failures = 0

    def collect(self) -> None:
        """Capture until nothing is left; raise Stopped if that does not come to an end."""
        places = [self.atlas.map.index(self.request.subject.example)]
        while places:
            self._capture([place for place in places if place is not None])
            self._run()
            left = [i for i in self.atlas.open_points() if i not in self._failed]
            if not left and self._failed & {*self.atlas.open_points()}:
                raise Stopped(self._last_failure)
            if left:
                self._check_hopes()
            elif len(self.captured) < SHOTS_BY_GUARDS:
                left = [i for i in self.atlas.unseen_points() if i not in self._failed]
            places = self._next(left)

    def _next(self, left: Sequence[int]) -> list[int | None]:
        """Return two points of different cells, if there are two."""
        cells = self.atlas.cells()
        others = [i for i in left if cells[i] != cells[left[0]]] or left[1:]
        return [*left[:1], *others[:1]]

    def _capture(self, places: Sequence[int]) -> None:
        points = [self.atlas.map.point(place) for place in places]
        shots = self.capture_at(points, 1, "piece", len(self.captured) + len(self._failed))
        for place, point, outcome in zip(places, points, shots, strict=True):
            if outcome.status != "done":
                self._failed.add(place)
                self._failures += 1
                self._last_failure = outcome
                continue
            captured: Captured = outcome.value
            self._failures = 0
            self.captured.append(captured)
            self.atlas.shots.append(Shot(point, captured.path, captured.guards or ()))
            for row in self.atlas.right.values():
                row.append(None)
        if self._failures >= MOST_FAILURES or not self.captured:
            raise Stopped(self._last_failure)

    def capture_at(self, points: Sequence[Point], seed: int, name: str, number: int) -> list[Outcome]:
        """Capture at each point, two at a time, into files of this name and with these numbers."""
        outcomes: list[Outcome] = []
        for first in range(0, len(points), 2):
            self.request.heard(("stage", f"capturing a region of sizes ({number + first + 1})"))
            jobs = [
                self.request.workers.start(
                    self.request.export(point, seed, self.request.place(f"{name}{number + first + i}.onnx"))
                )
                for i, point in enumerate(points[first : first + 2])
            ]
            outcomes += [self.account(self.request.workers.wait(job)) for job in jobs]
        return outcomes

    def account(self, outcome: Outcome) -> Outcome:
        """Add what a process took to what the whole rung takes."""
        self.seconds += outcome.seconds
        self.peak_bytes = max(self.peak_bytes, outcome.peak_bytes)
        return outcome

    def _run(self) -> None:
        """Run each capture at every point at which it was not run yet."""
        atlas, subject, remedies = self.atlas, self.request.subject, self.request.remedies
        wanted = atlas.points_to_run()
        for i in wanted:
            atlas.right.setdefault(i, [])
        missing = [
            [i for i, row in atlas.right.items() if len(row) <= number or row[number] is None]
            for number in range(len(atlas.shots))
        ]
        points = [[atlas.map.point(i) for i in mine] for mine in missing]
        paths = [shot.path for shot in atlas.shots]

        def work(tell: Any) -> list[list[bool | None]]:
            settle(subject, remedies)
            return run_trials(subject, paths, self.request.output_names, points)

        outcome = self.account(self.request.workers.run(work))
        if outcome.status != "done":
            raise Stopped(outcome)
        for number, (mine, answers) in enumerate(zip(missing, outcome.value, strict=True)):
            for i, answer in zip(mine, answers, strict=True):
                row = atlas.right[i]
                row.extend([None] * (number + 1 - len(row)))
                row[number] = answer

    def _check_hopes(self) -> None:
        """Stop if the captures so far serve so few sizes each that far too many would be needed."""
        served = self.atlas.served_by_each()
        left = 1 - float(np.any(served, axis=0).mean())
        largest = max(float(mask.mean()) for mask in served)
        enough = len(self.captured) >= SHOTS_BEFORE_GUESS
        if len(self.captured) >= MOST_SHOTS or (enough and left / largest > MOST_PIECES):
            raise Stopped(self.refuse([self.describe(number) for number in range(len(self.captured))], left))

    def describe(self, number: int) -> str:
        """Return where a capture is valid, without the guards that say nothing more."""
        shot, size_map = self.atlas.shots[number], self.atlas.map
        held = self.atlas.holding(number)
        alone = [f"{name} == {size}" for name, size in shot.point.items()]
        telling = [text for text in alone if not (held & ~size_map.where_all([text])).any()]
        for guard in shot.guards:
            mask = size_map.find(guard)
            if mask is None or (size_map.where_all(telling) & ~mask).any():
                telling.append(guard)
        return " and ".join(telling) or "all sizes"

    def refuse(self, regions: Sequence[str], left: float = 0.0) -> Outcome:
        """Return the outcome of a rung that would need too many pieces."""
        listed = describe_regions(list(dict.fromkeys(regions)))
        many = f"more than {MOST_PIECES} pieces are needed. Regions found: {listed}"
        rest = f"; {left:.0%} of the sizes are in none of them" if left else ""
        finding = Finding("FW329", many + rest, data={"regions": list(regions)})
        failure = Failure("UserError", finding.seen, (), finding.seen, finding)
        return Outcome("raised", self.seconds, self.peak_bytes, failure=failure)

    def finish(self, outcome: Outcome) -> Outcome:
        """Return an outcome with what the whole rung took."""
        self.account(outcome)
        return replace(outcome, seconds=self.seconds, peak_bytes=self.peak_bytes)
