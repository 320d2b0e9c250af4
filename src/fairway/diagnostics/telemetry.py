"""Switches off the telemetry of packages that report by default, so that nothing leaves the machine.

onnxruntime reports on Linux since 1.29 (microsoft/onnxruntime#27379), with a device id and a queue of events in the
user's cache folder. It reads its variable once, when it is imported. A variable that the user has set is kept.
"""

from __future__ import annotations

import os

DISABLING_VARIABLES = {"ORT_DISABLE_TELEMETRY": "1", "MLFLOW_DISABLE_TELEMETRY": "true", "RAY_USAGE_STATS_ENABLED": "0"}


def disable_telemetry() -> None:
    """Switch off telemetry for this process and those it starts."""
    for name, value in DISABLING_VARIABLES.items():
        os.environ.setdefault(name, value)
