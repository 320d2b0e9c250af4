"""Models of transformers are captured with the patches that transformers itself ships for export.

While an export runs, `transformers.exporters` replaces code of its models that torch.export cannot follow (decisions on
values, `.tolist()`, kernels without a translation such as `grouped_mm`). It also repairs the captured graph and brings
translations. All of that is taken from there.

One patch is left out. Its `scaled_dot_product_attention` returns zeros also for rows masked by the lowest finite
number. PyTorch on the CPU returns an average there, as the remedy fully_masked_rows does.

Refuses under the TorchScript exporter, for which the patches were not made, if the installed transformers has no
exporters, and if no part of the model is a PreTrainedModel.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch

from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy, add_translations
from fairway.diagnostics import Code, Where
from fairway.torch_internals import Untyped, patch_attribute

Patches = dict[str, list[tuple[str, str, Any]]]
"""The table of transformers: by exporter, the path of a module or class, an attribute, and its replacement."""


def detect(case: Case) -> Match | Refusal:
    if case.route.is_traced:
        return Refusal("the patches are made for torch.export")
    library = sys.modules.get("transformers.modeling_utils")
    if library is None:
        return Refusal("the model is not one of transformers")
    for name, module in case.model.named_modules():
        if isinstance(module, library.PreTrainedModel):
            if find_spec("transformers.exporters") is None:
                return Refusal("this transformers ships no patches for export")
            kind = type(module).__name__
            return Match(f"transformers' own patches for exporting {kind}", (Where(module=name or kind),), module)
    return Refusal("no part of the model is a PreTrainedModel")


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    tools: Untyped = importlib.import_module("transformers.exporters.utils")
    dynamo: Untyped = importlib.import_module("transformers.exporters.exporter_dynamo")
    onnx: Untyped = importlib.import_module("transformers.exporters.exporter_onnx")
    dynamo.register_cache_pytrees_for_model(match.data)
    attention = torch.nn.functional.scaled_dot_product_attention
    with ExitStack() as stack:
        stack.enter_context(patch_attribute(tools, "_PATCHES", _select_loaded(tools._PATCHES)))
        stack.enter_context(tools.apply_patches("onnx"))
        stack.enter_context(patch_attribute(torch.nn.functional, attention.__name__, attention))
        stack.enter_context(tools.apply_patches("dynamo"))
        stack.enter_context(dynamo.reset_model_state(case.model))
        stack.enter_context(add_translations(case, onnx._ONNX_TRANSLATION_TABLE))
        case.repairs.append(partial(_fix_nodes, tools))
        stack.callback(case.repairs.pop)
        yield


def _fix_nodes(tools: Untyped, program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    tools.apply_fx_node_fixes("onnx", program.graph_module)
    return program


def _select_loaded(patches: Patches) -> Patches:
    """Leave out the patches of models that are not loaded. Each would import its file first, a second in all."""

    def is_loaded(path: str) -> bool:
        return not path.startswith("transformers.models.") or ".".join(path.split(".")[:4]) in sys.modules

    return {backend: [patch for patch in table if is_loaded(patch[0])] for backend, table in patches.items()}


REMEDY = Remedy(
    name="transformers_patches",
    cures=Code.TRANSFORMERS_UNTRACEABLE,
    title="Captures models of transformers with its own patches for export",
    stage="library",
    affected={"transformers": "==5.22.*"},
    upstream=("pytorch/pytorch#180202",),
    safety="transformers tests each patch against its own model; the file is judged against the model unpatched.",
    detect=detect,
    apply=apply,
    order=90,
    retried_without=True,
)
