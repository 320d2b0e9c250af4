"""Two roots: the user's input is wrong, or Fairway is."""

from __future__ import annotations

from typing import Any

from fairway.diagnostics import Finding, Where


class UserError(Exception):
    """Something the user can put right. It carries the finding that says how."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(f"{finding.code}: {finding.seen}")
        self.finding = finding

    def __reduce__(self) -> tuple[Any, ...]:
        return (UserError, (self.finding,))


class Bug(Exception):
    """Fairway broke a promise of its own; never the user's fault."""


def complain(code: str, seen: str, *, where: Where | None = None, todo: tuple[str, ...] = (), **data: Any) -> UserError:
    """Builds the error to raise: `raise complain("FW001", "…")`."""
    return UserError(Finding(code, seen, where=where, todo=todo, data=data))
