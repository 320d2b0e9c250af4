"""The two kinds of errors: the user's input is wrong, or Fairway is."""

from __future__ import annotations

from fairway.diagnostics import Finding, Where


class UserError(Exception):
    """An error that the user can fix. Its text says what is wrong, where, and what to do; `finding` has the parts."""

    def __init__(self, finding: Finding) -> None:
        lines = [f"{finding.code}: {finding.title}: {finding.seen}"]
        if finding.where is not None and str(finding.where):
            lines.append(f"  where: {finding.where}")
        lines += [f"  do: {step}" for step in finding.todo]
        super().__init__("\n".join(lines))
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
