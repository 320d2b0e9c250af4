"""Work that is spread out comes back whole, and its maker may stop."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

import pytest

from fairway.diagnostics.errors import UserError
from fairway.workers.fanout import Parallelism, fan_out


@pytest.mark.parametrize(
    ("jobs", "backend"), [(1, "processes"), (2, "processes"), pytest.param(2, "ray", marks=pytest.mark.slow)]
)
def test_every_answer_comes_back(jobs: int, backend: str) -> None:
    assert sorted(fan_out(math.sqrt, range(8), Parallelism(jobs, backend))) == [math.sqrt(n) for n in range(8)]


def where(task: int) -> int:
    return os.getpid()


def test_more_than_one_job_runs_elsewhere() -> None:
    assert os.getpid() not in set(fan_out(where, range(4), Parallelism(2)))
    assert set(fan_out(where, range(4))) == {os.getpid()}


def test_tasks_are_made_as_they_are_needed() -> None:
    made = []

    def tasks() -> Iterator[int]:
        for number in range(1000):
            made.append(number)
            yield number

    answers = fan_out(math.sqrt, tasks())
    next(answers)
    assert len(made) == 1


@pytest.mark.parametrize(("jobs", "backend"), [(0, "processes"), (1, "threads")])
def test_what_is_not_known_is_refused(jobs: int, backend: str) -> None:
    with pytest.raises(UserError) as raised:
        Parallelism(jobs, backend)
    assert raised.value.finding.code == "FW006"
