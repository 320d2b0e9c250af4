"""The command `fairway doctor`: what it prints where. The visits themselves are in tests/doctor."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairway.debug.doctor import examine
from fairway.debug.doctor import machine as machine_module
from fairway.debug.doctor.machine import Machine
from fairway.debug.doctor.probe_steps import DYNAMO, ORT, TORCHSCRIPT, ProbeStep

from .command_line import Fairway

STEPS = [
    ProbeStep("constant", DYNAMO, DYNAMO),
    ProbeStep("constant", ORT, DYNAMO),
    ProbeStep("constant", TORCHSCRIPT, TORCHSCRIPT, "RuntimeError: value has the wrong type"),
    ProbeStep("linear", DYNAMO, DYNAMO),
    ProbeStep("linear", TORCHSCRIPT, TORCHSCRIPT),
]


@pytest.fixture(autouse=True)
def stage(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine({"python": "3.11.7", "torch": "2.13.0"}, "Linux", "glibc 2.36", 2, ("avx2",), 2**33, 2**34, 2**35)
    monkeypatch.setattr(machine_module, "inspect_machine", lambda: machine)
    monkeypatch.setattr(examine, "run_probes", lambda *anything: STEPS)
    monkeypatch.setattr(examine, "list_tools", lambda: (DYNAMO, TORCHSCRIPT, ORT))


def test_the_machine_the_table_the_findings_and_last_the_verdict(fairway: Fairway) -> None:
    said = fairway("doctor")
    lines = said.out.splitlines()
    assert lines[:11] == [
        "versions      python 3.11.7, torch 2.13.0",
        "platform      Linux, glibc 2.36",
        "processor     2 CPU(s) with avx2",
        "memory        8.0 GB of 16.0 GB free",
        "disk          32.0 GB free for temporary files",
        "providers     none",
        "",
        "probe         dynamo  TorchScript  onnxruntime",
        "constant      ok      FAILS        ok",
        "linear        ok      ok           -",
        "",
    ]
    assert lines[11] == "FW601 error: An exporter fails for models that are known to export"
    assert lines[-1] == (
        "Your machine: TorchScript fails for 1 of 2 models that are known to export (constant: RuntimeError: value has "
        "the wrong type); dynamo works."
    )
    assert (said.err, said.code) == ("", 1)


def test_a_recipe_is_tried_and_its_chatter_is_kept_off_the_result(fairway: Fairway, monkeypatch: Any) -> None:
    monkeypatch.setattr(examine, "run_probes", lambda *anything: STEPS[:2])
    with open("recipe.py", "a") as file:
        file.write("print('a recipe may chatter')\n")
    said = fairway("doctor", "recipe.py", "--route", "trace", "--json")
    found = json.loads(said.out)
    assert (found["healthy"], found["blame"], said.code) == (True, "nothing", 0)
    assert found["verdict"] == "Nothing is wrong: the recipe is verified (trace), and the machine is healthy."
    assert found["recipe"]["route"] == "trace"
    assert said.err == "a recipe may chatter\n"


def test_an_unknown_probe_is_a_usage_error_that_lists_the_known(fairway: Fairway) -> None:
    said = fairway("doctor", "--probe", "nonsense")
    assert "probe: expected one of constant, linear," in " ".join(said.err.split())
    assert said.code == 2


def test_a_recipe_that_is_not_there_is_said_before_anything_is_probed(fairway: Fairway, monkeypatch: Any) -> None:
    monkeypatch.setattr(machine_module, "inspect_machine", lambda: pytest.fail("the machine was looked at"))
    said = fairway("doctor", "nothing.py:net")
    assert "seen      nothing.py does not exist" in said.err
    assert (said.out, said.code) == ("", 3)
