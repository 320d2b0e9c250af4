"""The models that are served, by name, version and alias. They are loaded and unloaded while requests are answered."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fairway.deploy.serve.aliases import Alias
from fairway.deploy.serve.batcher import Batching, BatchJob, BatchQueue
from fairway.deploy.serve.canary_check import check_canary, choose_canary_point, describe_check
from fairway.deploy.serve.model_sources import FetchedModel, ModelSource, delete_fetched, fetch_model
from fairway.deploy.serve.pool import WorkerPool
from fairway.deploy.serve.settings import ServerSettings
from fairway.deploy.serve.signature import ModelSignature, read_signature
from fairway.deploy.serve.tensors import Array
from fairway.diagnostics import Code
from fairway.diagnostics.errors import UserError, complain

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class ServedModel:
    """One version of a model that is loaded in every worker."""

    number: int
    fetched: FetchedModel
    signature: ModelSignature
    pinned: bool = False
    """Loaded by its version, so it stays when a newer one is loaded."""
    batching: Batching = field(default_factory=lambda: Batching(1, {}, "the canary was not tested yet"))
    active_requests: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def name(self) -> str:
        return self.fetched.source.name

    @property
    def version(self) -> str:
        return self.fetched.version

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keep the version loaded inside the block, while a request is answered."""
        self.active_requests += 1
        try:
            yield
        finally:
            self.active_requests -= 1
            if self.active_requests == 0:
                self.idle.set()

    async def wait_until_idle(self) -> None:
        while self.active_requests:
            self.idle.clear()
            await self.idle.wait()

    def job(self, feeds: dict[str, Array], rows: int, alone: bool = False) -> BatchJob:
        future: asyncio.Future[dict[str, Array]] = asyncio.get_running_loop().create_future()
        return BatchJob(self.number, self.signature, self.batching, feeds, rows, future, alone)


class ModelRegistry:
    """All models. They are loaded one at a time; requests never wait for that."""

    def __init__(
        self,
        sources: list[ModelSource],
        routes: dict[str, Alias],
        queue: BatchQueue,
        pool: WorkerPool,
        scratch: Path,
        settings: ServerSettings,
    ) -> None:
        self._sources = sources
        self.routes = routes
        self._queue, self._pool, self._scratch, self._settings = queue, pool, scratch, settings
        self._live: dict[str, dict[str, ServedModel]] = {source.name: {} for source in sources}
        self._loading = asyncio.Lock()
        self._count = 0
        self._leaving: set[asyncio.Task[None]] = set()
        for alias, route in routes.items():
            for name, _, _ in route.targets:
                if name not in self._live:
                    raise complain(Code.UNKNOWN_OPTION, f"--traffic {alias}: no model {name!r:.80} is served")

    async def load_all(self) -> list[str]:
        """Load the models that the server was started with, and return one line for each."""
        lines = []
        for source in self._sources:
            async with self._loading:
                served = await self._load_source(source, None)
            point = choose_canary_point(served.signature, served.fetched.stored)
            lines.append(f"{served.name} {served.version}: {describe_check(served.batching, served.signature, point)}")
        for alias, route in self.routes.items():
            for name, version, _ in route.targets:
                if version is not None and version not in self._live[name]:
                    raise complain(Code.UNKNOWN_OPTION, f"--traffic {alias}: {name} has no version {version!r:.80}")
        return lines

    async def load(self, name: str, version: str | None) -> None:
        """Load the newest version of a model, or the given one. The old version answers until the new one can."""
        self._refuse_if_fixed()
        sources = [source for source in self._sources if source.name == name]
        if not sources:
            raise complain(
                Code.MODEL_NOT_SERVED, f"there is no model {name!r:.80}; models are named when the server is started"
            )
        if version is not None:
            published = [source for source in sources if not source.is_file]
            if not published:
                raise complain(Code.MODEL_NOT_SERVED, f"{name} is a plain file, which has no version {version!r:.80}")
            sources = published[:1]
        async with self._loading:
            for source in sources:
                await self._load_source(source, version)

    def _refuse_if_fixed(self) -> None:
        if self._settings.fixed:
            todo = ("Deploy again with other models.",)
            raise complain(
                Code.REQUEST_DOES_NOT_FIT,
                "models cannot be loaded or unloaded here, because the other replicas would not do the same",
                todo=todo,
            )

    async def _load_source(self, source: ModelSource, version: str | None) -> ServedModel:
        fetched = await asyncio.to_thread(fetch_model, source, version, self._scratch, self._settings.unverified)
        live = self._live[source.name]
        before = live.get(fetched.version)
        if before is not None and before.fetched.digest == fetched.digest:
            delete_fetched(fetched, self._scratch)
            return before
        self._count += 1
        signature = read_signature(fetched.header, fetched.stored, self._settings.unverified)
        served = ServedModel(self._count, fetched, signature, pinned=(version or source.version) is not None)
        await self._pool.load(served.number, fetched.path)
        try:
            await self._test_canary(served)
        except BaseException:
            await self._pool.drop(served.number)
            delete_fetched(fetched, self._scratch)
            raise
        leaving = [before] if before is not None else []
        if not served.pinned:
            same = [other for other in live.values() if other.fetched.source == source and not other.pinned]
            leaving += [other for other in same if other is not before]
        for old in leaving:
            live.pop(old.version, None)
        live[fetched.version] = served
        if served.batching.why_not is not None:
            _log.info("%s %s: requests are run one by one: %s", served.name, served.version, served.batching.why_not)
        for old in leaving:
            self._start_unloading(old)
        return served

    async def _test_canary(self, served: ServedModel) -> None:
        async def ask(feeds: dict[str, Array]) -> dict[str, Array]:
            return (await self._queue.answer([served.job(feeds, 1, alone=True)]))[0]

        try:
            async with asyncio.timeout(self._settings.timeout):
                served.batching = await check_canary(ask, served.signature, served.fetched.stored, self._settings.batch)
        except TimeoutError:
            raise complain(
                Code.NOT_FIT_TO_SERVE, f"the canary was not answered within {self._settings.timeout:g} s"
            ) from None
        except UserError as error:
            if error.finding.code == Code.NOT_FIT_TO_SERVE:
                raise
            raise complain(Code.NOT_FIT_TO_SERVE, f"the canary was not answered: {error.finding.seen}") from error

    async def unload(self, name: str) -> None:
        """Refuse new requests at once, answer those that were accepted, and then unload the model."""
        self._refuse_if_fixed()
        if name not in self._live:
            raise complain(Code.MODEL_NOT_SERVED, f"there is no model {name!r:.80}")
        async with self._loading:
            leaving = list(self._live[name].values())
            self._live[name].clear()
        await asyncio.gather(*(self._unload(served) for served in leaving))

    def _start_unloading(self, served: ServedModel) -> None:
        task = asyncio.create_task(self._unload(served))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _unload(self, served: ServedModel) -> None:
        await served.wait_until_idle()
        await self._pool.drop(served.number)
        delete_fetched(served.fetched, self._scratch)
        _log.info("%s %s is no longer served", served.name, served.version)

    def find(self, name: str, version: str | None = None, turn: bool = True) -> ServedModel:
        """Return the requested version, the next one of a weighted route, or the newest.

        With `turn=False`, for requests that only read metadata, the route does not advance.
        """
        if version is None and name in self.routes:
            route = self.routes[name]
            name, version = route.take_turn() if turn else route.targets[0][:2]
        live = self._live.get(name)
        if live is None:
            known = ", ".join([*self._live, *(alias for alias in self.routes if alias not in self._live)])
            raise complain(Code.MODEL_NOT_SERVED, f"there is no model {name!r:.80}; there are {known}")
        if not live or (version is not None and version not in live):
            what = "is not loaded" if not live else f"has no version {version!r:.80}; there are {', '.join(live)}"
            raise complain(Code.MODEL_NOT_SERVED, f"{name} {what}")
        return (
            live[version]
            if version is not None
            else max(live.values(), key=lambda served: _version_sort_key(served.version))
        )

    def versions(self, name: str) -> list[str]:
        return sorted(self._live.get(name, {}), key=_version_sort_key)

    def index(self) -> list[dict[str, str]]:
        """List every model and version, loaded or not, as the repository extension does."""
        rows = []
        for name, live in self._live.items():
            rows += [{"name": name, "version": v, "state": "READY", "reason": ""} for v in self.versions(name)]
            if not live:
                rows.append({"name": name, "version": "", "state": "UNAVAILABLE", "reason": "unloaded"})
        return rows


def _version_sort_key(version: str) -> tuple[int, str]:
    return (int(version), "") if version.isdecimal() else (-1, version)
