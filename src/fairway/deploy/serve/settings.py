"""The settings of a server, and the status codes of findings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fairway.diagnostics import Code, Finding
from fairway.record.files import read_versions

VERSION = read_versions().get("fairway", "0")
HTTP_STATUS: dict[str, int] = {
    Code.REQUEST_DOES_NOT_FIT: 400,
    Code.REQUEST_OUTSIDE_DOMAIN: 400,
    Code.MODEL_NOT_SERVED: 404,
    Code.NOT_FIT_TO_SERVE: 500,
    Code.SERVER_FULL: 503,
    Code.REQUEST_TOO_LARGE: 413,
    Code.OUT_OF_TIME: 504,
    Code.NOT_ALLOWED: 401,
    Code.WORKERS_DIED: 500,
    Code.RUNTIME_FAILS: 500,
}
"""The status of other findings is 400, since they are about a model that a client wants to load. Our bugs are 500."""
GRPC_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    404: "NOT_FOUND",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def choose_http_status(finding: Finding) -> int:
    return int(finding.data.get("status") or HTTP_STATUS.get(finding.code, 500 if finding.code == Code.BUG else 400))


@dataclass(frozen=True)
class ServerSettings:
    """The settings of a server. The models are separate."""

    host: str = "127.0.0.1"
    http_port: int = 8000
    grpc_port: int | None = 8001
    """None: no gRPC. For both protocols, 0 is any free port."""
    workers: int | None = None
    """Worker processes; None: one for each core."""
    batch: int | None = None
    """The largest batch; None: what was verified."""
    timeout: float = 30.0
    """Seconds for a request to arrive, and for its answer."""
    queue: int = 256
    """Requests that may wait for an answer at once."""
    body: int = 64 * 2**20
    """Bytes that a request may have."""
    cache: int = 0
    """Bytes of cached answers; 0: no cache."""
    token: str | None = None
    certificate: Path | None = None
    key: Path | None = None
    unverified: bool = False
    fixed: bool = False
    """Models cannot be loaded or unloaded at run time, because only one of several replicas would do it."""

    def format_address(self, port: int | None) -> str:
        """Return host and port as in a URL, with brackets around an IPv6 address."""
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"
