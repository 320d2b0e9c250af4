"""Find attributes of libraries that were changed and not restored."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType

import torch

from fairway.torch_internals import count_function_modes, list_active_patches, read_dynamo_config

WATCHED_LIBRARIES = ("torch", "transformers", "onnxscript", "onnx_ir")

_PATCHABLE = (property, staticmethod, classmethod, ModuleType)

Entry = tuple[Mapping[str, object], str, str, object]
"""A namespace, its dotted name, an attribute's name, and its value."""


@dataclass(frozen=True)
class Snapshot:
    """Every patchable attribute of the loaded modules and classes of the watched libraries, and torch's settings."""

    entries: tuple[Entry, ...]
    settings: Mapping[str, object]

    def find_changes(self) -> list[str]:
        """Return the dotted names that have other values now, and those of patches that were not undone.

        A name that was added or deleted does not count: modules are loaded while a model is captured.
        """
        changed = {
            f"{home}.{name}" for namespace, home, name, value in self.entries if namespace.get(name, value) is not value
        }
        changed |= {name for name, value in _read_settings().items() if self.settings[name] != value}
        return sorted(changed | set(map(str, list_active_patches())))


def take_snapshot() -> Snapshot:
    """Return the present values of the libraries' attributes."""
    modules = [
        (name, module)
        for name, module in [*sys.modules.items()]
        if issubclass(type(module), ModuleType) and name.partition(".")[0] in WATCHED_LIBRARIES
    ]
    entries = (entry for name, module in modules for entry in _walk_module(name, module))
    return Snapshot(tuple(entries), _read_settings())


def _walk_module(home: str, module: ModuleType) -> Iterator[Entry]:
    namespace = vars(module)
    for name, value in [*namespace.items()]:
        kind = type(value)  # not by isinstance, which would ask deprecated objects for their class
        if not (callable(value) or issubclass(kind, _PATCHABLE)):
            continue
        yield namespace, home, name, value
        if isinstance(value, type) and issubclass(kind, type) and value.__module__ == home:
            members = vars(value)
            for member, held in [*members.items()]:
                if callable(held) or issubclass(type(held), _PATCHABLE):
                    yield members, f"{home}.{name}", member, held


def _read_settings() -> dict[str, object]:
    """Return settings that a remedy may change and that are not held as functions."""
    return {
        "torch.backends.mha.get_fastpath_enabled()": torch.backends.mha.get_fastpath_enabled(),
        "allow_rnn of the settings of TorchDynamo": getattr(read_dynamo_config(), "allow_rnn", None),
        "torch.get_default_dtype()": torch.get_default_dtype(),
        "torch.is_grad_enabled()": torch.is_grad_enabled(),
        "the stack of torch function modes": count_function_modes(),
    }
