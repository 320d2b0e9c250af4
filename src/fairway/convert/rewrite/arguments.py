"""Read the flags of a function's parameters from a call's arguments, from example values, or from annotations."""

from __future__ import annotations

import ast
import types
from collections.abc import Mapping

import torch

from fairway.convert.rewrite.call_graph import read_source
from fairway.convert.rewrite.flow import NONE, SEQUENCE, TENSOR, Flags, Flow

_PLAIN_ANNOTATIONS = {"int", "float", "bool", "str"}


def bind_call_flags(function: types.FunctionType, node: ast.Call, flow: Flow) -> list[Flags]:
    source = read_source(function)
    names = [] if source is None else [a.arg for a in (*source.tree.args.args, *source.tree.args.kwonlyargs)]
    names = [name for name in names if name not in ("self", "cls")]
    flags = [NONE] * max(len(names), len(node.args))
    flags[: len(node.args)] = [flow.of(a) for a in node.args]
    for keyword in node.keywords:
        if keyword.arg in names:
            flags[names.index(keyword.arg)] = flow.of(keyword.value)
    return flags


def read_value_flags(forward: types.FunctionType, values: Mapping[str, object]) -> list[Flags]:
    """Return the flags of forward's parameters for the values with which it is called."""
    source = read_source(forward)
    names = [] if source is None else [a.arg for a in (*source.tree.args.args, *source.tree.args.kwonlyargs)]
    return [_classify_value(values.get(name)) for name in names if name != "self"]


def _classify_value(value: object) -> Flags:
    if isinstance(value, torch.Tensor):
        return TENSOR
    return NONE if value is None or isinstance(value, (int, float, str)) else SEQUENCE


def read_annotation_flags(parameter: ast.arg) -> Flags:
    if parameter.annotation is None:
        return TENSOR
    text = ast.unparse(parameter.annotation).strip("'\"")
    if text.split(" | ")[0] in _PLAIN_ANNOTATIONS:
        return NONE
    sequence = text.partition("[")[0].rpartition(".")[2].lower() in ("list", "tuple", "sequence", "dict", "mapping")
    return SEQUENCE if sequence else TENSOR
