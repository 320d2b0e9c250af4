"""The one seam for work that is spread out: over processes here, over a cluster where Ray is, through joblib both.

A function of a module and its arguments travel, results come back as they are ready. There is no scheduler of our own.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from fairway.diagnostics.errors import complain
from fairway.diagnostics.extras import require

Task = TypeVar("Task")
Answer = TypeVar("Answer")
BACKENDS = ("processes", "ray")


@dataclass(frozen=True)
class Spreading:
    """Over how many workers, of which kind."""

    jobs: int = 1
    on: str = "processes"

    def __post_init__(self) -> None:
        if self.on not in BACKENDS:
            raise complain("FW006", f"--on {self.on!r:.40}; there are {', '.join(BACKENDS)}")
        if self.jobs < 1:
            raise complain("FW006", f"--jobs {self.jobs}; at least 1 is needed")

    @property
    def alone(self) -> bool:
        """This process does it all."""
        return self.jobs == 1 and self.on == "processes"


HERE = Spreading()


def fan_out(function: Callable[[Task], Answer], tasks: Iterable[Task], spreading: Spreading = HERE) -> Iterator[Answer]:
    """The answers in no certain order. Tasks are taken as workers get free, so their maker may stop in the middle."""
    jobs = spreading.jobs
    if spreading.alone:
        yield from map(function, tasks)
        return
    require("parallel", "more than one job", "joblib")
    import joblib

    calls = (joblib.delayed(function)(task) for task in tasks)
    if spreading.on == "ray":
        require("cluster", "the backend ray", "ray")
        with _on_ray():
            # Ray's backend (2.60) gives answers only when all are there, so it is asked for some at a time.
            while some := list(islice(calls, 2 * jobs)):
                yield from joblib.Parallel(n_jobs=jobs)(some)
        return
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        work: Any = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1)
        yield from work(calls)


@contextlib.contextmanager
def _on_ray() -> Iterator[None]:
    """The cluster that RAY_ADDRESS names, or one of this machine, which ends with the work."""
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
