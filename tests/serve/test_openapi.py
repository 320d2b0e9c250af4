"""The served OpenAPI description is true: schemathesis draws right and wrong requests from it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import load_all_checks
from schemathesis.specs.openapi.checks import positive_data_acceptance

from fairway.deploy.serve.openapi import describe_api
from serve.conftest import Running, ask, outputs, start, tensor
from serve.models import scaled

load_all_checks()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = start(f"net={scaled(tmp_path_factory.mktemp('models') / 'net.onnx')}", "--workers", "1")
    yield running
    x = np.ones((1, 2, 3), np.float32)
    np.testing.assert_array_equal(outputs(ask(running.url, x=x))["y"], x * 2)  # it is still itself
    assert not any("could not be answered" in line for line in running.lines), running.lines[-20:]
    assert running.stop() == 0


schema = schemathesis.openapi.from_dict(describe_api(token=False))


def test_what_is_served_is_the_description_below(server: Running) -> None:
    assert requests.get(f"{server.url}/openapi.json", timeout=30).json() == describe_api(token=False)


@schema.parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_one_that_the_description_promises(case: schemathesis.Case, server: Running) -> None:
    if "model" in case.path_parameters and not case.path.endswith("unload"):
        case.path_parameters["model"] = "net"
    legal = case.meta is not None and case.meta.generation.mode.is_positive
    if legal and isinstance(case.body, dict) and case.path.endswith("infer") and len(case.body) > 1:
        case.body["inputs"] = [tensor("x", np.ones((1, 2, 3), np.float32))]
    # What is a request in form need not fit the model.
    case.call_and_validate(base_url=server.url, excluded_checks=[positive_data_acceptance], timeout=30)
