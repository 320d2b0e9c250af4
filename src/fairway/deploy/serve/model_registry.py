"""The models that are served: by name and version, under aliases, by weight; taken in and out under load."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fairway.deploy.serve.aliases import Alias
from fairway.deploy.serve.batcher import Batching, BatchJob, Desk
from fairway.deploy.serve.canary_check import describe, examine, example
from fairway.deploy.serve.model_sources import Fetched, ModelSource, fetch, forget
from fairway.deploy.serve.pool import Pool
from fairway.deploy.serve.settings import ServerSettings
from fairway.deploy.serve.signature import ModelSignature, read_signature
from fairway.deploy.serve.tensors import Array
from fairway.diagnostics.errors import UserError, complain

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class ServedModel:
    """One version of a model that is loaded in every worker."""

    number: int
    fetched: Fetched
    signature: ModelSignature
    pinned: bool = False
    """Loaded by its version, so it stays when a newer one comes."""
    batching: Batching = field(default_factory=lambda: Batching(1, {}, "the canary was not asked yet"))
    asked: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def name(self) -> str:
        return self.fetched.source.name

    @property
    def version(self) -> str:
        return self.fetched.version

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """While a request is in here, the version is not taken away."""
        self.asked += 1
        try:
            yield
        finally:
            self.asked -= 1
            if self.asked == 0:
                self.idle.set()

    async def drained(self) -> None:
        while self.asked:
            self.idle.clear()
            await self.idle.wait()

    def job(self, feeds: dict[str, Array], rows: int, alone: bool = False) -> BatchJob:
        future: asyncio.Future[dict[str, Array]] = asyncio.get_running_loop().create_future()
        return BatchJob(self.number, self.signature, self.batching, feeds, rows, future, alone)


class ModelRegistry:
    """All of them. Loading goes one at a time; asking never waits for it."""

    def __init__(
        self,
        sources: list[ModelSource],
        routes: dict[str, Alias],
        desk: Desk,
        pool: Pool,
        scratch: Path,
        settings: ServerSettings,
    ) -> None:
        self._sources = sources
        self.routes = routes
        self._desk, self._pool, self._scratch, self._settings = desk, pool, scratch, settings
        self._live: dict[str, dict[str, ServedModel]] = {source.name: {} for source in sources}
        self._loading = asyncio.Lock()
        self._count = 0
        self._leaving: set[asyncio.Task[None]] = set()
        for alias, route in routes.items():
            for name, _, _ in route.targets:
                if name not in self._live:
                    raise complain("FW006", f"--route {alias}: no model {name!r:.80} is served")

    async def load_all(self) -> list[str]:
        """Loads what was named at the start; one line for each."""
        lines = []
        for source in self._sources:
            async with self._loading:
                served = await self._take_in(source, None)
            point = example(served.signature, served.fetched.stored)
            lines.append(f"{served.name} {served.version}: {describe(served.batching, served.signature, point)}")
        for alias, route in self.routes.items():
            for name, version, _ in route.targets:
                if version is not None and version not in self._live[name]:
                    raise complain("FW006", f"--route {alias}: {name} has no version {version!r:.80}")
        return lines

    async def load(self, name: str, version: str | None) -> None:
        """Loads the newest of a model, or a version beside the others. The old one answers until the new one can."""
        self._refuse_if_fixed()
        mine = [source for source in self._sources if source.name == name]
        if not mine:
            raise complain("FW814", f"there is no model {name!r:.80}; models are named when the server is started")
        if version is not None:
            published = [source for source in mine if not source.plain]
            if not published:
                raise complain("FW814", f"{name} is a plain file, which has no version {version!r:.80}")
            mine = published[:1]
        async with self._loading:
            for source in mine:
                await self._take_in(source, version)

    def _refuse_if_fixed(self) -> None:
        if self._settings.fixed:
            todo = ("Deploy again, with the models that are wanted.",)
            raise complain("FW812", "models are not loaded or unloaded here: other replicas would not hear", todo=todo)

    async def _take_in(self, source: ModelSource, version: str | None) -> ServedModel:
        fetched = await asyncio.to_thread(fetch, source, version, self._scratch, self._settings.unverified)
        live = self._live[source.name]
        before = live.get(fetched.version)
        if before is not None and before.fetched.digest == fetched.digest:
            forget(fetched, self._scratch)
            return before
        self._count += 1
        signature = read_signature(fetched.header, fetched.stored, self._settings.unverified)
        served = ServedModel(self._count, fetched, signature, pinned=(version or source.version) is not None)
        await self._pool.load(served.number, fetched.path)
        try:
            await self._ask_canary(served)
        except BaseException:
            await self._pool.drop(served.number)
            forget(fetched, self._scratch)
            raise
        leaving = [before] if before is not None else []
        if not served.pinned:
            same = [one for one in live.values() if one.fetched.source == source and not one.pinned]
            leaving += [one for one in same if one is not before]
        for one in leaving:
            live.pop(one.version, None)
        live[fetched.version] = served
        if served.batching.why_not is not None:
            _log.info("%s %s: requests run one by one: %s", served.name, served.version, served.batching.why_not)
        for one in leaving:
            self._let_go(one)
        return served

    async def _ask_canary(self, served: ServedModel) -> None:
        async def ask(feeds: dict[str, Array]) -> dict[str, Array]:
            return (await self._desk.answer([served.job(feeds, 1, alone=True)]))[0]

        try:
            async with asyncio.timeout(self._settings.timeout):
                served.batching = await examine(ask, served.signature, served.fetched.stored, self._settings.batch)
        except TimeoutError:
            raise complain("FW815", f"the canary was not answered in {self._settings.timeout:g} s") from None
        except UserError as error:
            if error.finding.code == "FW815":
                raise
            raise complain("FW815", f"the canary was not answered: {error.finding.seen}") from error

    async def unload(self, name: str) -> None:
        """New requests are refused at once; those that are in are answered before the model goes."""
        self._refuse_if_fixed()
        if name not in self._live:
            raise complain("FW814", f"there is no model {name!r:.80}")
        async with self._loading:
            leaving = list(self._live[name].values())
            self._live[name].clear()
        await asyncio.gather(*(self._depart(one) for one in leaving))

    def _let_go(self, served: ServedModel) -> None:
        task = asyncio.create_task(self._depart(served))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _depart(self, served: ServedModel) -> None:
        await served.drained()
        await self._pool.drop(served.number)
        forget(served.fetched, self._scratch)
        _log.info("%s %s is no longer served", served.name, served.version)

    def find(self, name: str, version: str | None = None, turn: bool = True) -> ServedModel:
        """The version that is to answer: the one asked for, the one whose turn it is, or the newest.

        Whoever only looks uses up nobody's turn.
        """
        if version is None and name in self.routes:
            route = self.routes[name]
            name, version = route.next() if turn else route.targets[0][:2]
        live = self._live.get(name)
        if live is None:
            known = ", ".join([*self._live, *(alias for alias in self.routes if alias not in self._live)])
            raise complain("FW814", f"there is no model {name!r:.80}; there are {known}")
        if not live or (version is not None and version not in live):
            what = "is not loaded" if not live else f"has no version {version!r:.80}; there are {', '.join(live)}"
            raise complain("FW814", f"{name} {what}")
        return live[version] if version is not None else max(live.values(), key=lambda one: _order(one.version))

    def versions(self, name: str) -> list[str]:
        return sorted(self._live.get(name, {}), key=_order)

    def index(self) -> list[dict[str, str]]:
        """Every model and version, loaded or not, as the repository extension lists them."""
        rows = []
        for name, live in self._live.items():
            rows += [{"name": name, "version": one, "state": "READY", "reason": ""} for one in self.versions(name)]
            if not live:
                rows.append({"name": name, "version": "", "state": "UNAVAILABLE", "reason": "unloaded"})
        return rows


def _order(version: str) -> tuple[int, str]:
    return (int(version), "") if version.isdecimal() else (-1, version)
