"""The operations that both protocols offer: model metadata, inference, loading and unloading."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator

import numpy as np

from fairway.deploy.serve.batcher import BatchJob, BatchQueue, split_sizes
from fairway.deploy.serve.metrics import Metrics
from fairway.deploy.serve.model_registry import ModelRegistry, ServedModel
from fairway.deploy.serve.settings import VERSION, ServerSettings, choose_http_status
from fairway.deploy.serve.tensors import DATATYPES, Array, InferAnswer, InferRequest, refuse
from fairway.diagnostics import Code
from fairway.diagnostics.errors import UserError, complain

MAX_BODIES = 8
"""Request bodies of the largest size that fit into memory at once."""
EXTENSIONS = ("binary_tensor_data", "model_repository")


class Service:
    """The server without its sockets."""

    def __init__(self, registry: ModelRegistry, queue: BatchQueue, settings: ServerSettings, metrics: Metrics) -> None:
        self.registry = registry
        self.settings = settings
        self.metrics = metrics
        self.ready = False
        self.lines: list[str] = []
        self._queue = queue
        self._accepted = 0
        self._cache = AnswerCache(settings.cache)
        self.body_budget = BodyBudget(MAX_BODIES * settings.body)

    async def infer(self, name: str, version: str | None, request: InferRequest, protocol: str) -> InferAnswer:
        """Answer a request or raise its finding, and count it in the metrics."""
        began = time.monotonic()
        label = ("", "")
        status = 500
        try:
            if self._accepted >= self.settings.queue:
                raise complain(Code.SERVER_FULL, f"{self._accepted} requests are being answered; no more are accepted")
            self._accepted += 1
            try:
                served = self.registry.find(name, version)
                label = (served.name, served.version)
                with served.hold():
                    answer = await self._infer(served, request)
            finally:
                self._accepted -= 1
            status = 200
            return answer
        except UserError as error:
            status = choose_http_status(error.finding)
            raise
        finally:
            self.metrics.count_request(*label, protocol, status, time.monotonic() - began)

    async def _infer(self, served: ServedModel, request: InferRequest) -> InferAnswer:
        names = [value.name for value in served.signature.outputs]
        for name in request.outputs or ():
            if name not in names:
                refuse(f"there is no output {name!r:.80}; the outputs are {', '.join(names)}")
        feeds = {
            spec.name: request.inputs[spec.name] for spec in served.signature.inputs if spec.name in request.inputs
        }
        point = served.signature.fit({**request.inputs, **feeds})
        digest = self._cache.digest(served, feeds)
        answers = None if digest is None else self._cache.get(digest)
        if answers is None:
            answers = await self._compute(served, feeds, point)
            if digest is not None:
                self._cache.put(digest, answers)
        elif digest is not None:
            self.metrics.count_cached(served.name, served.version)
        return InferAnswer(served.name, served.version, {name: answers[name] for name in request.outputs or names})

    async def _compute(self, served: ServedModel, feeds: dict[str, Array], point: dict[str, int]) -> dict[str, Array]:
        jobs = _make_jobs(served, feeds, point)
        try:
            async with asyncio.timeout(self.settings.timeout):
                answers = await self._queue.answer(jobs)
        except TimeoutError:
            raise complain(Code.OUT_OF_TIME, f"no answer within {self.settings.timeout:g} s") from None
        if len(answers) == 1:
            return answers[0]
        axes = served.batching.axes
        return {name: np.concatenate([answer[name] for answer in answers], axes[name]) for name in answers[0]}

    def metadata(self, name: str, version: str | None) -> dict[str, object]:
        """Return names, types and sizes, with -1 for a size that varies, and what was verified."""
        served = self.registry.find(name, version, turn=False)
        signature = served.signature
        record = served.fetched.stored
        inputs = [
            _describe_tensor(
                spec.name, spec.dtype, [-1 if s.constant_value is None else s.constant_value for s in spec.shape]
            )
            for spec in signature.inputs
        ]
        outputs = [
            _describe_tensor(v.name, v.dtype, [s if isinstance(s, int) else -1 for s in v.shape or ()])
            for v in signature.outputs
        ]
        batching = served.batching
        return {
            "name": served.name,
            "versions": self.registry.versions(served.name),
            "platform": "onnx_onnxruntime",
            "inputs": inputs,
            "outputs": outputs,
            "parameters": {
                "version": served.version,
                "sha256": served.fetched.digest,
                "verified": "it has no record" if record is None else str(record.short),
                "spec": [str(spec) for spec in signature.inputs],
                "domain": {
                    name: {"low": d.low, "high": d.high, "multiple": d.multiple} for name, d in signature.domain.items()
                },
                "batches": batching.limit if batching.why_not is None else f"no: {batching.why_not}",
            },
        }

    def server_metadata(self) -> dict[str, object]:
        return {"name": "fairway", "version": VERSION, "extensions": list(EXTENSIONS)}

    def model_ready(self, name: str, version: str | None) -> bool:
        self.registry.find(name, version, turn=False)
        return self.ready


def _describe_tensor(name: str, dtype: str, shape: list[int]) -> dict[str, object]:
    return {"name": name, "datatype": DATATYPES[dtype], "shape": shape}


def _make_jobs(served: ServedModel, feeds: dict[str, Array], point: dict[str, int]) -> list[BatchJob]:
    """Return the request as one job, or split into parts if it has more samples than were verified at once."""
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


class BodyBudget:
    """The memory for all request bodies together. When it is used up, further requests are refused unread."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._used = 0

    @contextlib.contextmanager
    def reserve(self) -> Iterator[Callable[[int], None]]:
        """Yield a function that reserves bytes. They are released at the end."""
        reserved = 0

        def take(size: int) -> None:
            nonlocal reserved
            if self._used + size > self._size:
                raise complain(Code.SERVER_FULL, f"the requests that are being read have {self._used} bytes already")
            self._used += size
            reserved += size

        try:
            yield take
        finally:
            self._used -= reserved


class AnswerCache:
    """Answers by a hash of the request. The least recently used ones are dropped when the cache is full."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._answers: OrderedDict[bytes, dict[str, Array]] = OrderedDict()
        self._size = 0

    def digest(self, served: ServedModel, feeds: dict[str, Array]) -> bytes | None:
        if not self._max_bytes:
            return None
        digest = hashlib.blake2b(str(served.number).encode(), digest_size=32)
        for name, array in feeds.items():
            digest.update(f"{name}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.digest()

    def get(self, digest: bytes) -> dict[str, Array] | None:
        answers = self._answers.get(digest)
        if answers is not None:
            self._answers.move_to_end(digest)
        return answers

    def put(self, digest: bytes, answers: dict[str, Array]) -> None:
        size = sum(array.nbytes for array in answers.values())
        if size > self._max_bytes or digest in self._answers:
            return
        # A view would keep the whole batch alive.
        self._answers[digest] = {name: np.array(array) for name, array in answers.items()}
        self._size += size
        while self._size > self._max_bytes:
            _, old = self._answers.popitem(last=False)
            self._size -= sum(array.nbytes for array in old.values())
