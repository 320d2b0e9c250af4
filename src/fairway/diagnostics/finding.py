"""Findings: everything that an engineer needs to know about one problem."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from fairway.diagnostics.codes import CODES, CodeEntry


@dataclass(frozen=True)
class Where:
    """A place: a line of the user's code, a module, an ONNX node, as far as they are known."""

    file: str | None = None
    line: int | None = None
    function: str | None = None
    source: str | None = None
    module: str | None = None
    node: str | None = None

    def __str__(self) -> str:
        parts = []
        if self.file:
            parts.append(f"{self.file}:{self.line}" if self.line else self.file)
        if self.function:
            parts.append(f"in {self.function}")
        if self.module:
            parts.append(f"module {self.module}")
        if self.node:
            parts.append(f"node {self.node}")
        return ", ".join(parts)


@dataclass(frozen=True)
class Finding:
    """One diagnosis. `why` and `todo` default to those of the code."""

    code: str
    seen: str
    where: Where | None = None
    why: str = ""
    todo: tuple[str, ...] = ()
    upstream: tuple[str, ...] = ()
    artifacts: tuple[str, ...] = ()
    data: dict[str, Any] = field(default_factory=dict)
    grade: str = ""
    """The severity of this finding, if it differs from that of its code."""

    def __post_init__(self) -> None:
        entry = CODES[self.code]
        object.__setattr__(self, "code", str(self.code))  # records contain plain strings
        object.__setattr__(self, "why", self.why or entry.why)
        object.__setattr__(self, "todo", self.todo or entry.todo)

    @property
    def entry(self) -> CodeEntry:
        return CODES[self.code]

    @property
    def title(self) -> str:
        return self.entry.title

    @property
    def severity(self) -> str:
        return self.grade or self.entry.severity

    def as_dict(self) -> dict[str, Any]:
        fields = dataclasses.asdict(self)
        del fields["grade"]  # `severity` includes it
        fields["where"] = None if self.where is None else dataclasses.asdict(self.where)
        return {"title": self.title, "severity": self.severity, "kind": self.entry.kind, **fields}
