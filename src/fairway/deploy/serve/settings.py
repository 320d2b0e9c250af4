"""How a server is run, and which findings are which status to a client."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fairway.diagnostics import Finding
from fairway.record.files import versions

VERSION = versions().get("fairway", "0")
HTTP_STATUS = {
    "FW812": 400,
    "FW813": 400,
    "FW814": 404,
    "FW815": 500,
    "FW816": 503,
    "FW817": 413,
    "FW818": 504,
    "FW819": 401,
    "FW820": 500,
    "FW408": 500,
}
"""What is not listed and came of a client's wish to load a model is 400; our bug is 500."""
GRPC_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    404: "NOT_FOUND",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def http_status(finding: Finding) -> int:
    return int(finding.data.get("status") or HTTP_STATUS.get(finding.code, 500 if finding.code == "FW901" else 400))


@dataclass(frozen=True)
class ServerSettings:
    """Everything but the models."""

    host: str = "127.0.0.1"
    http_port: int = 8000
    grpc_port: int | None = 8001
    """None: no gRPC. A port of 0 takes a free one, for both."""
    workers: int | None = None
    """Processes; None: as many as cores."""
    batch: int | None = None
    """At most so many samples at once; None: what was verified."""
    timeout: float = 30.0
    """Seconds for a request to arrive, and seconds for its answer."""
    queue: int = 256
    """Requests that are accepted and not answered yet."""
    body: int = 64 * 2**20
    """Bytes of a request."""
    cache: int = 0
    """Bytes of answers that are kept; 0: none."""
    token: str | None = None
    certificate: Path | None = None
    key: Path | None = None
    unverified: bool = False
    fixed: bool = False
    """No loading and unloading while it runs: of several replicas only one would hear of it."""

    def at(self, port: int | None) -> str:
        """The address as a URL has it, where IPv6 stands in brackets."""
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"
