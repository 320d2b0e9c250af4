"""Every remedy by its name, in the order in which they are applied.

Fairway's own remedies are the modules of this package that define `REMEDY`; its stage and order place it in the table.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module

from fairway.convert import remedies
from fairway.convert.remedies.contract import STAGES, Remedy


def _find_built_in() -> dict[str, Remedy]:
    modules = (import_module(f"{remedies.__name__}.{entry.name}") for entry in pkgutil.iter_modules(remedies.__path__))
    defined = [module.REMEDY for module in modules if isinstance(getattr(module, "REMEDY", None), Remedy)]
    defined.sort(key=lambda remedy: (STAGES.index(remedy.stage), remedy.order, remedy.name))
    return {remedy.name: remedy for remedy in defined}


BUILT_IN: Mapping[str, Remedy] = _find_built_in()
"""Fairway's own remedies by name, which is also the name of the file."""


class Catalogue(Mapping[str, Remedy]):
    """Fairway's own remedies and the plug-ins', which come after those of the same stage and are loaded on demand."""

    @cached_property
    def _remedies(self) -> dict[str, Remedy]:
        from fairway.convert.remedies.plugin_remedies import load_plugin_remedies

        loaded = [*BUILT_IN.values(), *load_plugin_remedies(BUILT_IN)]
        return {remedy.name: remedy for remedy in sorted(loaded, key=lambda remedy: STAGES.index(remedy.stage))}

    def __getitem__(self, name: str) -> Remedy:
        return self._remedies[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._remedies)

    def __len__(self) -> int:
        return len(self._remedies)


CATALOGUE = Catalogue()
"""Every remedy by its name."""
