"""Nothing leaves the machine unless asked: packages that report home by default are told not to before they start.

onnxruntime does so on Linux since 1.29 (microsoft/onnxruntime#27379), with a device id and a queue of events in the
user's cache folder; it reads its variable once, when it is imported. Who has set one of these is obeyed.
"""

from __future__ import annotations

import os

OFF = {"ORT_DISABLE_TELEMETRY": "1", "MLFLOW_DISABLE_TELEMETRY": "true", "RAY_USAGE_STATS_ENABLED": "0"}


def switch_off() -> None:
    """For this process and those it starts."""
    for name, value in OFF.items():
        os.environ.setdefault(name, value)
