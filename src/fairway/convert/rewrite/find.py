"""Name the lines at which an exporter will freeze the model to its example: loops, lists, choices, branches.

A loop is suspect if a tensor's size or value bounds it; a list, if it counts to a size and is made a tensor; a
choice, if a number taken out of a tensor picks a module; a branch, if a tensor's size or value decides it. Loops
over layers, heads or other settings are not. Reading finds more than what runs: `observed.py` runs the model, and of
what was read only those lines count that ran and varied.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from fairway.convert.rewrite.arguments import flags_annotated, flags_by_name, flags_given
from fairway.convert.rewrite.bindings import ends_loop
from fairway.convert.rewrite.call_graph import (
    MISSING,
    FunctionNode,
    FunctionSource,
    attribute_chain,
    is_model_code,
    method_of,
    plain,
    read_source,
    visible_names,
)
from fairway.convert.rewrite.flow import (
    GROWING,
    NONE,
    SEQUENCE,
    SIZE,
    TENSOR,
    VALUE,
    Flags,
    Flow,
    is_module_choice,
    union,
)
from fairway.convert.rewrite.lists import counted
from fairway.diagnostics import Where
from fairway.model.source import is_users

Kind = Literal["loop", "list", "choice", "branch"]


@dataclass(frozen=True)
class Suspect:
    """One line that an exporter will freeze; `detail` says what it depends on."""

    kind: Kind
    where: Where
    detail: str
    by_value: bool = False
    """Whether a loop ends on a tensor's value, so that its steps need not differ between sizes."""


@dataclass(frozen=True)
class Site:
    """A suspect together with what a rewrite needs: the function, the node, the module it was reached from."""

    suspect: Suspect
    source: FunctionSource
    node: ast.AST
    module: torch.nn.Module


Lines = frozenset[tuple[str, int]]
"""Places in source files."""


def suspects(
    model: torch.nn.Module, given: Mapping[str, Any] | None = None, live: Lines | None = None
) -> tuple[Suspect, ...]:
    """Every suspect of the model, loops and choices before branches, in the order of the source.

    `given` are example arguments of the model's forward by name: a loop over a list of tensors does not follow a size.
    `live` are the lines that were seen to run and to vary; None if the model was not run.
    """
    return tuple(site.suspect for site in sites(model, given, live))


def sites(
    model: torch.nn.Module, given: Mapping[str, Any] | None = None, live: Lines | None = None
) -> tuple[Site, ...]:
    """Return the suspects with their code. Without a run, those of libraries are left out, except lists."""
    found = every_site(model, given)
    if live is not None:
        return tuple(site for site in found if line_of(site) in live)
    return tuple(site for site in found if is_users(site.source.file) or site.suspect.kind == "list")


def line_of(site: Site) -> tuple[str, int]:
    return site.source.file, site.suspect.where.line or 0


def every_site(model: torch.nn.Module, given: Mapping[str, Any] | None) -> tuple[Site, ...]:
    found: dict[tuple[str, str, int, int], Site] = {}
    seen: set[type] = set()
    shared = _Shared({id(module): path for path, module in model.named_modules()})
    for module in model.modules():
        forward = method_of(module, "forward")
        own = "forward" in module.__dict__
        if (type(module) in seen and not own) or not is_model_code(forward):
            continue
        seen.add(type(module))
        reading = _Reading(module, shared, found)
        reading.function(forward, None if given is None or module is not model else flags_given(forward, given))
    order = {"loop": 0, "list": 0, "choice": 0, "branch": 1}
    return tuple(
        sorted(found.values(), key=lambda s: (order[s.suspect.kind], s.source.file, s.suspect.where.line or 0))
    )


@dataclass
class _Shared:
    """What the readings of all modules know together."""

    paths: dict[int, str]
    known: dict[tuple[int, Any, tuple[Flags, ...]], Flags] = field(default_factory=dict)
    """The flags that a method of a module returns for the flags of its arguments."""


class _Reading:
    """One module's functions, followed from `forward` with the flags of the arguments at each call."""

    def __init__(self, module: torch.nn.Module, shared: _Shared, found: dict[tuple[str, str, int, int], Site]) -> None:
        self.module, self.shared, self.found = module, shared, found

    def of(self, owner: Any) -> _Reading:
        """Return the reading of the module that a called method belongs to."""
        if not isinstance(owner, torch.nn.Module) or owner is self.module or id(owner) not in self.shared.paths:
            return self
        return _Reading(owner, self.shared, self.found)

    def function(self, function: types.FunctionType, arguments: list[Flags] | None, in_loop: bool = False) -> Flags:
        """The flags of what the function returns. Without `arguments` it is a forward, fed with tensors."""
        source = read_source(function)
        if source is None:
            return TENSOR
        key = (id(self.module), function, tuple(arguments or ()))
        known = self.shared.known
        if key in known:
            return known[key]
        known[key] = TENSOR  # the answer for a function that calls itself
        scope = {**visible_names(function), "self": self.module}
        body = _Body(self, source, Flow(scope), in_loop)
        body.bind(source.tree, arguments)
        body.read(source.tree.body)
        known[key] = union(body.returned)
        return known[key]

    def report(
        self,
        kind: Kind,
        node: ast.stmt | ast.expr,
        source: FunctionSource,
        detail: str,
        line: int | None = None,
        by_value: bool = False,
    ) -> None:
        """`line` is the one to blame where that is not the node's own."""
        where = Where(
            file=source.file,
            line=line or node.lineno,
            function=source.function.__qualname__,
            source=source.line(line or node.lineno),
            module=self.shared.paths.get(id(self.module)) or None,
        )
        key = (kind, source.file, node.lineno, node.col_offset)
        self.found.setdefault(key, Site(Suspect(kind, where, detail, by_value), source, node, self.module))


class _Body(ast.NodeVisitor):
    """Reads statements in order, keeping the flags of local names, and reports what it meets."""

    def __init__(self, reading: _Reading, source: FunctionSource, flow: Flow, in_loop: bool) -> None:
        self.reading, self.source, self.flow = reading, source, flow
        self.in_loop = in_loop
        self.returned: list[Flags] = [NONE]
        self.local: dict[str, FunctionNode] = {}
        self.active: set[int] = set()
        self.loops: list[ast.For | ast.While] = []
        """The loops around what is read, innermost last."""
        flow._call = self._followed(flow._call)  # type: ignore[method-assign]

    def bind(self, node: FunctionNode, arguments: list[Flags] | None) -> None:
        """Gives the parameters their flags: the caller's, or a tensor's where none is annotated as a plain number."""
        parameters = [*node.args.posonlyargs, *node.args.args]
        if parameters and parameters[0].arg in ("self", "cls") and not isinstance(node, ast.Lambda):
            parameters = parameters[1:]
        for position, parameter in enumerate([*parameters, *node.args.kwonlyargs]):
            if arguments is None:
                self.flow.names[parameter.arg] = flags_annotated(parameter)
            else:
                self.flow.names[parameter.arg] = arguments[position] if position < len(arguments) else NONE
        rest = SEQUENCE if arguments is None else union(arguments[len(parameters) :])
        for extra in (node.args.vararg, node.args.kwarg):
            if extra is not None:
                self.flow.names[extra.arg] = rest

    def read(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.visit(statement)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        flags = self.flow.of(node.value)
        for target in node.targets:
            self._alias(target, node.value)
            self.flow.assign(target, flags, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
            self.flow.assign(node.target, self.flow.of(node.value), node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        self.flow.assign(node.target, self.flow.of(node.value) | self.flow.of(node.target))

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            self.visit(node.value)
            self.returned.append(self.flow.of(node.value))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.local[node.name] = node

    def visit_Lambda(self, node: ast.Lambda) -> None:
        return

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        bounds = self.flow.bounds(node.iter)
        if bounds:
            self.reading.report("loop", node, self.source, f"the loop is bounded by {bounds}")
        self.flow.assign(node.target, self.flow.items(node.iter))
        self._loop_body(node, bool(bounds))
        self.read(node.orelse)

    def visit_While(self, node: ast.While) -> None:
        self._loop_body(node, True)  # first the body, so that what it assigns is known to the test
        flags = self.flow.of(node.test)
        if flags & (TENSOR | VALUE):
            detail = f"`while {ast.unparse(node.test)}` asks for a tensor's value"
            self.reading.report("loop", node, self.source, detail, by_value=True)
        elif flags & SIZE:
            self.reading.report("loop", node, self.source, f"the loop is bounded by {self.flow.describe(node.test)}")

    def visit_If(self, node: ast.If) -> None:
        self._branch(node, node.test)
        if self.loops and ends_loop(node) and self.flow.of(node.test) & (TENSOR | VALUE):
            detail = f"the loop ends where `{ast.unparse(node.test)}`, which asks for a tensor's value"
            self.reading.report("loop", self.loops[-1], self.source, detail, by_value=True)
        self.read(node.body)
        self.read(node.orelse)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._branch(node, node.test)
        self.generic_visit(node)

    def visit_comprehension_of(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> None:
        hidden, inside = dict(self.flow.names), self.in_loop
        for generator in node.generators:
            self.visit(generator.iter)
            bounds = self.flow.bounds(generator.iter)
            if bounds:
                self.reading.report("loop", node, self.source, f"the loop is bounded by {bounds}")
            self.in_loop |= bool(bounds)
            self.flow.assign(generator.target, self.flow.items(generator.iter))
        self.visit(node.elt)
        self.flow.names, self.in_loop = hidden, inside

    visit_ListComp = visit_GeneratorExp = visit_SetComp = visit_comprehension_of

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.generic_visit(node)
        index = self.flow.of(node.slice)
        if index & (VALUE | TENSOR) and is_module_choice(self._held(node.value)):
            chosen, by = ast.unparse(node.value), self.flow.describe(node.slice)
            taken = self.flow.taken_at.get(node.slice.id) if isinstance(node.slice, ast.Name) else None
            detail = f"a module of {chosen} is chosen by {by}" + (f"; picked at line {node.lineno}" if taken else "")
            self.reading.report("choice", node, self.source, detail, taken)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        self.flow.of(node)
        function = node.func
        listed = counted(node, self.flow.live(function))
        if listed is not None and union(map(self.flow.of, listed.bounds)) & SIZE:
            size = " and ".join(self.flow.describe(one) for one in listed.bounds if self.flow.of(one))
            self.reading.report("list", node, self.source, f"the list is as long as {size}")
        if isinstance(function, ast.Attribute) and function.attr in ("append", "extend", "insert"):
            flags = union(self.flow.of(argument) for argument in node.args)
            if flags & TENSOR and isinstance(function.value, ast.Name):
                self.flow.assign(function.value, GROWING if self.in_loop else SEQUENCE)
        if isinstance(function, ast.Name) and function.id == "getattr" and len(node.args) > 1:
            index = self.flow.of(node.args[1])
            if index & (VALUE | TENSOR):
                self.reading.report(
                    "choice", node, self.source, f"a module is chosen by the name {ast.unparse(node.args[1])}"
                )

    def _alias(self, target: ast.expr, value: ast.expr) -> None:
        if not isinstance(target, ast.Name):
            return
        if isinstance(value, ast.Lambda):
            self.local[target.id] = value
        held = self._held(value)
        if is_module_choice(held):
            self.flow.scope = {**self.flow.scope, target.id: held}

    def _held(self, node: ast.expr) -> Any:
        held = self.flow.live(node)
        if held is MISSING and isinstance(node, ast.Name):
            held = self.flow.scope.get(node.id, MISSING)
        return held

    def _branch(self, node: ast.If | ast.IfExp, test: ast.expr) -> None:
        self.visit(test)
        flags = self.flow.of(test)
        # Inside a suspect loop a plain number is the loop's own business: it goes away together with the loop.
        if "tensor" in flags or ("value" in flags and not self.in_loop):
            self.reading.report("branch", node, self.source, f"`if {ast.unparse(test)}` asks for a tensor's value")
        elif "size" in flags and not self.in_loop and not _only_refuses(node):
            self.reading.report("branch", node, self.source, f"`if {ast.unparse(test)}` asks for a size that may vary")

    def _loop_body(self, loop: ast.For | ast.While, suspect: bool) -> None:
        inside = self.in_loop
        self.in_loop |= suspect
        self.loops.append(loop)
        self.read(loop.body)
        self.read(loop.body)  # once more, with what the first round carried around
        self.loops.pop()
        self.in_loop = inside

    def _followed(self, plain_call: Any) -> Any:
        """Calls of the user's own functions are read with the flags of their arguments."""

        def call(node: ast.Call) -> Flags:
            arguments = [self.flow.of(a) for a in node.args] + [self.flow.of(k.value) for k in node.keywords]
            if isinstance(node.func, ast.Name) and node.func.id in self.local:
                return self._nested(self.local[node.func.id], arguments)
            target = self._target(node.func)
            if is_model_code(target):
                by_position = len(node.args) == len(arguments)
                passed = arguments if by_position else flags_by_name(target, node, self.flow)
                reading = self.reading.of(getattr(self.flow.live(node.func), "__self__", None))
                return reading.function(target, passed, self.in_loop)
            flags: Flags = plain_call(node)
            return flags

        return call

    def _target(self, function: ast.expr) -> Any:
        chain = attribute_chain(function)
        if chain is not None and len(chain) == 2 and chain[0] == "self":
            return method_of(self.reading.module, chain[1])
        if isinstance(function, ast.Attribute) and ast.unparse(function.value).startswith("super("):
            for base in type(self.reading.module).__mro__[1:]:
                if function.attr in base.__dict__:
                    return plain(base.__dict__[function.attr])
        return plain(self.flow.live(function))

    def _nested(self, node: FunctionNode, arguments: list[Flags]) -> Flags:
        if id(node) in self.active:
            return union(arguments)
        self.active.add(id(node))
        hidden, returned, self.returned = dict(self.flow.names), self.returned, [NONE]
        self.bind(node, arguments)
        if isinstance(node, ast.Lambda):
            self.visit(node.body)
            self.returned.append(self.flow.of(node.body))
        else:
            self.read(node.body)
        flags = union(self.returned)
        self.flow.names, self.returned = hidden, returned
        self.active.discard(id(node))
        return flags


def _only_refuses(node: ast.If | ast.IfExp) -> bool:
    """A check of the inputs: legal ones never take that side."""
    return isinstance(node, ast.If) and not node.orelse and all(isinstance(s, ast.Raise | ast.Pass) for s in node.body)
