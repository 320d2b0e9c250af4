"""The two kinds of errors: the user's input is wrong, or Fairway is."""

from __future__ import annotations

from fairway.diagnostics import Finding, Where


class UserError(Exception):
    """An error that the user can fix. Its finding says how."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(f"{finding.code}: {finding.seen}")
        self.finding = finding

    def __reduce__(self) -> tuple[type[UserError], tuple[Finding]]:
        return (UserError, (self.finding,))


class Bug(Exception):
    """A broken invariant of Fairway; never the user's fault."""


def complain(
    code: str, seen: str, *, where: Where | None = None, todo: tuple[str, ...] = (), **data: object
) -> UserError:
    """Return the error to raise: `raise complain(Code.SPEC_SYNTAX, "…")`."""
    return UserError(Finding(code, seen, where=where, todo=todo, data=data))
