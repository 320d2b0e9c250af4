"""torch.onnx's tables are built once, and an export that changes its copy does not affect others."""

import logging

import pytest
import torch
from torch.onnx._internal.exporter import _registration

from fairway.convert.ladder import translation_tables as tables


@pytest.fixture
def registry():
    return _registration.ONNXRegistry


def test_the_tables_are_those_that_torch_builds(registry, monkeypatch):
    monkeypatch.setattr(tables, "_built", {})
    plain = registry.from_torchlib(opset_version=20)
    with tables.use_built_tables():
        ours = registry().from_torchlib(opset_version=20)
    assert ours.opset_version == plain.opset_version == 20
    assert ours.functions.keys() == plain.functions.keys()
    for target, known in plain.functions.items():
        assert [one.onnx_function for one in ours.functions[target]] == [one.onnx_function for one in known]
        assert [str(one.signature) for one in ours.functions[target]] == [str(one.signature) for one in known]


def test_they_are_built_once_for_each_opset(registry, monkeypatch):
    monkeypatch.setattr(tables, "_built", {})
    asked = []
    plain = registry.from_torchlib

    def counted(**asked_for):
        asked.append(asked_for)
        return plain(**asked_for)

    monkeypatch.setattr(registry, "from_torchlib", counted)
    tables.build_tables()
    with tables.use_built_tables():
        for opset in (20, 20, 18, 18):
            assert registry.from_torchlib(opset_version=opset).opset_version == opset
    assert asked == [{"opset_version": 20}, {"opset_version": 18}]


def test_what_an_export_registers_is_its_own(registry):
    op = torch.ops.aten.relu.default
    with tables.use_built_tables():
        first = registry.from_torchlib(opset_version=20)
        first.register_op(op, lambda x: x)
        second = registry.from_torchlib(opset_version=20)
    assert len(first.get_decomps(op)) == len(second.get_decomps(op)) + 1


def test_torch_is_as_before_afterwards(registry):
    before, level = registry.__dict__["from_torchlib"], logging.getLogger("torch.onnx").level
    tables.build_tables()
    assert registry.__dict__["from_torchlib"] is before
    assert logging.getLogger("torch.onnx").level == level


def test_where_torch_has_no_such_tables_nothing_is_done(monkeypatch):
    def raise_error(name):
        raise ImportError(name)

    monkeypatch.setattr(tables, "read_internal", raise_error)
    tables.build_tables()
    with tables.use_built_tables():
        pass
