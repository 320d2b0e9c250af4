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


def check_filled_by_one_loop(loop: ast.For, lists: list[str]) -> None:
    """Refuse a list by value that loops of different lengths fill: the room for it is that of one loop."""
    homes: dict[str, set[int]] = {name: set() for name in lists}
    _collect_homes(loop, homes)
    for name, loops in homes.items():
        if len(loops) > 1:
            raise Refused(
                f"`{name}` is filled by more than one loop, for as long as values say; give each loop a list and join "
                "them after it",
                loop.lineno,
            )


def _collect_homes(loop: ast.For | ast.While, homes: dict[str, set[int]]) -> None:
    """Note the innermost loop around each append."""
    nodes: list[ast.AST] = [*loop.body]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.For | ast.While):
            _collect_homes(node, homes)
            continue
        if isinstance(node, ast.Expr):
            for name in find_appended_names([node]):
                if name in homes:
                    homes[name].add(id(loop))
        nodes.extend(ast.iter_child_nodes(node))


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
