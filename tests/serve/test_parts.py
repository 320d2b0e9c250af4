"""The parts without sockets: splitting, routes, sources, the canary, jobs whose workers die, the messages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from fairway.deploy.serve.aliases import parse_route
from fairway.deploy.serve.batcher import MAX_TRIES, Batching, BatchJob, BatchQueue, split_sizes
from fairway.deploy.serve.canary_check import check_canary
from fairway.deploy.serve.model_sources import fetch_model, parse_source
from fairway.deploy.serve.pool import WorkerDied
from fairway.deploy.serve.signature import ModelSignature, read_signature
from fairway.deploy.serve.tensors import InferAnswer, InferRequest, read_request, write_answer
from fairway.diagnostics.errors import UserError
from fairway.model import canary
from fairway.model.onnx_file import open_header
from fairway.model.spec import parse_input
from fairway.record.files import get_record_path
from fairway.record.reader import read_record
from serve.models import mixing, scaled

Answer = TypeVar("Answer")


@pytest.mark.parametrize(
    ("rows", "low", "high", "multiple", "parts"),
    [
        (9, 1, 8, 1, [5, 4]),
        (16, 1, 8, 1, [8, 8]),
        (17, 1, 8, 1, [6, 6, 5]),
        (20, 4, 8, 4, [8, 8, 4]),
        (10, 1, 8, 4, None),
        (9, 5, 8, 1, None),
    ],
)
def test_a_batch_is_split_into_nearly_equal_legal_parts(
    rows: int, low: int, high: int, multiple: int, parts: list[int] | None
) -> None:
    assert split_sizes(rows, low, high, multiple) == parts


def test_turns_are_taken_by_weight_and_evenly() -> None:
    _, route = parse_route("net=net@1:3,net@2:1")
    turns = [route.take_turn()[1] for _ in range(8)]
    assert turns == ["1", "1", "2", "1"] * 2
    for text in ("", "net", "net=", "a=b:x", "a=b:0"):
        with pytest.raises(UserError, match="FW006"):
            parse_route(text)


def test_sources_are_read_as_they_are_written() -> None:
    seen: dict[str, int] = {}
    words = ["a.onnx", "net=a.onnx", "net=b.onnx", "s3://bucket/some/net@3", "mlflow:net@verified", "x=published"]
    read = [parse_source(text, seen) for text in words]
    assert [(one.name, one.place, one.version, one.label) for one in read] == [
        ("a", "a.onnx", None, "1"),
        ("net", "a.onnx", None, "1"),
        ("net", "b.onnx", None, "2"),
        ("net", "s3://bucket/some/net", "3", None),
        ("net", "mlflow:net", "verified", None),
        ("x", "published", None, None),
    ]


def through(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Run in a separate thread: a browser of other tests may keep a loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def opened(model: Path) -> tuple[ModelSignature, Any]:
    stored = read_record(get_record_path(model))
    return read_signature(open_header(model), stored, False), stored


def runner(model: Path, change: Any = None) -> Any:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]

    async def ask(feeds: dict[str, Any]) -> dict[str, Any]:
        got = dict(zip(names, session.run(None, feeds), strict=True))
        return got if change is None else change(got)

    return ask


def test_the_record_decides_whether_samples_may_be_put_together(tmp_path: Path) -> None:
    model = scaled(tmp_path / "net.onnx")
    assert through(check_canary(runner(model), *opened(model), None)) == Batching(8, {"y": 0})
    model = mixing(tmp_path / "mixing.onnx")
    found = through(check_canary(runner(model), *opened(model), None))
    assert found.why_not is not None
    assert "rows depend on each other" in found.why_not


def with_canary(model: Path) -> None:
    """Writes into the record what the judge would."""
    import onnxruntime

    signature, _ = opened(model)
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    record = json.loads(get_record_path(model).read_text())
    record["evidence"]["canary"] = canary.make_canary(
        signature.inputs, {"batch": 2, "time": 4}, lambda feeds: {"y": session.run(None, feeds)[0]}
    )
    get_record_path(model).write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda got: {"y": got["y"] * 1.001}, "is off by"),
        (lambda got: {"y": got["y"][:, :0]}, "has the shape|the record has"),
        (lambda got: {"y": np.full_like(got["y"], np.nan)}, "NaN"),
        (lambda got: {"y": got["y"].astype(np.float64)}, "is float64"),
        (lambda got: {}, "is missing"),
    ],
)
def test_a_wrong_answer_to_the_records_canary_is_noticed(tmp_path: Path, change: Any, words: str) -> None:
    model = scaled(tmp_path / "net.onnx")
    with_canary(model)
    assert through(check_canary(runner(model), *opened(model), None)).why_not is None
    with pytest.raises(UserError, match=f"FW815.*({words})"):
        through(check_canary(runner(model, change), *opened(model), None))


def test_the_canarys_inputs_are_the_same_on_every_machine() -> None:
    specs = [parse_input("x: float32[batch, 2] in 0..1"), parse_input("ids: int64[batch] < 9")]
    drawn = canary.draw_canary_inputs(specs, {"batch": 3})
    assert drawn["ids"].tolist() == [0, 6, 8]
    np.testing.assert_allclose(drawn["x"].reshape(-1)[:2], [0.5881308, 0.89771372], rtol=1e-6)


def test_an_export_writes_a_canary_that_the_served_file_answers(tmp_path: Path) -> None:
    import torch

    import fairway

    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
    fairway.export(
        net,
        ["input: float32[batch, 3]"],
        tmp_path / "net.onnx",
        bounds={"batch": (1, 4)},
        level="quick",
        routes=["trace"],
    )
    signature, stored = opened(tmp_path / "net.onnx")
    assert stored.evidence.canary.point == {"batch": 2}
    assert through(check_canary(runner(tmp_path / "net.onnx"), signature, stored, None)).limit == 4


def test_what_is_served_is_a_copy_that_nobody_changes(tmp_path: Path) -> None:
    model = scaled(tmp_path / "net.onnx")
    fetched = fetch_model(parse_source(str(model), {}), None, tmp_path, unverified=False)
    before = model.read_bytes()
    model.write_bytes(b"something else")
    assert fetched.path.read_bytes() == before
    assert fetched.version == "1"


class DyingWorker:
    """A worker that dies on every request."""

    def __init__(self) -> None:
        self.busy, self.alive, self.requests = False, True, 0

    async def ask(self, head: Any, tensors: Any) -> Any:
        self.requests += 1
        raise WorkerDied


class OneWorkerPool:
    def __init__(self, worker: DyingWorker) -> None:
        self.worker = worker
        self.workers = [worker]

    def find_idle(self) -> Any:
        return None if self.worker.busy else self.worker


def test_a_request_on_which_workers_die_fails_alone() -> None:
    async def go() -> int:
        queue, worker = BatchQueue(5.0, lambda model, rows: None), DyingWorker()
        queue.pool = OneWorkerPool(worker)  # type: ignore[assignment]
        signature = ModelSignature((parse_input("x: float32[batch, 3]"),), (), {}, True)
        feeds = {"x": np.zeros((1, 3), np.float32)}
        loop = asyncio.get_running_loop()
        jobs = [BatchJob(1, signature, Batching(8, {}), feeds, 1, loop.create_future()) for _ in range(2)]
        with pytest.raises(UserError, match="FW820"):
            await queue.answer(jobs[:1])
        results = await asyncio.gather(*(queue.answer([job]) for job in jobs[1:]), return_exceptions=True)
        assert all("FW820" in str(one) for one in results)
        return worker.requests

    assert through(go()) == 2 * MAX_TRIES


def test_infinity_is_not_written_as_json_and_is_as_raw_bytes() -> None:
    answered = InferAnswer("net", "1", {"y": np.array([np.inf], np.float32)})
    with pytest.raises(UserError, match="JSON cannot express"):
        write_answer(answered, InferRequest({}))
    body, size = write_answer(answered, InferRequest({}, binary_default=True))
    assert size is not None
    assert np.frombuffer(body[size:], np.float32)[0] == np.inf


@pytest.mark.parametrize("size", [-1, 10**6])
def test_a_head_longer_than_the_body_is_refused(size: int) -> None:
    with pytest.raises(UserError, match="FW812"):
        read_request(b"{}", size)
