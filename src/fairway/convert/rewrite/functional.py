"""Turn a function's loops into steps: functions from an index and the carried names to the carried names.

`repeat.loop` runs the steps, one by one or as one operator. A `break` becomes a flag that is carried, and a `while` an
endless loop whose first statement is its `break`. `loop_exits` writes a `return` inside a loop, and lists that are
filled for as long as a value says, in these terms. Refused, with the line, are a list that is read while every step
fills it, and writes through anything but a plain name.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable

from fairway.convert.rewrite.bindings import (
    LoopNames,
    ends_loop,
    find_bound_names,
    find_loop_names,
    find_number_names,
    find_read_names,
    find_written_names,
    walk_own,
)
from fairway.convert.rewrite.expressions import (
    RUNTIME,
    Expressions,
    call_runtime,
    define_function,
    load_names,
    make_thunk,
    store_names,
)
from fairway.convert.rewrite.input_checks import only_refuses
from fairway.convert.rewrite.loop_checks import Refused, check_filled_by_one_loop, check_in_place, check_lists
from fairway.convert.rewrite.loop_exits import (
    find_lists_by_value,
    make_endless,
    push_items,
    replace_break,
    simplify_exits,
)

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


_OUTER_LOOP = ast.For(target=ast.Name("_", ast.Store()), iter=ast.List([], ast.Load()), body=[], orelse=[], lineno=0)
"""The loop around a function that is called from inside a loop."""


class FunctionalRewriter:
    """Rewrites one function. `suspect` selects the loops to rewrite, and `expressions` has the function's scope."""

    def __init__(self, tree: ast.FunctionDef, expressions: Expressions, suspect: Callable[[ast.AST], bool]) -> None:
        self.tree, self.expressions, self.suspect = tree, expressions, suspect
        self.loop: ast.For | None = None
        self.made = 0
        self.top: list[ast.stmt] = []
        self.returned: str | None = None
        """The name of the flag that is set if the loop just rewritten returned."""

    def rewrite(self, inside: bool = False) -> ast.FunctionDef:
        """Return the new function. `inside` is set for a function that is called from inside a loop."""
        new = copy.deepcopy(self.tree)
        self.top = new.body
        parameters = {a.arg for a in (*new.args.posonlyargs, *new.args.args, *new.args.kwonlyargs)}
        self.expressions.hidden |= (parameters | set(find_bound_names(new.body))) - {"self"}
        self.expressions.hidden |= {n.name for n in walk_own(new.body) if isinstance(n, ast.FunctionDef)}
        if inside:
            self._rewrite_nested_body(new, parameters)
        else:
            new.body = self.rewrite_block(new.body, set(parameters))
        return ast.fix_missing_locations(new)

    def rewrite_block(self, statements: list[ast.stmt], before: set[str]) -> list[ast.stmt]:
        """Rewrite statements in order, and add the names that they bind to `before`."""
        done: list[ast.stmt] = []
        for position, statement in enumerate(statements):
            done += self._statement(statement, before)
            before |= set(find_bound_names([statement]))
            if isinstance(statement, ast.FunctionDef):
                before.add(statement.name)
            if self.returned is not None:
                return [*done, *self._merge_return(statements[position + 1 :], before)]
        return done

    def _merge_return(self, rest: list[ast.stmt], before: set[str]) -> list[ast.stmt]:
        """Return statements that return the loop's value if it returned, and run the rest of the function if not."""
        returned, self.returned = str(self.returned), None
        result = returned.replace("_returned_", "_result_")
        self.made += 1
        name = f"_rest_{self.made}"
        names = sorted(set(find_bound_names(rest)) & before & find_read_names(rest))
        body = self._merge_returns(rest or [ast.Return(ast.Constant(None))], before)
        define = define_function(name, names, body)
        define.args.defaults = [ast.Name(item, ast.Load()) for item in names]
        value = make_thunk(ast.Name(result, ast.Load()))
        call = call_runtime("choose", ast.Name(returned, ast.Load()), value, ast.Name(name, ast.Load()))
        return [define, ast.Return(call)]

    def _statement(self, node: ast.stmt, before: set[str]) -> list[ast.stmt]:
        if isinstance(node, ast.Assert) or only_refuses(node):
            return [ast.Pass()]  # checks hold for legal inputs, and a graph cannot raise
        if isinstance(node, ast.FunctionDef):
            self._rewrite_nested_function(node)
            return [node]
        if isinstance(node, ast.For | ast.While) and self.suspect(node):
            return self._rewrite_loop_statements(node, before)
        if isinstance(node, ast.While) and self.loop is not None:
            raise Refused("a `while` inside the loop cannot be turned into steps; write it as `for`", node.lineno)
        if self.loop is not None:
            return self._rewrite_in_loop(node, before)
        if isinstance(node, ast.If):
            node.test = self.expressions.truth(node.test)
        for field in ("body", "orelse", "finalbody"):
            if isinstance(getattr(node, field, None), list):
                setattr(node, field, self.rewrite_block(getattr(node, field), set(before)))
        self._rewrite_own_expressions(node)
        return [node]

    def _rewrite_own_expressions(self, node: ast.stmt) -> None:
        """Rewrite the expressions of the statement itself, not those in the blocks below it."""
        chosen = isinstance(node, ast.Assign) and set(find_bound_names([node])) & self.expressions.chosen
        visit = self.expressions.within if chosen else self.expressions.visit
        for field, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                setattr(node, field, visit(value))
            elif isinstance(value, list) and value and isinstance(value[0], (ast.expr, ast.withitem)):
                setattr(node, field, [visit(item) for item in value])

    def _rewrite_in_loop(self, node: ast.stmt, before: set[str]) -> list[ast.stmt]:
        if isinstance(node, (ast.Break, ast.Return)):
            word = "break" if isinstance(node, ast.Break) else "return"
            raise Refused(
                f"`{word}` inside the loop ends it early, at a step that depends on values; compute every "
                "step and mask the rest with torch.where",
                node.lineno,
            )
        if isinstance(node, (ast.Raise, ast.Pass)):
            return [ast.Pass()]
        if isinstance(node, ast.If):
            return self._rewrite_if(node, before)
        if isinstance(node, ast.AugAssign):
            return self._rewrite_augmented(node)
        if isinstance(node, ast.Assign):
            return self._rewrite_assign(node)
        if isinstance(node, (ast.For, ast.With)):
            node.body = self.rewrite_block(self._replace_continue(node.body), set(before))
        if isinstance(node, (ast.Try, ast.Delete, ast.Global, ast.Nonlocal)):
            raise Refused(f"`{type(node).__name__.lower()}` inside the loop has no counterpart in a graph", node.lineno)
        self._rewrite_own_expressions(node)
        return [node]

    def _rewrite_assign(self, node: ast.Assign) -> list[ast.stmt]:
        value = self.expressions.visit(node.value)
        done: list[ast.stmt] = []
        if len(node.targets) > 1:
            done.append(ast.Assign([ast.Name("_value", ast.Store())], value))
            value = ast.Name("_value", ast.Load())
        for target in node.targets:
            done.append(
                self._rewrite_write(target, value, "")
                if isinstance(target, ast.Subscript)
                else ast.Assign([self._check_target(target)], value)
            )
        return done

    def _check_target(self, target: ast.expr) -> ast.expr:
        for part in ast.walk(target):
            if isinstance(part, (ast.Subscript, ast.Attribute)):
                raise Refused(
                    f"the loop writes through `{ast.unparse(target)}`, which may be another name's tensor; "
                    "bind a plain name and write it after the loop",
                    target.lineno,
                )
        return target

    def _rewrite_augmented(self, node: ast.AugAssign) -> list[ast.stmt]:
        value = self.expressions.visit(node.value)
        if isinstance(node.target, ast.Subscript):
            return [self._rewrite_write(node.target, value, _SIGNS[type(node.op)])]
        target = self._check_target(node.target)
        assert isinstance(target, ast.Name)
        return [ast.Assign([target], ast.BinOp(ast.Name(target.id, ast.Load()), node.op, value))]

    def _rewrite_write(self, target: ast.Subscript, value: ast.expr, sign: str) -> ast.stmt:
        """Write `out[key] = v` as `out = put(out, key, v)`."""
        if not isinstance(target.value, ast.Name):
            raise Refused(
                f"the loop writes through `{ast.unparse(target.value)}`, which may be another name's tensor; "
                "give the tensor a plain name before the loop and write into that",
                target.lineno,
            )
        name, key = target.value.id, self.expressions.key(target.slice)
        signs = [ast.Constant(sign)] if sign else []
        return ast.Assign(
            [ast.Name(name, ast.Store())], call_runtime("put", ast.Name(name, ast.Load()), key, value, *signs)
        )

    def _rewrite_loop_statements(self, node: ast.For | ast.While, before: set[str]) -> list[ast.stmt]:
        """Rewrite a loop, with the statements that its simpler form needs before and after it."""
        exits = simplify_exits(node, self.expressions.scope)
        if exits.returned is not None and (self.loop is not None or node not in self.top):
            raise Refused(
                "`return` inside the loop ends it early, and the loop is not at the top of its function; compute every "
                "step and mask the rest with torch.where",
                node.lineno,
            )
        before = before | set(find_bound_names(exits.before))
        loop = make_endless(exits.loop) if isinstance(exits.loop, ast.While) else exits.loop
        done = [*exits.before, *self._rewrite_loop(loop, before)]
        self.returned = exits.returned
        return [*done, *exits.after]

    def _rewrite_loop(self, node: ast.For, before: set[str]) -> list[ast.stmt]:
        filled = find_lists_by_value(node, before)
        check_filled_by_one_loop(node, filled)
        node = push_items(node, filled)
        varying = {*find_bound_names([node.target]), *find_bound_names(node.body)}
        self.expressions.align_slices(node.body, varying)
        flag = f"_ended_{node.lineno}" if any(map(ends_loop, node.body)) else None
        prelude: list[ast.stmt] = []
        if flag is not None:
            node.body = replace_break(node.body, flag)
            prelude = [ast.Assign([ast.Name(flag, ast.Store())], ast.Constant(False))]
            before = before | {flag}
        names = find_loop_names(node, self.tree, self.loop, before)
        if flag is not None and names.last:  # carried, from the first step on
            late = set(names.last) - set(find_bound_names([node.target]))
            unbound = ast.Attribute(ast.Name(RUNTIME, ast.Load()), "UNBOUND", ast.Load())
            prelude += [ast.Assign([ast.Name(name, ast.Store())], unbound) for name in sorted(late)]
            before = before | late
            names = find_loop_names(node, self.tree, self.loop, before)
        if flag is not None and names.last:
            raise Refused(
                f"the loop ends early, and `{names.last[0]}` is read after it; compute every step and "
                "mask the rest with torch.where",
                node.lineno,
            )
        check_lists(node, names.lists)
        check_in_place(node, before)
        is_outermost = self.loop is None
        self.made += 1
        step = f"_step_{node.lineno}_{self.made}"
        iterable = self.expressions.iterable(node.iter)
        define = self._define_step(step, node, names, before)
        positions = [names.carried.index(name) for name in names.written] if is_outermost else []
        written = ast.Tuple([ast.Constant(position) for position in positions], ast.Load())
        last = ast.Constant(len(names.last))
        call = call_runtime(
            "loop",
            iterable,
            ast.Name(step, ast.Load()),
            load_names(names.carried),
            load_names(names.lists),
            last,
            written,
        )
        if flag is not None:
            call.keywords = [ast.keyword("ended", ast.Constant(names.carried.index(flag)))]
        if filled:
            indices: list[ast.expr] = [ast.Constant(names.carried.index(name)) for name in filled]
            call.keywords.append(ast.keyword("filled", ast.Tuple(indices, ast.Load())))
        if is_outermost:
            self.expressions.filled |= set(filled)
        into = ast.Tuple([store_names(names.carried), store_names(names.lists), store_names(names.last)], ast.Store())
        return [*prelude, define, ast.Assign([into], call)]

    def _define_step(self, step: str, node: ast.For, names: LoopNames, before: set[str]) -> ast.FunctionDef:
        """Return the definition of a loop's step."""
        numbers = sorted((find_number_names(self.tree) & before & find_read_names(node.body)) - set(names.carried))
        outer, self.loop = self.loop, node
        inside, varying = self.expressions.inside, set(self.expressions.varying)
        self.expressions.inside = True
        self.expressions.varying |= {*find_bound_names([node.target]), *find_bound_names(node.body)}
        bound_before = before | set(find_bound_names([node.target])) | set(names.carried)
        body = self.rewrite_block(self._replace_continue(node.body), set(bound_before))
        self.loop, self.expressions.inside, self.expressions.varying = outer, inside, varying
        lists = [call_runtime("rows", ast.Name(name, ast.Load())) for name in names.lists]
        head: list[ast.stmt] = [ast.Assign([node.target], ast.Name("_item", ast.Load()))]
        if names.carried:
            head.append(ast.Assign([store_names(names.carried)], ast.Name("_carried", ast.Load())))
        head += [ast.Assign([ast.Name(name, ast.Store())], ast.List([], ast.Load())) for name in names.lists]
        result = ast.Tuple(
            [load_names(names.carried), ast.Tuple(list(lists), ast.Load()), load_names(names.last)], ast.Load()
        )
        define = define_function(step, ["_item", "_carried"], [*head, *body, ast.Return(result)])
        if outer is None:
            define.args.args += [ast.arg(name) for name in numbers]
            define.args.defaults = [call_runtime("inside", ast.Name(name, ast.Load())) for name in numbers]
        return define

    def _replace_continue(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Write `if c: continue` followed by the rest as the rest under `if not c`."""
        for place, statement in enumerate(statements):
            if isinstance(statement, ast.Continue):
                return statements[:place]
            if isinstance(statement, ast.If) and any(isinstance(n, ast.Continue) for n in walk_own([statement])):
                rest = statements[place + 1 :]
                statement.body = self._replace_continue([*statement.body, *copy.deepcopy(rest)])
                statement.orelse = self._replace_continue([*statement.orelse, *copy.deepcopy(rest)])
                return [*statements[:place], statement]
        return statements

    def _rewrite_if(self, node: ast.If, before: set[str]) -> list[ast.stmt]:
        test = self.expressions.visit(node.test)
        names = sorted({*find_bound_names([*node.body, *node.orelse]), *find_written_names([*node.body, *node.orelse])})
        self.made += 1
        sides = []
        for word, statements in (("then", node.body), ("else", node.orelse)):
            body = self.rewrite_block(statements, set(before) | set(names))
            sides.append(
                define_function(f"_{word}_{node.lineno}_{self.made}", names, [*body, ast.Return(load_names(names))])
            )
        arguments = [
            ast.Name(name, ast.Load())
            if name in before
            else ast.Attribute(ast.Name(RUNTIME, ast.Load()), "UNBOUND", ast.Load())
            for name in names
        ]
        call = call_runtime(
            "branch", test, *[ast.Name(side.name, ast.Load()) for side in sides], ast.Tuple(list(arguments), ast.Load())
        )
        return [*sides, ast.Assign([store_names(names)], call) if names else ast.Expr(call)]

    def _rewrite_nested_function(self, node: ast.FunctionDef) -> None:
        parameters = {a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
        hidden = set(self.expressions.hidden)
        self.expressions.hidden |= parameters | set(find_bound_names(node.body))
        self._rewrite_nested_body(node, parameters)
        self.expressions.hidden = hidden

    def _rewrite_nested_body(self, node: ast.FunctionDef, parameters: set[str]) -> None:
        """Rewrite a function that gets tensors in place of numbers. Conditional `return`s become one at the end."""
        loop, self.loop = self.loop, self.loop or _OUTER_LOOP
        inside, self.expressions.inside = self.expressions.inside, True
        node.body = self._merge_returns(node.body, parameters)
        self.loop, self.expressions.inside = loop, inside

    def _merge_returns(self, statements: list[ast.stmt], before: set[str]) -> list[ast.stmt]:
        before = set(before)
        done: list[ast.stmt] = []
        for place, statement in enumerate(statements):
            if isinstance(statement, ast.Return):
                value = None if statement.value is None else self.expressions.visit(statement.value)
                return [*done, ast.Return(value)]
            if isinstance(statement, ast.If) and any(isinstance(n, ast.Return) for n in walk_own([statement])):
                return [*done, *self._merge_sides(statement, statements[place + 1 :], before)]
            done += self._statement(statement, before)
            before |= set(find_bound_names([statement]))
        return done

    def _merge_sides(self, node: ast.If, rest: list[ast.stmt], before: set[str]) -> list[ast.stmt]:
        test = self.expressions.visit(node.test)
        self.made += 1
        sides = []
        for word, statements in (("then", node.body), ("else", node.orelse)):
            block = [*statements, *copy.deepcopy(rest)]
            taken = sorted(set(find_bound_names(block)) & before & find_read_names(block))
            side = define_function(f"_{word}_{node.lineno}_{self.made}", taken, self._merge_returns(block, before))
            side.args.defaults = [ast.Name(name, ast.Load()) for name in taken]
            sides.append(side)
        call = call_runtime("choose", test, *[ast.Name(side.name, ast.Load()) for side in sides])
        return [*sides, ast.Return(call)]
