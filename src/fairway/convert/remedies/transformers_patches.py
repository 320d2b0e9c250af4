"""Models of transformers are captured with the patches that transformers itself ships for export.

`transformers.exporters` replaces, for as long as an export lasts, code of its models that torch.export cannot follow
(decisions on values, `.tolist()`, kernels without a translation such as `grouped_mm`), mends the captured graph, and
brings translations of its own. All of that is taken from there rather than written again.

One patch is left out: its `scaled_dot_product_attention` answers zeros also for rows masked by the lowest finite
number, where PyTorch on the CPU answers an average; fully_masked_rows does what PyTorch does.

Refuses under the TorchScript exporter, which the patches were not made for, where the transformers
installed has no exporters, and where no part of the model is a PreTrainedModel.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import Any

import torch

from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy, translating
from fairway.diagnostics import Where


def detect(case: Case) -> Match | Refusal:
    if case.route.traced:
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
    tools: Any = importlib.import_module("transformers.exporters.utils")
    dynamo: Any = importlib.import_module("transformers.exporters.exporter_dynamo")
    onnx: Any = importlib.import_module("transformers.exporters.exporter_onnx")
    dynamo.register_cache_pytrees_for_model(match.data)
    attention = torch.nn.functional.scaled_dot_product_attention
    with ExitStack() as stack:
        stack.enter_context(tools.patch_attribute(tools, "_PATCHES", _for_what_is_loaded))
        stack.enter_context(tools.apply_patches("onnx"))
        stack.enter_context(tools.patch_attribute(torch.nn.functional, attention.__name__, lambda patched: attention))
        stack.enter_context(tools.apply_patches("dynamo"))
        stack.enter_context(dynamo.reset_model_state(case.model))
        stack.enter_context(translating(case, onnx._ONNX_TRANSLATION_TABLE))
        case.repairs.append(lambda program: tools.apply_fx_node_fixes("onnx", program.graph_module))
        stack.callback(case.repairs.pop)
        yield


def _for_what_is_loaded(patches: dict[str, list[tuple[str, str, Any]]]) -> dict[str, list[tuple[str, str, Any]]]:
    """Without those for models that nobody has loaded: each would import its file first, a second in all."""

    def matters(path: str) -> bool:
        return not path.startswith("transformers.models.") or ".".join(path.split(".")[:4]) in sys.modules

    return {backend: [patch for patch in every if matters(patch[0])] for backend, every in patches.items()}


REMEDY = Remedy(
    name="transformers_patches",
    cures="FW320",
    title="Captures models of transformers with its own patches for export",
    stage="library",
    affected={"transformers": "==5.22.*"},
    upstream=("pytorch/pytorch#180202",),
    safety="transformers tests each patch against its own model; the file is judged against the model unpatched.",
    detect=detect,
    apply=apply,
)
