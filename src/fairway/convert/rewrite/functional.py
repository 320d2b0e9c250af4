"""A function's loops become steps: functions from an index and the names carried on to those names again.

Nothing is known here of what runs the steps; `repeat.loop` does, one by one or as one operator. A `break` becomes a
flag that is carried along, and a `while` a loop without end whose first statement is its `break`. Refused, with the
line: `return` inside a loop, a list filled under a condition or read while it is filled, or filled by a loop that ends
early, and writes through anything but a plain name.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable

from fairway.convert.rewrite.bindings import (
    appended_names,
    bound_names,
    ends_loop,
    loop_names,
    numbers_taken_out,
    read_names,
    walk_own,
    written_names,
)
from fairway.convert.rewrite.expressions import RUNTIME, Expressions, runtime_call
from fairway.diagnostics import Where

_SIGNS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Pow: "**",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.MatMult: "@",
}


_WITHIN = ast.For(target=ast.Name("_", ast.Store()), iter=ast.List([], ast.Load()), body=[], orelse=[], lineno=0)
"""Stands for the loop around a function that is called from inside one."""


class Refused(Exception):
    """The rewrite cannot be made; `line` is the user's own."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.reason, self.line = reason, line
        self.where: Where | None = None


class Functional:
    """Rewrites one function. `suspect` tells which loops to turn; the expressions come with their own scope."""

    def __init__(self, tree: ast.FunctionDef, expressions: Expressions, suspect: Callable[[ast.AST], bool]) -> None:
        self.tree, self.expressions, self.suspect = tree, expressions, suspect
        self.loop: ast.For | None = None
        self.made = 0

    def rewrite(self, inside: bool = False) -> ast.FunctionDef:
        """The new function. `inside` for one that is called from within a loop."""
        new = copy.deepcopy(self.tree)
        parameters = {a.arg for a in (*new.args.posonlyargs, *new.args.args, *new.args.kwonlyargs)}
        self.expressions.hidden |= (parameters | set(bound_names(new.body))) - {"self"}
        self.expressions.hidden |= {n.name for n in walk_own(new.body) if isinstance(n, ast.FunctionDef)}
        if inside:
            self._nested_body(new, parameters)
        else:
            new.body = self.block(new.body, set(parameters))
        return ast.fix_missing_locations(new)

    def block(self, statements: list[ast.stmt], before: set[str]) -> list[ast.stmt]:
        """Statements in order; `before` grows by the names they bind."""
        done: list[ast.stmt] = []
        for statement in statements:
            done += self._statement(statement, before)
            before |= set(bound_names([statement]))
            if isinstance(statement, ast.FunctionDef):
                before.add(statement.name)
        return done

    def _statement(self, node: ast.stmt, before: set[str]) -> list[ast.stmt]:
        if isinstance(node, ast.FunctionDef):
            self._nested_function(node)
            return [node]
        if isinstance(node, ast.For) and self.suspect(node):
            return self._loop(node, before)
        if isinstance(node, ast.While) and self.suspect(node):
            return self._loop(_without_end(node), before)
        if isinstance(node, ast.While) and self.loop is not None:
            raise Refused("a `while` inside the loop cannot be turned into steps; write it as `for`", node.lineno)
        if self.loop is not None:
            return self._in_loop(node, before)
        for field in ("body", "orelse", "finalbody"):
            if isinstance(getattr(node, field, None), list):
                setattr(node, field, self.block(getattr(node, field), set(before)))
        self._own_expressions(node)
        return [node]

    def _own_expressions(self, node: ast.stmt) -> None:
        """Rewrites the expressions that stand in the statement itself, not those in the blocks below it."""
        chosen = isinstance(node, ast.Assign) and set(bound_names([node])) & self.expressions.chosen
        visit = self.expressions.within if chosen else self.expressions.visit
        for field, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                setattr(node, field, visit(value))
            elif isinstance(value, list) and value and isinstance(value[0], (ast.expr, ast.withitem)):
                setattr(node, field, [visit(item) for item in value])

    def _in_loop(self, node: ast.stmt, before: set[str]) -> list[ast.stmt]:
        if isinstance(node, (ast.Break, ast.Return)):
            word = "break" if isinstance(node, ast.Break) else "return"
            raise Refused(
                f"`{word}` inside the loop ends it early, at a step that only the values tell; compute every "
                "step and mask the rest with torch.where",
                node.lineno,
            )
        if isinstance(node, (ast.Assert, ast.Raise, ast.Pass)):
            return [ast.Pass()]  # checks hold for legal inputs, and a graph cannot raise
        if isinstance(node, ast.If):
            return self._if(node, before)
        if isinstance(node, ast.AugAssign):
            return self._augmented(node)
        if isinstance(node, ast.Assign):
            return self._assign(node)
        if isinstance(node, (ast.For, ast.With)):
            node.body = self.block(self._without_continue(node.body), set(before))
        if isinstance(node, (ast.Try, ast.Delete, ast.Global, ast.Nonlocal)):
            raise Refused(f"`{type(node).__name__.lower()}` inside the loop has no counterpart in a graph", node.lineno)
        self._own_expressions(node)
        return [node]

    def _assign(self, node: ast.Assign) -> list[ast.stmt]:
        value = self.expressions.visit(node.value)
        done: list[ast.stmt] = []
        if len(node.targets) > 1:
            done.append(ast.Assign([ast.Name("_value", ast.Store())], value))
            value = ast.Name("_value", ast.Load())
        for target in node.targets:
            done.append(
                self._write(target, value, "")
                if isinstance(target, ast.Subscript)
                else ast.Assign([self._target(target)], value)
            )
        return done

    def _target(self, target: ast.expr) -> ast.expr:
        for part in ast.walk(target):
            if isinstance(part, (ast.Subscript, ast.Attribute)):
                raise Refused(
                    f"the loop writes through `{ast.unparse(target)}`, which may be another name's tensor; "
                    "bind a plain name and write it after the loop",
                    target.lineno,
                )
        return target

    def _augmented(self, node: ast.AugAssign) -> list[ast.stmt]:
        value = self.expressions.visit(node.value)
        if isinstance(node.target, ast.Subscript):
            return [self._write(node.target, value, _SIGNS[type(node.op)])]
        target = self._target(node.target)
        assert isinstance(target, ast.Name)
        return [ast.Assign([target], ast.BinOp(ast.Name(target.id, ast.Load()), node.op, value))]

    def _write(self, target: ast.Subscript, value: ast.expr, sign: str) -> ast.stmt:
        """`out[key] = v` as `out = put(out, key, v)`."""
        if not isinstance(target.value, ast.Name):
            raise Refused(
                f"the loop writes through `{ast.unparse(target.value)}`, which may be another name's tensor; "
                "give the tensor a plain name before the loop and write into that",
                target.lineno,
            )
        name, key = target.value.id, self.expressions.key(target.slice)
        signs = [ast.Constant(sign)] if sign else []
        return ast.Assign(
            [ast.Name(name, ast.Store())], runtime_call("put", ast.Name(name, ast.Load()), key, value, *signs)
        )

    def _loop(self, node: ast.For, before: set[str]) -> list[ast.stmt]:
        flag = f"_ended_{node.lineno}" if any(map(ends_loop, node.body)) else None
        prelude: list[ast.stmt] = []
        if flag is not None:
            node.body = _without_break(node.body, flag)
            prelude = [ast.Assign([ast.Name(flag, ast.Store())], ast.Constant(False))]
            before = before | {flag}
        names = loop_names(node, self.tree, self.loop, before)
        if flag is not None and (names.lists or names.last):
            raise Refused(
                f"the loop ends early, and `{(*names.lists, *names.last)[0]}` is read after it; compute every step and "
                "mask the rest with torch.where",
                node.lineno,
            )
        self._check_lists(node, names.lists)
        _check_in_place(node, before)
        taken = sorted((numbers_taken_out(self.tree) & before & read_names(node.body)) - set(names.carried))
        self.made += 1
        step = f"_step_{node.lineno}_{self.made}"
        iterable = self.expressions.iterable(node.iter)
        outer, self.loop = self.loop, node
        inside, varying = self.expressions.inside, set(self.expressions.varying)
        self.expressions.inside = True
        self.expressions.varying |= {*bound_names([node.target]), *bound_names(node.body)}
        within = before | set(bound_names([node.target])) | set(names.carried)
        body = self.block(self._without_continue(node.body), set(within))
        self.loop, self.expressions.inside, self.expressions.varying = outer, inside, varying
        lists = [runtime_call("rows", ast.Name(name, ast.Load())) for name in names.lists]
        head: list[ast.stmt] = [ast.Assign([node.target], ast.Name("_item", ast.Load()))]
        if names.carried:
            head.append(ast.Assign([_store(names.carried)], ast.Name("_carried", ast.Load())))
        head += [ast.Assign([ast.Name(name, ast.Store())], ast.List([], ast.Load())) for name in names.lists]
        result = ast.Tuple([_load(names.carried), ast.Tuple(list(lists), ast.Load()), _load(names.last)], ast.Load())
        define = _define(step, ["_item", "_carried"], [*head, *body, ast.Return(result)])
        if outer is None:
            define.args.args += [ast.arg(name) for name in taken]
            define.args.defaults = [runtime_call("inside", ast.Name(name, ast.Load())) for name in taken]
        places = [] if outer is not None else [names.carried.index(name) for name in names.written]
        written = ast.Tuple([ast.Constant(place) for place in places], ast.Load())
        call = runtime_call(
            "loop",
            iterable,
            ast.Name(step, ast.Load()),
            _load(names.carried),
            _load(names.lists),
            ast.Constant(len(names.last)),
            written,
        )
        if flag is not None:
            call.keywords = [ast.keyword("ended", ast.Constant(names.carried.index(flag)))]
        into = ast.Tuple([_store(names.carried), _store(names.lists), _store(names.last)], ast.Store())
        return [*prelude, define, ast.Assign([into], call)]

    def _check_lists(self, node: ast.For, lists: tuple[str, ...]) -> None:
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
                        f"the loop reads the list `{name}` while it fills it; carry what it needs from the step "
                        "before in a name of its own",
                        part.lineno,
                    )
        for part in walk_own(node.body):
            if isinstance(part, ast.If) and set(appended_names([*part.body, *part.orelse])) & set(lists):
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

    def _without_continue(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """`if c: continue` followed by the rest is the rest under `if not c`."""
        for place, statement in enumerate(statements):
            if isinstance(statement, ast.Continue):
                return statements[:place]
            if isinstance(statement, ast.If) and any(isinstance(n, ast.Continue) for n in walk_own([statement])):
                rest = statements[place + 1 :]
                statement.body = self._without_continue([*statement.body, *copy.deepcopy(rest)])
                statement.orelse = self._without_continue([*statement.orelse, *copy.deepcopy(rest)])
                return [*statements[:place], statement]
        return statements

    def _if(self, node: ast.If, before: set[str]) -> list[ast.stmt]:
        test = self.expressions.visit(node.test)
        names = sorted({*bound_names([*node.body, *node.orelse]), *written_names([*node.body, *node.orelse])})
        self.made += 1
        sides = []
        for word, statements in (("then", node.body), ("else", node.orelse)):
            body = self.block(statements, set(before) | set(names))
            sides.append(_define(f"_{word}_{node.lineno}_{self.made}", names, [*body, ast.Return(_load(names))]))
        given = [
            ast.Name(name, ast.Load())
            if name in before
            else ast.Attribute(ast.Name(RUNTIME, ast.Load()), "UNBOUND", ast.Load())
            for name in names
        ]
        call = runtime_call(
            "branch", test, *[ast.Name(side.name, ast.Load()) for side in sides], ast.Tuple(list(given), ast.Load())
        )
        return [*sides, ast.Assign([_store(names)], call) if names else ast.Expr(call)]

    def _nested_function(self, node: ast.FunctionDef) -> None:
        parameters = {a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
        hidden = set(self.expressions.hidden)
        self.expressions.hidden |= parameters | set(bound_names(node.body))
        self._nested_body(node, parameters)
        self.expressions.hidden = hidden

    def _nested_body(self, node: ast.FunctionDef, parameters: set[str]) -> None:
        """A function called with tensors for numbers: its `return`s under conditions become one `return` at the end."""
        loop, self.loop = self.loop, self.loop or _WITHIN
        inside, self.expressions.inside = self.expressions.inside, True
        node.body = self._returning(node.body, parameters)
        self.loop, self.expressions.inside = loop, inside

    def _returning(self, statements: list[ast.stmt], before: set[str]) -> list[ast.stmt]:
        before = set(before)
        done: list[ast.stmt] = []
        for place, statement in enumerate(statements):
            if isinstance(statement, ast.Return):
                value = None if statement.value is None else self.expressions.visit(statement.value)
                return [*done, ast.Return(value)]
            if isinstance(statement, ast.If) and any(isinstance(n, ast.Return) for n in walk_own([statement])):
                return [*done, *self._either(statement, statements[place + 1 :], before)]
            done += self._statement(statement, before)
            before |= set(bound_names([statement]))
        return done

    def _either(self, node: ast.If, rest: list[ast.stmt], before: set[str]) -> list[ast.stmt]:
        test = self.expressions.visit(node.test)
        self.made += 1
        sides = []
        for word, statements in (("then", node.body), ("else", node.orelse)):
            block = [*statements, *copy.deepcopy(rest)]
            taken = sorted(set(bound_names(block)) & before & read_names(block))
            side = _define(f"_{word}_{node.lineno}_{self.made}", taken, self._returning(block, before))
            side.args.defaults = [ast.Name(name, ast.Load()) for name in taken]
            sides.append(side)
        call = runtime_call("choose", test, *[ast.Name(side.name, ast.Load()) for side in sides])
        return [*sides, ast.Return(call)]


def _without_end(node: ast.While) -> ast.For:
    """`while c: …` as a loop without end that begins with `if not c: break`."""
    leave = ast.If(ast.UnaryOp(ast.Not(), node.test), [ast.Break()], [])
    forever = runtime_call("forever")
    made = ast.For(ast.Name("_", ast.Store()), forever, [leave, *node.body], node.orelse)
    return ast.fix_missing_locations(ast.copy_location(made, node))


def _without_break(statements: list[ast.stmt], flag: str) -> list[ast.stmt]:
    """`if c: break` followed by the rest sets the flag if c, and does the rest if not."""
    for place, statement in enumerate(statements):
        if isinstance(statement, ast.Break):
            ended = ast.Assign([ast.Name(flag, ast.Store())], ast.Constant(True))
            return [*statements[:place], ast.copy_location(ended, statement)]
        if isinstance(statement, ast.If) and ends_loop(statement):
            rest = statements[place + 1 :]
            statement.body = _without_break([*statement.body, *copy.deepcopy(rest)], flag)
            statement.orelse = _without_break([*statement.orelse, *copy.deepcopy(rest)], flag)
            return [*statements[:place], statement]
    return statements


def _check_in_place(loop: ast.For, before: set[str]) -> None:
    """Refuses `out[i].copy_(v)` and `acc.add_(v)`: steps hand tensors on, they do not change those of other steps."""
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


def _define(name: str, parameters: list[str], body: list[ast.stmt]) -> ast.FunctionDef:
    arguments = ast.arguments(
        posonlyargs=[], args=[ast.arg(p) for p in parameters], kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    return ast.FunctionDef(name, arguments, body or [ast.Pass()], [])


def _load(names: tuple[str, ...] | list[str]) -> ast.Tuple:
    return ast.Tuple([ast.Name(name, ast.Load()) for name in names], ast.Load())


def _store(names: tuple[str, ...] | list[str]) -> ast.Tuple:
    return ast.Tuple([ast.Name(name, ast.Store()) for name in names], ast.Store())
