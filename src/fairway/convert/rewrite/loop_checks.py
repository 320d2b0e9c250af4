"""Refuse loops that cannot be written as steps, with the line of the user's file."""

from __future__ import annotations

import ast

from fairway.convert.rewrite.bindings import find_appended_names, walk_own
from fairway.diagnostics import Where


class Refused(Exception):
    """Raised if a rewrite cannot be made. `line` is a line of the user's file."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.reason, self.line = reason, line
        self.where: Where | None = None


def check_lists(node: ast.For, lists: tuple[str, ...]) -> None:
    appends = [
        n
        for n in walk_own(node.body)
        if isinstance(n, ast.Call)
        and isinstance(n.func, ast.Attribute)
        and n.func.attr in ("append", "extend", "insert", "pop")
    ]
    allowed = {id(n.func.value) for n in appends if isinstance(n.func, ast.Attribute)}
    for name in lists:
        for part in walk_own(node.body):
            if isinstance(part, ast.Name) and part.id == name and id(part) not in allowed:
                raise Refused(
                    f"the loop reads the list `{name}` while it fills it; keep the value that it needs from the "
                    "step before under another name",
                    part.lineno,
                )
    for part in walk_own(node.body):
        if isinstance(part, ast.If) and set(find_appended_names([*part.body, *part.orelse])) & set(lists):
            raise Refused(
                "the loop fills a list under a condition, so how long it gets depends on values; append "
                "at every step and mask with torch.where",
                part.lineno,
            )
    for call in appends:
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("insert", "pop"):
            raise Refused(
                f"the loop uses `{call.func.attr}` on a list; use append, and reverse or slice the stacked "
                "result after the loop",
                call.lineno,
            )


def check_in_place(loop: ast.For, before: set[str]) -> None:
    """Refuse `out[i].copy_(v)` and `acc.add_(v)`: a step returns tensors and does not change those of other steps."""
    for node in walk_own(loop.body):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        name, base = node.func.attr, node.func.value
        if not name.endswith("_") or name.endswith("__"):
            continue
        if isinstance(base, ast.Subscript) or (isinstance(base, ast.Name) and base.id in before):
            text = ast.unparse(base)
            raise Refused(
                f"`{text}.{name}` changes a tensor in place inside the loop; write `{text} = ...` instead", node.lineno
            )
