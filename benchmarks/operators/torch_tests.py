"""Imports torch's own test modules. They need the package expecttest, but only for assertions not used here."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
import unittest
from typing import Any


def import_torch_tests(name: str) -> Any:
    if "expecttest" not in sys.modules and importlib.util.find_spec("expecttest") is None:
        replacement = types.ModuleType("expecttest")
        replacement.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = replacement
    return importlib.import_module(f"torch.testing._internal.{name}")
