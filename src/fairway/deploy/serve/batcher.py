"""Run requests of several clients in one batch: those that arrive while the workers are busy share the next batch.

A free worker takes what is there at once; it never waits for more requests. A batch never exceeds the verified bound.
Requests share one only if the record shows that rows are independent of each other.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fairway.deploy.serve.pool import ModelFailed, WorkerDied, WorkerHandle, WorkerPool
from fairway.deploy.serve.signature import ModelSignature
from fairway.deploy.serve.tensors import Array
from fairway.diagnostics import Code
from fairway.diagnostics.errors import UserError, complain

MAX_TRIES = 3
"""Workers that may die on one request before it fails."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Batching:
    """The largest batch, and the axis of each output along which its samples are."""

    limit: int
    axes: dict[str, int]
    why_not: str | None = None
    """The reason if requests are neither merged nor split."""


@dataclass(eq=False)
class BatchJob:
    """A request, or a part of one, that a worker has to run."""

    model: int
    signature: ModelSignature
    batching: Batching
    feeds: dict[str, Array]
    rows: int
    future: asyncio.Future[dict[str, Array]]
    alone: bool = False
    tries: int = 0
    arrived: float = field(default_factory=time.monotonic)

    @property
    def key(self) -> tuple[Any, ...]:
        """All sizes but the batch size. Jobs of one model with the same key can share a batch."""
        axes = self.signature.axes
        return tuple((*array.shape[: axes[name]], *array.shape[axes[name] + 1 :]) for name, array in self.feeds.items())


def split_sizes(rows: int, low: int, high: int, multiple: int) -> list[int] | None:
    """Split `rows` into nearly equal parts within the bounds, or return None if that is impossible."""
    if rows % multiple or high < multiple:
        return None
    units, most = rows // multiple, high // multiple
    parts = -(-units // most)
    sizes = [(units // parts + (number < units % parts)) * multiple for number in range(parts)]
    return sizes if min(sizes) >= low else None


class BatchQueue:
    """The requests that wait for a worker."""

    def __init__(self, timeout: float, on_batch: Callable[[int, int], None]) -> None:
        self._timeout = timeout
        self._on_batch = on_batch
        self._waiting: list[BatchJob] = []
        self._running: set[asyncio.Task[None]] = set()
        self.pool: WorkerPool

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    async def answer(self, jobs: list[BatchJob]) -> list[dict[str, Array]]:
        """Return the answers of all parts. If the caller is cancelled, its jobs leave the queue."""
        self._waiting += jobs
        self.wake()
        try:
            return list(await asyncio.gather(*(job.future for job in jobs)))
        finally:
            for job in jobs:
                job.future.cancel()

    def wake(self) -> None:
        """Give batches to all workers that are free."""
        while self._waiting and (worker := self.pool.find_idle()) is not None:
            batch = self._take_batch()
            if batch:
                worker.busy = True
                task = asyncio.create_task(self._run_batch(worker, batch))
                self._running.add(task)
                task.add_done_callback(self._running.discard)

    def _take_batch(self) -> list[BatchJob]:
        """Return the oldest job, and the later ones that fit into its batch."""
        self._waiting = [job for job in self._waiting if not job.future.done()]
        if not self._waiting:
            return []
        first = self._waiting.pop(0)
        if first.alone or first.batching.why_not is not None:
            return [first]
        batch, rows, key = [first], first.rows, first.key
        alike = [job for job in self._waiting if job.model == first.model and not job.alone and job.key == key]
        # With several workers a batch takes only its share: the next worker is free before a large batch is done.
        share = -(-(rows + sum(job.rows for job in alike)) // max(1, len(self.pool.workers)))
        for job in alike:
            if rows < share and rows + job.rows <= first.batching.limit:
                batch.append(job)
                rows += job.rows
        taken = set(map(id, batch))
        self._waiting = [job for job in self._waiting if id(job) not in taken]
        return batch

    async def _run_batch(self, worker: WorkerHandle, batch: list[BatchJob]) -> None:
        first = batch[0]
        self._on_batch(first.model, sum(job.rows for job in batch))
        try:
            head = {"do": "run", "model": first.model, "outputs": [value.name for value in first.signature.outputs]}
            answers = dict(await asyncio.wait_for(worker.ask(head, _merge_inputs(batch)), self._timeout))
            for job, answer in zip(batch, _split_answers(batch, answers), strict=True):
                if not job.future.done():
                    job.future.set_result(answer)
        except (WorkerDied, TimeoutError) as error:
            if isinstance(error, TimeoutError):
                worker.kill()
            self._requeue(batch, "took too long" if isinstance(error, TimeoutError) else "died")
        except ModelFailed as error:
            self._handle_failure(batch, str(error))
        except Exception as error:
            _log.exception("a batch could not be run")
            for job in batch:
                if not job.future.done():
                    job.future.set_exception(error)
        finally:
            worker.busy = False
            self.wake()

    def _requeue(self, batch: list[BatchJob], what: str) -> None:
        """Run each job again on another worker, and separately, since one of them may be why the worker is gone."""
        left = [job for job in batch if not job.future.done()]
        for job in left:
            job.alone, job.tries = True, job.tries + 1
            if job.tries >= MAX_TRIES:
                job.future.set_exception(
                    complain(Code.WORKERS_DIED, f"{job.tries} workers {what} while they ran this request")
                )
        self._waiting[:0] = [job for job in left if not job.future.done()]

    def _handle_failure(self, batch: list[BatchJob], message: str) -> None:
        """Fail a job that the runtime refused. The jobs of a larger batch are tried separately first."""
        if len(batch) == 1:
            shapes = ", ".join(f"{name}{list(array.shape)}" for name, array in batch[0].feeds.items())
            error: UserError = complain(Code.RUNTIME_FAILS, f"{shapes}: {message:.300}")
            if not batch[0].future.done():
                batch[0].future.set_exception(error)
            return
        for job in batch:
            job.alone = True
        self._waiting[:0] = batch


def _merge_inputs(batch: list[BatchJob]) -> list[tuple[str, str, list[int], list[Array]]]:
    first = batch[0]
    if len(batch) == 1:
        return [(name, array.dtype.name, list(array.shape), [array]) for name, array in first.feeds.items()]
    tensors = []
    for name, array in first.feeds.items():
        axis = first.signature.axes[name]
        parts = [job.feeds[name] for job in batch]
        shape = list(array.shape)
        shape[axis] = sum(part.shape[axis] for part in parts)
        tensors.append((name, array.dtype.name, shape, parts if axis == 0 else [np.concatenate(parts, axis)]))
    return tensors


def _split_answers(batch: list[BatchJob], answers: dict[str, Array]) -> list[dict[str, Array]]:
    if len(batch) == 1:
        return [answers]
    ends = np.cumsum([job.rows for job in batch])[:-1]
    axes = batch[0].batching.axes
    for name, array in answers.items():
        if array.shape[axes[name]] != sum(job.rows for job in batch):
            raise complain(
                Code.RUNTIME_FAILS, f"{name}{list(array.shape)}: expected one answer for each sample of a batch"
            )
    split = {name: np.split(array, ends, axes[name]) for name, array in answers.items()}
    return [{name: parts[number] for name, parts in split.items()} for number in range(len(batch))]
