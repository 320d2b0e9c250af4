"""Accepts a model in any form that people have it in, and returns a module with what to report about it."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path

import torch

from fairway.diagnostics import Code, Finding
from fairway.diagnostics.errors import UserError, complain
from fairway.model.archive import refuse_lfs_pointer
from fairway.model.function_model import FunctionModel, wrap_function
from fairway.model.memory_check import is_regular_file
from fairway.model.program_model import ProgramModel, load_program
from fairway.model.user_types import UserModel
from fairway.torch_internals import find_compiled_function

_WRAPPERS = {
    "DataParallel": "module",
    "DistributedDataParallel": "module",
    "FullyShardedDataParallel": "module",
    "OptimizedModule": "_orig_mod",  # of torch.compile
    "AveragedModel": "module",  # of torch.optim.swa_utils
    "EMA": "ema_model",  # of ema_pytorch
    "ModelEma": "ema",  # of timm, as the next two
    "ModelEmaV2": "module",
    "ModelEmaV3": "module",
    "_FabricModule": "_forward_module",  # of lightning.fabric
}
"""Classes that hold a model and pass every call on to it, with the names of the models in them."""

_HELD_MODEL_NAMES = ("module", "model", "ema_model", "ema", "_orig_mod")
"""The names of a model in a wrapper that has no forward."""

MAX_SHOWN_NAMES = 3


@dataclass(frozen=True)
class AcceptedModel:
    """A module, the name to report it by, and findings on how it was given."""

    module: torch.nn.Module
    name: str
    remarks: tuple[Finding, ...] = ()


def accept_model(model: UserModel) -> AcceptedModel:
    """Return a model of any supported form as a module; refuse everything else with what to pass in its place."""
    if isinstance(model, str | PathLike):
        model = _open_path(Path(fspath(model)))
    if isinstance(model, torch.export.ExportedProgram):
        module: torch.nn.Module = ProgramModel(model)
        return AcceptedModel(module, type(module).__name__)
    if isinstance(model, torch.jit.ScriptModule):
        return AcceptedModel(model, getattr(model, "original_name", type(model).__name__))
    if isinstance(model, torch.nn.Module):
        return _unwrap(model)
    _refuse_other_objects(model)
    original = find_compiled_function(model)
    if original is not None:
        remark = Finding(Code.MODEL_UNWRAPPED, "the function was compiled by torch.compile")
        inner = accept_model(original)
        return AcceptedModel(inner.module, inner.name, (remark, *inner.remarks))
    function = wrap_function(model)
    return AcceptedModel(function, type(function).__name__)


def _unwrap(model: torch.nn.Module) -> AcceptedModel:
    """Take a model out of the wrappers of training, one after the other."""
    kinds = []
    while (inner := _find_held_model(model)) is not None:
        kinds.append(type(model).__name__)
        model = inner
    name = type(model).__name__
    if not kinds:
        return AcceptedModel(model, name)
    seen = f"{name} was taken out of {', then '.join(kinds)}"
    return AcceptedModel(model, name, (Finding(Code.MODEL_UNWRAPPED, seen),))


def _find_held_model(model: torch.nn.Module) -> torch.nn.Module | None:
    """Return the model in a known wrapper, or the only child of a module without forward."""
    children = dict(model.named_children())
    held = children.get(_WRAPPERS.get(type(model).__name__, ""))
    if held is not None or type(model).forward is not torch.nn.Module.forward or isinstance(model, FunctionModel):
        return held
    name, child = next(iter(children.items()), ("", None))
    return child if len(children) == 1 and name in _HELD_MODEL_NAMES else None


def _open_path(path: Path) -> UserModel:
    """Return the program or the TorchScript module in a file."""
    if path.suffix == ".onnx":
        raise complain(
            Code.NOT_A_MODEL,
            f"the model is the path of an ONNX file: {path}",
            todo=(f'To judge the file, write fairway.verify("{path}", model, inputs).',),
        )
    if not is_regular_file(path):
        raise complain(
            Code.NOT_A_MODEL,
            f"the model is the path {str(path)!r:.200}, at which there is no file",
            todo=("Pass the model itself, or the path of a .pt2 or TorchScript file.",),
        )
    refuse_lfs_pointer(path)
    if path.suffix == ".pt2":
        return load_program(path)
    if _is_torchscript(path):
        return _load_torchscript(path)
    raise complain(
        Code.NOT_A_MODEL,
        f"the model is the path {str(path)!r:.200}; the file holds weights without the code that uses them",
        todo=(
            f'Build the model, then load the file: model.load_state_dict(torch.load("{path}", weights_only=True)).',
            "Or write a recipe with `checkpoint=`; Fairway then loads the file.",
        ),
    )


def _is_torchscript(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return any("/code/" in name for name in archive.namelist())
    except (zipfile.BadZipFile, OSError):
        return False


def _load_torchscript(path: Path) -> UserModel:
    try:
        return torch.jit.load(path, map_location="cpu")  # type: ignore[no-untyped-call]  # torch's own
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        seen = f"{path.name} is TorchScript that torch cannot load: {first}"
        raise complain(Code.CHECKPOINT_UNREADABLE, seen) from error


def _refuse_other_objects(model: UserModel) -> None:
    if isinstance(model, type):
        name = model.__name__
        todo = (f"Pass an instance: {name}(...).eval().",)
        raise complain(Code.NOT_A_MODEL, f"the model is the class {name}, not an instance of it", todo=todo)
    if isinstance(model, Mapping):
        raise _describe_mapping(model)
    if not callable(model):
        raise complain(Code.NOT_A_MODEL, f"expected a model, got {type(model).__name__}: {model!r:.80}")


def _describe_mapping(model: Mapping[object, object]) -> UserError:
    names = [str(name) for name, value in model.items() if isinstance(value, torch.Tensor)]
    keys = ", ".join(map(str, list(names or model)[:MAX_SHOWN_NAMES])) + (", …" if len(model) > MAX_SHOWN_NAMES else "")
    kind = f"a state_dict of {len(names)} tensors" if names else "a dict"
    weights = "weights" if names else 'checkpoint["state_dict"]'
    return complain(
        Code.NOT_A_MODEL,
        f"the model is {kind} ({keys}); weights do not say how to compute",
        todo=(f"Build the model, call model.load_state_dict({weights}), and pass the model.",),
    )
