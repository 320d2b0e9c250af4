"""Checks for optional packages. A feature whose package is missing is a finding that names the extra."""

from __future__ import annotations

from importlib.util import find_spec

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain

DISTRIBUTION = "fairway-onnx"
"""The name on PyPI, where `fairway` belongs to another project."""


def require_extra(extra: str, feature: str, *packages: str) -> None:
    """Refuse a feature whose packages are missing, before any work is done for it."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise complain(
            Code.EXTRA_MISSING,
            f"{feature} needs {', '.join(missing)}",
            todo=(f"Install the extra: pip install '{DISTRIBUTION}[{extra}]'",),
            extra=extra,
        )
