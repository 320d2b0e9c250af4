"""Requests of several clients in one batch: whoever waits while the workers are busy goes along with the next batch.

Nobody waits for company: a free worker takes what is there at once. A batch never exceeds the verified bound, and
requests go together only if the record shows that rows are independent of each other.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fairway.deploy.serve.pool import Hand, ModelFailed, Pool, WorkerDied
from fairway.deploy.serve.signature import ModelSignature
from fairway.deploy.serve.tensors import Array
from fairway.diagnostics.errors import UserError, complain

TRIES = 3
"""Workers that may die over one request before it is given up."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Batching:
    """How samples are put together: at most `limit` of them; `axes` is where each output has them."""

    limit: int
    axes: dict[str, int]
    why_not: str | None = None
    """Why requests are neither merged nor split; None where they are."""


@dataclass(eq=False)
class BatchJob:
    """One request, or a part of one, on its way to a worker."""

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
        """Jobs of one model with the same key can share a batch: all sizes but the batch's."""
        axes = self.signature.axes
        return tuple((*array.shape[: axes[name]], *array.shape[axes[name] + 1 :]) for name, array in self.feeds.items())


def split_sizes(rows: int, low: int, high: int, multiple: int) -> list[int] | None:
    """Parts of nearly equal size, each within the bounds; None where there are none such."""
    if rows % multiple or high < multiple:
        return None
    units, most = rows // multiple, high // multiple
    parts = -(-units // most)
    sizes = [(units // parts + (number < units % parts)) * multiple for number in range(parts)]
    return sizes if min(sizes) >= low else None


class Desk:
    """The queue in front of the workers."""

    def __init__(self, timeout: float, seen: Callable[[int, int], None]) -> None:
        self._timeout = timeout
        self._seen = seen
        self._waiting: list[BatchJob] = []
        self._running: set[asyncio.Task[None]] = set()
        self.pool: Pool

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def answer(self, jobs: list[BatchJob]) -> list[dict[str, Array]]:
        """The answers of all parts. A caller that gives up takes its jobs off the queue."""
        self._waiting += jobs
        self.wake()
        try:
            return list(await asyncio.gather(*(job.future for job in jobs)))
        finally:
            for job in jobs:
                job.future.cancel()

    def wake(self) -> None:
        """Hands out as much as there are free workers for."""
        while self._waiting and (hand := self.pool.idle()) is not None:
            batch = self._take()
            if batch:
                hand.busy = True
                task = asyncio.create_task(self._carry(hand, batch))
                self._running.add(task)
                task.add_done_callback(self._running.discard)

    def _take(self) -> list[BatchJob]:
        """The oldest job, and those behind it that fit into its batch."""
        self._waiting = [job for job in self._waiting if not job.future.done()]
        if not self._waiting:
            return []
        first = self._waiting.pop(0)
        if first.alone or first.batching.why_not is not None:
            return [first]
        batch, rows, key = [first], first.rows, first.key
        alike = [job for job in self._waiting if job.model == first.model and not job.alone and job.key == key]
        # Not all at once where there are several workers: the next one gets free before a large batch is done.
        share = -(-(rows + sum(job.rows for job in alike)) // max(1, len(self.pool.hands)))
        for job in alike:
            if rows < share and rows + job.rows <= first.batching.limit:
                batch.append(job)
                rows += job.rows
        taken = set(map(id, batch))
        self._waiting = [job for job in self._waiting if id(job) not in taken]
        return batch

    async def _carry(self, hand: Hand, batch: list[BatchJob]) -> None:
        first = batch[0]
        self._seen(first.model, sum(job.rows for job in batch))
        try:
            head = {"do": "run", "model": first.model, "outputs": [value.name for value in first.signature.outputs]}
            answers = dict(await asyncio.wait_for(hand.ask(head, _together(batch)), self._timeout))
            for job, answer in zip(batch, _apart(batch, answers), strict=True):
                if not job.future.done():
                    job.future.set_result(answer)
        except (WorkerDied, TimeoutError) as error:
            if isinstance(error, TimeoutError):
                hand.kill()
            self._again(batch, "took too long" if isinstance(error, TimeoutError) else "died")
        except ModelFailed as error:
            self._failed(batch, str(error))
        except Exception as error:
            _log.exception("a batch could not be carried out")
            for job in batch:
                if not job.future.done():
                    job.future.set_exception(error)
        finally:
            hand.busy = False
            self.wake()

    def _again(self, batch: list[BatchJob], what: str) -> None:
        """A worker is gone: each job is given to another one, by itself, since one of them may be the cause."""
        left = [job for job in batch if not job.future.done()]
        for job in left:
            job.alone, job.tries = True, job.tries + 1
            if job.tries >= TRIES:
                job.future.set_exception(complain("FW820", f"{job.tries} workers {what} over it"))
        self._waiting[:0] = [job for job in left if not job.future.done()]

    def _failed(self, batch: list[BatchJob], words: str) -> None:
        """The runtime refused. In a batch of several it may mean one of them only, so each is tried by itself."""
        if len(batch) == 1:
            shapes = ", ".join(f"{name}{list(array.shape)}" for name, array in batch[0].feeds.items())
            error: UserError = complain("FW408", f"{shapes}: {words:.300}")
            if not batch[0].future.done():
                batch[0].future.set_exception(error)
            return
        for job in batch:
            job.alone = True
        self._waiting[:0] = batch


def _together(batch: list[BatchJob]) -> list[tuple[str, str, list[int], list[Array]]]:
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


def _apart(batch: list[BatchJob], answers: dict[str, Array]) -> list[dict[str, Array]]:
    if len(batch) == 1:
        return [answers]
    ends = np.cumsum([job.rows for job in batch])[:-1]
    axes = batch[0].batching.axes
    for name, array in answers.items():
        if array.shape[axes[name]] != sum(job.rows for job in batch):
            raise complain("FW408", f"{name}{list(array.shape)}: not one answer for each sample of a batch")
    parted = {name: np.split(array, ends, axes[name]) for name, array in answers.items()}
    return [{name: parts[number] for name, parts in parted.items()} for number in range(len(batch))]
