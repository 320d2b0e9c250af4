"""What a plain install leaves out, and how to get it: asking for a feature without its package is a finding."""

from __future__ import annotations

from importlib.util import find_spec

from fairway.diagnostics.errors import complain


def require(extra: str, feature: str, *packages: str) -> None:
    """Refuses a feature whose packages are not there, before any work is done for it."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise complain(
            "FW018",
            f"{feature} needs {', '.join(missing)}",
            todo=(f"Install the extra: pip install 'fairway[{extra}]'",),
            extra=extra,
        )
