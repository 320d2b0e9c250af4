"""What both protocols ask for, said once: look at a model, infer, load, unload."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fairway.deploy.serve.batcher import BatchJob, Desk, split_sizes
from fairway.deploy.serve.metrics import Metrics
from fairway.deploy.serve.model_registry import ModelRegistry, ServedModel
from fairway.deploy.serve.settings import VERSION, ServerSettings, http_status
from fairway.deploy.serve.tensors import DATATYPES, Answered, Array, InferRequest, refuse
from fairway.diagnostics.errors import UserError, complain

BODIES = 8
"""Bodies of the largest size that are in memory at once."""
EXTENSIONS = ("binary_tensor_data", "model_repository")


class Service:
    """The server without its sockets."""

    def __init__(self, shelf: ModelRegistry, desk: Desk, settings: ServerSettings, metrics: Metrics) -> None:
        self.shelf = shelf
        self.settings = settings
        self.metrics = metrics
        self.ready = False
        self.lines: list[str] = []
        self._desk = desk
        self._accepted = 0
        self._cache = Cache(settings.cache)
        self.room = Room(BODIES * settings.body)

    async def infer(self, name: str, version: str | None, asked: InferRequest, protocol: str) -> Answered:
        """The answer, or a finding; and a line in the metrics in any case."""
        began = time.monotonic()
        label = ("", "")
        status = 500
        try:
            if self._accepted >= self.settings.queue:
                raise complain("FW816", f"{self._accepted} requests are being answered, and more are not taken")
            self._accepted += 1
            try:
                served = self.shelf.find(name, version)
                label = (served.name, served.version)
                with served.held():
                    answered = await self._infer(served, asked)
            finally:
                self._accepted -= 1
            status = 200
            return answered
        except UserError as error:
            status = http_status(error.finding)
            raise
        finally:
            self.metrics.request(*label, protocol, status, time.monotonic() - began)

    async def _infer(self, served: ServedModel, asked: InferRequest) -> Answered:
        names = [value.name for value in served.signature.outputs]
        for name in asked.outputs or ():
            if name not in names:
                refuse(f"there is no output {name!r:.80}; the outputs are {', '.join(names)}")
        feeds = {spec.name: asked.inputs[spec.name] for spec in served.signature.inputs if spec.name in asked.inputs}
        point = served.signature.fit({**asked.inputs, **feeds})
        digest = self._cache.digest(served, feeds)
        answers = None if digest is None else self._cache.get(digest)
        if answers is None:
            answers = await self._compute(served, feeds, point)
            if digest is not None:
                self._cache.put(digest, answers)
        elif digest is not None:
            self.metrics.cached(served.name, served.version)
        return Answered(served.name, served.version, {name: answers[name] for name in asked.outputs or names})

    async def _compute(self, served: ServedModel, feeds: dict[str, Array], point: dict[str, int]) -> dict[str, Array]:
        jobs = _jobs(served, feeds, point)
        try:
            async with asyncio.timeout(self.settings.timeout):
                answers = await self._desk.answer(jobs)
        except TimeoutError:
            raise complain("FW818", f"there was no answer within {self.settings.timeout:g} s") from None
        if len(answers) == 1:
            return answers[0]
        axes = served.batching.axes
        return {name: np.concatenate([answer[name] for answer in answers], axes[name]) for name in answers[0]}

    def metadata(self, name: str, version: str | None) -> dict[str, Any]:
        """Names, types and sizes; -1 for a size that varies. Beside the protocol's fields: what was verified."""
        served = self.shelf.find(name, version, turn=False)
        signature = served.signature
        proven = None if served.fetched.stored is None else served.fetched.stored.proven
        inputs = [
            _tensor(spec.name, spec.dtype, [-1 if s.fixed is None else s.fixed for s in spec.shape])
            for spec in signature.inputs
        ]
        outputs = [
            _tensor(v.name, v.dtype, [s if isinstance(s, int) else -1 for s in v.shape or ()])
            for v in signature.outputs
        ]
        batching = served.batching
        return {
            "name": served.name,
            "versions": self.shelf.versions(served.name),
            "platform": "onnx_onnxruntime",
            "inputs": inputs,
            "outputs": outputs,
            "parameters": {
                "version": served.version,
                "sha256": served.fetched.digest,
                "verified": "nothing is known of it" if proven is None else str(proven),
                "spec": [str(spec) for spec in signature.inputs],
                "domain": {
                    name: {"low": d.low, "high": d.high, "multiple": d.multiple} for name, d in signature.domain.items()
                },
                "batches": batching.limit if batching.why_not is None else f"no: {batching.why_not}",
            },
        }

    def server_metadata(self) -> dict[str, Any]:
        return {"name": "fairway", "version": VERSION, "extensions": list(EXTENSIONS)}

    def model_ready(self, name: str, version: str | None) -> bool:
        self.shelf.find(name, version, turn=False)
        return self.ready


def _tensor(name: str, dtype: str, shape: list[int]) -> dict[str, Any]:
    return {"name": name, "datatype": DATATYPES[dtype], "shape": shape}


def _jobs(served: ServedModel, feeds: dict[str, Array], point: dict[str, int]) -> list[BatchJob]:
    """The request as it is, or in parts where it holds more samples than were verified at once."""
    signature, batching = served.signature, served.batching
    dim = signature.domain.get(signature.batch or "")
    rows = point.get(signature.batch or "", 1)
    if dim is None or rows <= dim.high or (batching.why_not is not None and not signature.strict):
        return [served.job(feeds, rows)]
    sizes = split_sizes(rows, dim.low, batching.limit, dim.multiple)
    if batching.why_not is not None or sizes is None:
        signature.refuse_batch(rows, batching.why_not or f"no parts of it lie within {dim}")
    ends = np.cumsum(sizes)[:-1]
    parts = {name: np.split(array, ends, signature.axes[name]) for name, array in feeds.items()}
    return [served.job({name: part[n] for name, part in parts.items()}, size) for n, size in enumerate(sizes)]


class Room:
    """Memory for the bodies of all requests together: many large ones at once are turned away, not read."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._used = 0

    @contextlib.contextmanager
    def taken(self) -> Iterator[Callable[[int], None]]:
        """A function that asks for bytes; they are given back at the end."""
        mine = 0

        def take(size: int) -> None:
            nonlocal mine
            if self._used + size > self._size:
                raise complain("FW816", f"the requests that are being read have {self._used} bytes already")
            self._used += size
            mine += size

        try:
            yield take
        finally:
            self._used -= mine


class Cache:
    """Answers by the bytes that were asked, as long as they have room; the least lately used one goes first."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._held: OrderedDict[bytes, dict[str, Array]] = OrderedDict()
        self._size = 0

    def digest(self, served: ServedModel, feeds: dict[str, Array]) -> bytes | None:
        if not self._room:
            return None
        digest = hashlib.blake2b(str(served.number).encode(), digest_size=32)
        for name, array in feeds.items():
            digest.update(f"{name}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.digest()

    def get(self, digest: bytes) -> dict[str, Array] | None:
        found = self._held.get(digest)
        if found is not None:
            self._held.move_to_end(digest)
        return found

    def put(self, digest: bytes, answers: dict[str, Array]) -> None:
        size = sum(array.nbytes for array in answers.values())
        if size > self._room or digest in self._held:
            return
        # A view would keep the whole batch alive.
        self._held[digest] = {name: np.array(array) for name, array in answers.items()}
        self._size += size
        while self._size > self._room:
            _, old = self._held.popitem(last=False)
            self._size -= sum(array.nbytes for array in old.values())
