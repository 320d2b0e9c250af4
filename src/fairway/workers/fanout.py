"""Parallel work: in processes on this machine or on a Ray cluster, both through joblib.

A module-level function and its arguments are sent to the workers. Results come back as they are ready.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.diagnostics.extras import require_extra

Task = TypeVar("Task")
Answer = TypeVar("Answer")
BACKENDS = ("processes", "ray")


@dataclass(frozen=True)
class Parallelism:
    """The number of workers, and where they run."""

    jobs: int = 1
    on: str = "processes"

    def __post_init__(self) -> None:
        if self.on not in BACKENDS:
            raise complain(Code.UNKNOWN_OPTION, f"--on: expected one of {', '.join(BACKENDS)}, got {self.on!r:.40}")
        if self.jobs < 1:
            raise complain(Code.UNKNOWN_OPTION, f"--jobs: expected a number of at least 1, got {self.jobs}")

    @property
    def is_in_process(self) -> bool:
        """True if this process does all the work."""
        return self.jobs == 1 and self.on == "processes"


IN_PROCESS = Parallelism()


def fan_out(
    function: Callable[[Task], Answer], tasks: Iterable[Task], parallelism: Parallelism = IN_PROCESS
) -> Iterator[Answer]:
    """Yield the answers in any order. Tasks are drawn as workers become free, so the source may stop early."""
    jobs = parallelism.jobs
    if parallelism.is_in_process:
        yield from map(function, tasks)
        return
    require_extra("parallel", "more than one job", "joblib")
    import joblib

    calls = (joblib.delayed(function)(task) for task in tasks)
    if parallelism.on == "ray":
        require_extra("cluster", "the backend ray", "ray")
        with _connect_to_ray():
            # Ray's backend (2.60) returns answers only when all are ready, so it gets a few tasks at a time.
            while batch := list(islice(calls, 2 * jobs)):
                yield from joblib.Parallel(n_jobs=jobs)(batch)
        return
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        work: Any = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1)
        yield from work(calls)


@contextlib.contextmanager
def _connect_to_ray() -> Iterator[None]:
    """Connect to the cluster in RAY_ADDRESS, or start one on this machine that ends with the work."""
    import joblib
    import ray
    from ray.util.joblib import register_ray

    started = not ray.is_initialized()
    if started:
        ray.init(log_to_driver=False, include_dashboard=False, logging_level=logging.ERROR)
    register_ray()  # type: ignore[no-untyped-call]  # Ray's own
    try:
        with joblib.parallel_config(backend="ray"):
            yield
    finally:
        if started:
            ray.shutdown()
