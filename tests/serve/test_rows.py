"""Requests of several clients share a batch only if the record shows that rows are independent of each other."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
import torch

import fairway
from fairway.deploy.publish.places import publish
from fairway.deploy.serve.canary_check import check_canary
from fairway.deploy.serve.merge_rules import plan_batching
from fairway.deploy.serve.signature import read_signature
from fairway.diagnostics.errors import UserError
from fairway.model.onnx_file import open_header
from fairway.record.files import get_record_path
from fairway.record.reader import read_record
from serve.conftest import Array, Running, Start, ask, outputs, until
from serve.models import mixing, scaled
from serve.test_parts import opened, runner, through

Forward = Callable[[torch.Tensor], torch.Tensor]


class Net(torch.nn.Module):
    def __init__(self, function: Forward) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


MIXING: dict[str, Forward] = {
    "cumsum": lambda x: x.cumsum(0),
    "first": lambda x: x - x[:1],
    "mean": lambda x: x - x.mean(0, keepdim=True),
    "sort": lambda x: x.sort(0).values,
}


def export(model: torch.nn.Module, path: Path, line: str = "x: float32[batch, 3]") -> Path:
    result = fairway.export(model, [line], path, bounds={"batch": (1, 8)}, level="quick", routes=["trace"])
    assert result.verdict == "verified"
    return path


def batches_so_far(server: Running) -> int:
    text = requests.get(f"{server.url}/metrics", timeout=30).text
    found = re.search(r"^fairway_batch_samples_count (\S+)$", text, re.M)
    assert found is not None
    return int(float(found[1]))


def waiting(server: Running) -> int:
    text = requests.get(f"{server.url}/metrics", timeout=30).text
    found = re.search(r"^fairway_waiting (\S+)$", text, re.M)
    assert found is not None
    return int(float(found[1]))


def ask_at_once(server: Running, model: str, inputs: list[Array], name: str = "x") -> tuple[list[Array], int]:
    """Sends the requests while the one worker stands still, so that all but the first wait together.

    Returns the answers, and the number of batches in which the worker got them.
    """
    (worker,) = server.workers()
    before = batches_so_far(server)
    with ThreadPoolExecutor(len(inputs)) as clients:
        os.kill(worker, signal.SIGSTOP)
        try:
            sent = []
            for number, array in enumerate(inputs):
                sent.append(clients.submit(lambda array=array: ask(server.url, model, **{name: array})))
                until(lambda number=number: waiting(server) == number and batches_so_far(server) == before + 1)
        finally:
            os.kill(worker, signal.SIGCONT)
        answers = [next(iter(outputs(one.result(60)).values())) for one in sent]
    return answers, batches_so_far(server) - before


def test_concurrent_clients_get_their_own_answers_and_independent_rows_are_merged(
    tmp_path: Path, serving: Start
) -> None:
    models = [export(Net(function), tmp_path / f"{name}.onnx") for name, function in MIXING.items()]
    torch.manual_seed(0)
    mlp = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    models.append(export(mlp, tmp_path / "mlp.onnx", "input: float32[batch, 3]"))
    server = serving(*map(str, models), "--workers", "1")
    generator = np.random.default_rng(3)
    inputs = [generator.normal(size=(rows, 3)).astype(np.float32) for rows in (1, 2, 1, 3)]
    for name, function in MIXING.items():
        answers, batches = ask_at_once(server, name, inputs)
        for given, answer in zip(inputs, answers, strict=True):
            np.testing.assert_allclose(answer, function(torch.from_numpy(given)).numpy(), atol=1e-5)
        assert batches == 4
        line = next(line for line in server.lines if line.startswith(f"{name} 1:"))
        assert "requests are run one by one: rows depend on each other: " in line
        told = requests.get(f"{server.url}/v2/models/{name}", timeout=30).json()
        assert told["parameters"]["batches"].startswith("no: rows depend on each other")
    answers, batches = ask_at_once(server, "mlp", inputs, "input")
    for given, answer in zip(inputs, answers, strict=True):
        np.testing.assert_allclose(answer, mlp(torch.from_numpy(given)).detach().numpy(), atol=1e-5)
    assert batches == 2
    assert any("mlp 1: " in line and "batches of up to 8 along batch" in line for line in server.lines)


def change_record(model: Path, change: Callable[[dict[str, Any]], object]) -> None:
    record = json.loads(get_record_path(model).read_text())
    change(record)
    get_record_path(model).write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda record: record["evidence"].pop("rows"), "does not say whether rows depend on each other"),
        (lambda record: record.update(evidence=None), "does not say whether rows depend on each other"),
        (lambda record: record["evidence"].update(rows=None), "does not say whether rows depend on each other"),
        (lambda record: record["evidence"]["rows"].pop("independent"), "rows depend on each other"),
        (lambda record: record["evidence"]["rows"].pop("sizes"), "at which sizes"),
        (lambda record: record["evidence"]["rows"].update(sizes=[]), "at which sizes"),
        (lambda record: record["evidence"]["rows"].update(sizes=[1]), "was verified for"),
        (lambda record: record["evidence"]["rows"].update(dim="time"), "compared rows of time, not of batch"),
        (lambda record: record.update(verdict="unproven"), "unproven, not verified"),
        (
            lambda record: record["evidence"]["rows"].update(independent=False, compared="", reason="no dim"),
            "rows were not compared: no dim",
        ),
    ],
)
def test_a_record_that_does_not_show_independence_merges_nothing(tmp_path: Path, change: Any, words: str) -> None:
    model = scaled(tmp_path / "net.onnx")
    assert through(check_canary(runner(model), *opened(model), None)).why_not is None
    change_record(model, change)
    found = through(check_canary(runner(model), *opened(model), None))
    assert found.why_not is not None
    assert words in found.why_not


@pytest.mark.parametrize("rows", [[True], {"independent": "yes"}, {"independent": True, "sizes": [True, "8"]}])
def test_a_damaged_claim_about_rows_makes_the_record_unreadable(tmp_path: Path, rows: Any) -> None:
    model = scaled(tmp_path / "net.onnx")
    change_record(model, lambda record: record["evidence"].update(rows=rows))
    with pytest.raises(UserError, match=r"evidence\.rows"):
        read_record(get_record_path(model))


def test_no_more_rows_are_merged_than_were_compared(tmp_path: Path) -> None:
    model = scaled(tmp_path / "net.onnx")
    change_record(model, lambda record: record["evidence"]["rows"].update(sizes=[2, 5]))
    signature, stored = opened(model)
    assert plan_batching(signature, stored, None).limit == 5
    assert plan_batching(signature, stored, 3).limit == 3
    assert plan_batching(signature, stored, 64).limit == 5


def test_the_server_notices_a_wrong_record(tmp_path: Path) -> None:
    shown = {"dim": "batch", "independent": True, "sizes": [2, 8], "compared": "…", "reason": ""}
    model = mixing(tmp_path / "mixing.onnx", shown)
    found = through(check_canary(runner(model), *opened(model), None))
    assert found.why_not is not None
    assert "rows depend on each other: the output y: it changed by" in found.why_not


def test_with_unverified_a_verified_file_is_not_merged_either(tmp_path: Path) -> None:
    model = scaled(tmp_path / "net.onnx")
    stored = read_record(get_record_path(model))
    signature = read_signature(open_header(model), stored, unverified=True)
    why = plan_batching(signature, stored, None).why_not
    assert why is not None
    assert "--unverified" in why


def test_a_published_file_is_merged_by_the_record_it_was_published_with(tmp_path: Path, serving: Start) -> None:
    publish(export(Net(MIXING["first"]), tmp_path / "first.onnx"), str(tmp_path / "place"))
    publish(export(Net(torch.tanh), tmp_path / "tanh.onnx"), str(tmp_path / "other"))
    server = serving(f"first={tmp_path / 'place'}", f"tanh={tmp_path / 'other'}", "--workers", "1")
    assert "requests are run one by one: rows depend on each other" in server.lines[0]
    assert "batches of up to 8 along batch" in server.lines[1]
