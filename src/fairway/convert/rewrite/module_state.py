"""Carry the attributes that modules change inside a loop from step to step, as a loop carries names.

A spiking layer keeps its membrane in `self.mem`, a streaming convolution its last frames in `self.cache`. Operators for
loops take no such side effects. So inside a loop that is rewritten, and in every function that it calls, reads and
writes of these attributes become reads and writes of `_state`, a dict with an entry for each attribute of each module.
Functions that may change it take it as an argument and return it beside their result.
"""

from __future__ import annotations

import ast
import copy
import types
from collections.abc import Callable
from typing import TypeVar

import torch

from fairway.convert.rewrite.bindings import find_bound_names
from fairway.convert.rewrite.call_graph import (
    collect_visible_names,
    find_method,
    is_model_code,
    look_up,
    split_attributes,
)
from fairway.convert.rewrite.expressions import call_runtime
from fairway.convert.rewrite.loop_checks import Refused
from fairway.convert.rewrite.state_plan import StatePlan

STATE = "_state"
Suspect = Callable[[ast.AST], bool]
NodeType = TypeVar("NodeType", bound=ast.AST)


def lift_loops(
    tree: ast.FunctionDef, function: types.FunctionType, module: torch.nn.Module, plan: StatePlan, suspect: Suspect
) -> tuple[ast.FunctionDef, Suspect]:
    """Return the function with modules' attributes carried by its suspicious loops, and what is suspicious in it."""
    if not tree.args.args or not plan.is_touched(module):
        return tree, suspect
    lifter = _Lifter(function, module, plan)
    new = copy.deepcopy(tree)
    new.body = lifter.lift_outside(new.body, suspect)
    if not lifter.is_used:
        return tree, suspect
    return ast.fix_missing_locations(new), lambda node: getattr(node, _MARK, False) or suspect(node)


def lift_method(
    tree: ast.FunctionDef, function: types.FunctionType, module: torch.nn.Module, plan: StatePlan
) -> ast.FunctionDef:
    """Return a method that takes the state behind `self`, and returns it beside its result."""
    new = copy.deepcopy(tree)
    new.args.args.insert(1, ast.arg(STATE))
    body = _Lifter(function, module, plan).lift_inside(new.body)
    first: ast.stmt = ast.Assign([ast.Name(STATE, ast.Store())], call_runtime("fork", ast.Name(STATE, ast.Load())))
    new.body = [first, *_return_state(body), ast.Return(_pair(ast.Constant(None)))]
    new.decorator_list = []
    return ast.fix_missing_locations(new)


def _pair(value: ast.expr) -> ast.expr:
    return ast.Tuple([value, ast.Name(STATE, ast.Load())], ast.Load())


def _return_state(statements: list[ast.stmt]) -> list[ast.stmt]:
    class Returns(ast.NodeTransformer):
        def visit_Return(self, node: ast.Return) -> ast.AST:
            return ast.copy_location(ast.Return(_pair(node.value or ast.Constant(None))), node)

        def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
            return node

        def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
            return node

    return [Returns().visit(statement) for statement in statements]


_MARK = "fairway_loop"
"""Set on loops that were comprehensions."""


class _Lifter:
    """Rewrites the statements of one function."""

    def __init__(self, function: types.FunctionType, module: torch.nn.Module, plan: StatePlan) -> None:
        self.plan, self.module = plan, module
        self.scope = {**collect_visible_names(function), "self": module}
        self.bound: set[str] = set()
        self.made = 0
        self.is_used = False

    def lift_outside(self, statements: list[ast.stmt], suspect: Suspect) -> list[ast.stmt]:
        """Lift the suspicious loops, and leave the statements around them as they are."""
        self.bound |= set(find_bound_names(statements))
        done: list[ast.stmt] = []
        for node in statements:
            if isinstance(node, ast.For | ast.While) and suspect(node) and self.touches(node):
                done += self._lift_loop(node)
                continue
            if not isinstance(node, ast.For | ast.While | ast.If | ast.With | ast.Try | ast.FunctionDef):
                before, node = self._unfold_comprehensions(node, suspect)
                done += before
            for field_name in ("body", "orelse", "finalbody"):
                if isinstance(getattr(node, field_name, None), list) and not isinstance(node, ast.FunctionDef):
                    setattr(node, field_name, self.lift_outside(getattr(node, field_name), suspect))
            done.append(node)
        return done

    def _lift_loop(self, node: ast.For | ast.While) -> list[ast.stmt]:
        self.is_used = True
        own = ast.Name("self", ast.Load())
        state = ast.Name(STATE, ast.Load())
        opened = ast.Assign([ast.Name(STATE, ast.Store())], call_runtime("open_state", own))
        closed = ast.Expr(call_runtime("close_state", own, state))
        if isinstance(node, ast.While):
            node.test = self._lift_expression(node.test)
        node.body = self.lift_inside(node.body)
        _place(opened, node, node.lineno)
        _place(closed, node, (node.end_lineno or node.lineno) + 1)  # it reads the state after the loop
        return [opened, node, closed]

    def _unfold_comprehensions(self, node: ast.stmt, suspect: Suspect) -> tuple[list[ast.stmt], ast.stmt]:
        """Write comprehensions that change the state as loops before the statement."""
        before: list[ast.stmt] = []
        lifter = self

        class Unfold(ast.NodeTransformer):
            def visit_ListComp(self, comprehension: ast.ListComp) -> ast.AST:
                generators = comprehension.generators
                if not suspect(comprehension) or not lifter.touches(comprehension.elt):
                    return comprehension
                if len(generators) != 1 or generators[0].ifs:
                    raise Refused("a comprehension with conditions changes modules' attributes", comprehension.lineno)
                lifter.made += 1
                name = f"_list_{lifter.made}"
                append = ast.Attribute(ast.Name(name, ast.Load()), "append", ast.Load())
                body: list[ast.stmt] = [ast.Expr(ast.Call(append, [comprehension.elt], []))]
                loop = ast.For(generators[0].target, generators[0].iter, body, [])
                ast.copy_location(loop, comprehension)
                setattr(loop, _MARK, True)
                empty = ast.Assign([ast.Name(name, ast.Store())], ast.List([], ast.Load()))
                _place(empty, comprehension, comprehension.lineno)
                _place(body[0], comprehension, comprehension.lineno)
                before.extend([empty, *lifter._lift_loop(loop)])
                return _place(ast.Name(name, ast.Load()), comprehension, (loop.end_lineno or loop.lineno) + 1)

        new: ast.stmt = Unfold().visit(node)
        return before, new

    def lift_inside(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Lift statements that a step runs."""
        self.bound |= set(find_bound_names(statements))
        done: list[ast.stmt] = []
        for node in statements:
            done += self._lift_statement(node)
        return done

    def _lift_statement(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, ast.FunctionDef):
            if self.touches(node):
                raise Refused(f"the nested function `{node.name}` changes modules' attributes", node.lineno)
            return [node]
        after: list[ast.stmt] = []
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            if node.value is None:
                return [node]
            done = self._lift_assignment(node, after)
        else:
            for name in ("body", "orelse", "finalbody"):
                if isinstance(getattr(node, name, None), list):
                    setattr(node, name, self.lift_inside(getattr(node, name)))
            for name in ("value", "test", "iter", "exc", "msg"):
                if isinstance(getattr(node, name, None), ast.expr):
                    setattr(node, name, self._lift_expression(getattr(node, name)))
            done = [node]
        heads = [part for statement in (*done, *after) for part in _list_own_expressions(statement)]
        if any(_changes_state(part) for part in heads):
            fork = ast.Assign([ast.Name(STATE, ast.Store())], call_runtime("fork", ast.Name(STATE, ast.Load())))
            return [_place(fork, node, node.lineno), *done, *after]
        return [*done, *after]

    def _lift_assignment(
        self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, after: list[ast.stmt]
    ) -> list[ast.stmt]:
        """Return the assignment to plain names; writes of attributes go into `after`."""
        assert node.value is not None
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if not any(self._find_written(part) is not None for target in targets for part in ast.walk(target)):
            node.value = self._lift_expression(node.value)
            return [node]
        if isinstance(node, ast.AugAssign):
            held = copy.deepcopy(node.target)
            for part in ast.walk(held):
                if isinstance(getattr(part, "ctx", None), ast.Store):
                    part.ctx = ast.Load()  # type: ignore[attr-defined]
            if isinstance(node.target, ast.Subscript):
                before, name = self._hold(node.target.value, node)
                kept = ast.AugAssign(
                    ast.Subscript(ast.Name(name, ast.Load()), node.target.slice, ast.Store()),
                    node.op,
                    self._lift_expression(node.value),
                )
                after.append(self._write(node.target.value, ast.Name(name, ast.Load()), node))
                return [before, _place(kept, node, node.lineno)]
            value: ast.expr = ast.BinOp(held, node.op, node.value)
            plain = ast.Assign([node.target], ast.copy_location(value, node.value))
            return self._lift_assignment(_place(plain, node, node.lineno), after)
        before_all: list[ast.stmt] = []
        new_targets = [self._replace_target(target, node, before_all, after) for target in targets]
        made = ast.Assign(new_targets, self._lift_expression(node.value))
        return [*before_all, _place(made, node, node.lineno)]

    def _lift_augmented(self, node: ast.AugAssign, after: list[ast.stmt]) -> list[ast.stmt]:
        if isinstance(node.target, ast.Subscript):
            before, name = self._hold(node.target.value, node)
            target = ast.Subscript(ast.Name(name, ast.Load()), node.target.slice, ast.Store())
            kept = ast.AugAssign(target, node.op, self._lift_expression(node.value))
            after.append(self._write(node.target.value, ast.Name(name, ast.Load()), node))
            return [before, _place(kept, node, node.lineno)]
        assert isinstance(node.target, ast.Attribute)
        held = ast.Attribute(node.target.value, node.target.attr, ast.Load())
        value = ast.BinOp(ast.copy_location(held, node.target), node.op, node.value)
        plain = ast.Assign([node.target], ast.copy_location(value, node.value))
        return self._lift_assignment(_place(plain, node, node.lineno), after)

    def _replace_target(
        self, target: ast.expr, node: ast.stmt, before: list[ast.stmt], after: list[ast.stmt]
    ) -> ast.expr:
        if isinstance(target, ast.Tuple | ast.List):
            parts = [self._replace_target(part, node, before, after) for part in target.elts]
            return ast.copy_location(ast.Tuple(parts, ast.Store()), target)
        if isinstance(target, ast.Subscript) and self._find_written(target.value) is not None:
            held, name = self._hold(target.value, node)
            before.append(held)
            after.append(self._write(target.value, ast.Name(name, ast.Load()), node))
            return ast.copy_location(ast.Subscript(ast.Name(name, ast.Load()), target.slice, ast.Store()), target)
        if self._find_written(target) is None:
            return target
        assert isinstance(target, ast.Attribute)
        self.made += 1
        name = f"_{target.attr}_{self.made}"
        after.append(self._write(target, ast.Name(name, ast.Load()), node))
        return ast.copy_location(ast.Name(name, ast.Store()), target)

    def _hold(self, target: ast.expr, node: ast.stmt) -> tuple[ast.stmt, str]:
        """Return the statement that gives an attribute's tensor a plain name, and the name."""
        assert isinstance(target, ast.Attribute)
        self.made += 1
        name = f"_{target.attr}_{self.made}"
        value = self._lift_expression(ast.copy_location(ast.Attribute(target.value, target.attr, ast.Load()), target))
        return _place(ast.Assign([ast.Name(name, ast.Store())], value), node, node.lineno), name

    def _write(self, target: ast.expr, value: ast.expr, node: ast.stmt) -> ast.stmt:
        assert isinstance(target, ast.Attribute)
        if target.attr not in self.plan.carried:
            return _place(ast.Pass(), node, node.lineno)  # nothing reads it
        call = call_runtime(
            "write_attribute", ast.Name(STATE, ast.Load()), target.value, ast.Constant(target.attr), value
        )
        return _place(ast.Expr(call), node, node.lineno)

    def _find_written(self, node: ast.AST) -> str | None:
        if isinstance(node, ast.Attribute) and node.attr in self.plan.written:
            return node.attr
        return None

    def _lift_expression(self, node: ast.expr) -> ast.expr:
        lifter = self

        class Lift(ast.NodeTransformer):
            def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
                self.generic_visit(node)
                if isinstance(node.ctx, ast.Load) and node.attr in lifter.plan.carried:
                    state = ast.Name(STATE, ast.Load())
                    return ast.copy_location(
                        call_runtime("read_attribute", state, node.value, ast.Constant(node.attr)), node
                    )
                return node

            def visit_Call(self, node: ast.Call) -> ast.AST:
                new = lifter._lift_call(node)
                self.generic_visit(new)
                return new

            def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
                return node

        new: ast.expr = Lift().visit(node)
        return new

    def _lift_call(self, node: ast.Call) -> ast.Call:
        function, state = node.func, ast.Name(STATE, ast.Load())
        if self._is_touched_method(function):
            assert isinstance(function, ast.Attribute)
            call = call_runtime("call_method", state, function.value, ast.Constant(function.attr), *node.args)
        elif self._may_be_touched_module(function):
            call = call_runtime("call_module", state, function, *node.args)
        else:
            return node
        call.keywords = node.keywords
        return ast.copy_location(call, node)

    def _is_touched_method(self, function: ast.expr) -> bool:
        """Return whether this is a method of a module of the model that may change the state."""
        chain = split_attributes(function)
        if chain is None or len(chain) < 2 or chain[0] != "self":
            return False
        owner = look_up(chain[:-1], self.scope)
        if not self.plan.is_touched(owner) or isinstance(look_up(chain, self.scope), torch.nn.Module):
            return False
        return is_model_code(find_method(owner, chain[-1]))

    def _may_be_touched_module(self, function: ast.expr) -> bool:
        chain = split_attributes(function)
        if chain is not None and chain[0] == "self":
            return self.plan.is_touched(look_up(chain, self.scope))
        if isinstance(function, ast.Name):
            return function.id in self.bound and any(map(self.plan.is_touched, self.module.children()))
        if isinstance(function, ast.Subscript):
            held = split_attributes(function.value)
            return held is not None and held[0] == "self" and self.plan.is_touched(look_up(held, self.scope))
        return False

    def touches(self, node: ast.AST) -> bool:
        """Return whether running this may change an attribute that is carried, or write one that nothing reads."""
        self.bound |= set(find_bound_names([node]))
        for part in ast.walk(node):
            if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and part.attr in self.plan.written:
                return True
            is_write = isinstance(part, ast.Subscript) and isinstance(part.ctx, ast.Store)
            if is_write and self._find_written(part.value) is not None:  # type: ignore[attr-defined]
                return True
            if isinstance(part, ast.Call) and (
                self._is_touched_method(part.func) or self._may_be_touched_module(part.func)
            ):
                return True
        return False


def _list_own_expressions(node: ast.stmt) -> list[ast.expr]:
    """Return the expressions of a statement, without those of the blocks below it."""
    return [value for _, value in ast.iter_fields(node) if isinstance(value, ast.expr)]


def _changes_state(node: ast.expr) -> bool:
    names = ("write_attribute", "call_method", "call_module")
    return any(isinstance(part, ast.Attribute) and part.attr in names for part in ast.walk(node))


def _place(node: NodeType, like: ast.AST, line: int) -> NodeType:
    """Give new nodes a place in the user's file. What runs after a loop has a line behind it."""
    for part in ast.walk(node):
        if not hasattr(part, "lineno") and isinstance(part, ast.stmt | ast.expr):
            ast.copy_location(part, like)
            part.lineno = part.end_lineno = line
    return node
