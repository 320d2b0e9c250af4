"""Find the lines at which an exporter will freeze the model to its example: loops, lists, choices, branches.

A loop is suspect if a tensor's size or value bounds it. A list is suspect if it counts to a size and is made a tensor,
a choice if a number taken out of a tensor picks a module, and a branch if a tensor's size or value decides it. Loops
over layers, heads or other settings are not. Reading finds more lines than run: `live_sites.py` runs the model, and
only the lines count that ran and varied.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch

from fairway.convert.rewrite.arguments import bind_call_flags, read_annotation_flags, read_value_flags
from fairway.convert.rewrite.bindings import ends_loop, walk_own
from fairway.convert.rewrite.call_graph import (
    MISSING,
    FunctionNode,
    FunctionSource,
    collect_visible_names,
    find_method,
    is_model_code,
    read_source,
    split_attributes,
    unwrap_function,
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
from fairway.convert.rewrite.input_checks import only_refuses
from fairway.convert.rewrite.lists import read_counting_list
from fairway.convert.rewrite.scalars import RuntimeValue
from fairway.diagnostics import Where
from fairway.model.source import is_user_code

Kind = Literal["loop", "list", "choice", "branch"]


@dataclass(frozen=True)
class Suspect:
    """One line that an exporter will freeze. `detail` says what it depends on."""

    kind: Kind
    where: Where
    detail: str
    by_value: bool = False
    """True for a loop that ends on a tensor's value, so that its steps need not differ between sizes."""


@dataclass(frozen=True)
class Site:
    """A suspect with its function, its node, and the module from which it was reached."""

    suspect: Suspect
    source: FunctionSource
    node: ast.AST
    module: torch.nn.Module


Lines = frozenset[tuple[str, int]]
"""Files and line numbers."""


def find_suspects(
    model: torch.nn.Module, given: Mapping[str, RuntimeValue] | None = None, live: Lines | None = None
) -> tuple[Suspect, ...]:
    """Return every suspect of the model, loops and choices before branches, in the order of the source.

    `given` are example arguments of the model's forward by name: a loop over a list of tensors does not follow a size.
    `live` are the lines that were seen to run and to vary; None if the model was not run.
    """
    return tuple(site.suspect for site in find_sites(model, given, live))


def find_sites(
    model: torch.nn.Module, given: Mapping[str, RuntimeValue] | None = None, live: Lines | None = None
) -> tuple[Site, ...]:
    """Return the suspects with their code. Without a run, those of libraries are left out, except lists."""
    sites = find_all_sites(model, given)
    if live is not None:
        return tuple(site for site in sites if get_site_line(site) in live)
    return tuple(site for site in sites if is_user_code(site.source.file) or site.suspect.kind == "list")


def get_site_line(site: Site) -> tuple[str, int]:
    return site.source.file, site.suspect.where.line or 0


def find_all_sites(model: torch.nn.Module, given: Mapping[str, RuntimeValue] | None) -> tuple[Site, ...]:
    sites: dict[tuple[str, str, int, int], Site] = {}
    seen: set[type] = set()
    shared = _SharedReadings({id(module): path for path, module in model.named_modules()})
    for module in model.modules():
        forward = find_method(module, "forward")
        own = "forward" in module.__dict__
        if (type(module) in seen and not own) or not is_model_code(forward):
            continue
        seen.add(type(module))
        owner = getattr(module.__dict__.get("forward"), "__self__", module)  # of a bound method given as the model
        reader = _ModuleReader(owner if isinstance(owner, torch.nn.Module) else module, shared, sites)
        values = given if module is model else None
        reader.read_function(forward, None if values is None else read_value_flags(forward, values))
    order = {"loop": 0, "list": 0, "choice": 0, "branch": 1}
    return tuple(
        sorted(sites.values(), key=lambda s: (order[s.suspect.kind], s.source.file, s.suspect.where.line or 0))
    )


@dataclass
class _SharedReadings:
    """Results that the readers of all modules share."""

    paths: dict[int, str]
    known: dict[tuple[int, RuntimeValue, tuple[Flags, ...]], Flags] = field(default_factory=dict)
    """The flags that a method of a module returns for the flags of its arguments."""


class _ModuleReader:
    """Reads one module's functions from `forward` on, with the flags of the arguments at each call."""

    def __init__(
        self, module: torch.nn.Module, shared: _SharedReadings, sites: dict[tuple[str, str, int, int], Site]
    ) -> None:
        self.module, self.shared, self.sites = module, shared, sites

    def for_owner(self, owner: object) -> _ModuleReader:
        """Return the reader of the module that a called method belongs to."""
        if not isinstance(owner, torch.nn.Module) or owner is self.module or id(owner) not in self.shared.paths:
            return self
        return _ModuleReader(owner, self.shared, self.sites)

    def read_function(
        self, function: types.FunctionType, arguments: list[Flags] | None, in_loop: bool = False
    ) -> Flags:
        """Return the flags of what the function returns. Without `arguments` it is a forward that gets tensors."""
        source = read_source(function)
        if source is None:
            return TENSOR
        key = (id(self.module), function, tuple(arguments or ()))
        known = self.shared.known
        if key in known:
            return known[key]
        known[key] = TENSOR  # for a function that calls itself
        scope = {**collect_visible_names(function), "self": self.module}
        body = _BodyReader(self, source, Flow(scope), in_loop)
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
        """Record a site. `line` is the suspicious line if that is not the node's own."""
        where = Where(
            file=source.file,
            line=line or node.lineno,
            function=source.function.__qualname__,
            source=source.line(line or node.lineno),
            module=self.shared.paths.get(id(self.module)) or None,
        )
        key = (kind, source.file, node.lineno, node.col_offset)
        self.sites.setdefault(key, Site(Suspect(kind, where, detail, by_value), source, node, self.module))


class _BodyReader(ast.NodeVisitor):
    """Reads statements in order, keeps the flags of local names, and reports suspects."""

    def __init__(self, reader: _ModuleReader, source: FunctionSource, flow: Flow, in_loop: bool) -> None:
        self.reader, self.source, self.flow = reader, source, flow
        self.in_loop = in_loop
        self.returned: list[Flags] = [NONE]
        self.local: dict[str, FunctionNode] = {}
        self.active: set[int] = set()
        self.loops: list[ast.For | ast.While] = []
        """The loops around the current statement, innermost last."""
        flow.follow_call = self._follow_calls(flow.read_call)

    def bind(self, node: FunctionNode, arguments: list[Flags] | None) -> None:
        """Give the parameters their flags: the caller's, or else those of their annotations."""
        parameters = [*node.args.posonlyargs, *node.args.args]
        if parameters and parameters[0].arg in ("self", "cls") and not isinstance(node, ast.Lambda):
            parameters = parameters[1:]
        for position, parameter in enumerate([*parameters, *node.args.kwonlyargs]):
            if arguments is None:
                self.flow.names[parameter.arg] = read_annotation_flags(parameter)
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
            self.reader.report("loop", node, self.source, f"the loop is bounded by {bounds}")
        self.flow.assign(node.target, self.flow.items(node.iter))
        self._loop_body(node, bool(bounds))
        self.read(node.orelse)

    def visit_While(self, node: ast.While) -> None:
        self._loop_body(node, True)  # first the body, so that what it assigns is known to the test
        flags = self.flow.of(node.test)
        if flags & (TENSOR | VALUE):
            detail = f"`while {ast.unparse(node.test)}` asks for a tensor's value"
            self.reader.report("loop", node, self.source, detail, by_value=True)
        elif flags & SIZE:
            self.reader.report("loop", node, self.source, f"the loop is bounded by {self.flow.describe(node.test)}")

    def visit_If(self, node: ast.If) -> None:
        self._branch(node, node.test)
        leaves = ends_loop(node) or any(isinstance(part, ast.Return) for part in walk_own([node]))
        if self.loops and leaves and self.flow.of(node.test) & (TENSOR | VALUE):
            detail = f"the loop ends where `{ast.unparse(node.test)}`, which asks for a tensor's value"
            self.reader.report("loop", self.loops[-1], self.source, detail, by_value=True)
        self.read(node.body)
        self.read(node.orelse)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._branch(node, node.test)
        self.generic_visit(node)

    def _visit_comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> None:
        hidden, inside = dict(self.flow.names), self.in_loop
        for generator in node.generators:
            self.visit(generator.iter)
            bounds = self.flow.bounds(generator.iter)
            if bounds:
                self.reader.report("loop", node, self.source, f"the loop is bounded by {bounds}")
            self.in_loop |= bool(bounds)
            self.flow.assign(generator.target, self.flow.items(generator.iter))
        self.visit(node.elt)
        self.flow.names, self.in_loop = hidden, inside

    visit_ListComp = visit_GeneratorExp = visit_SetComp = _visit_comprehension

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.generic_visit(node)
        index = self.flow.of(node.slice)
        if index & (VALUE | TENSOR) and is_module_choice(self._find_live(node.value)):
            chosen, by = ast.unparse(node.value), self.flow.describe(node.slice)
            taken = self.flow.taken_at.get(node.slice.id) if isinstance(node.slice, ast.Name) else None
            detail = f"a module of {chosen} is chosen by {by}" + (f"; picked at line {node.lineno}" if taken else "")
            self.reader.report("choice", node, self.source, detail, taken)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        self.flow.of(node)
        function = node.func
        counted = read_counting_list(node, self.flow.live(function))
        if counted is not None and union(map(self.flow.of, counted.bounds)) & SIZE:
            size = " and ".join(self.flow.describe(bound) for bound in counted.bounds if self.flow.of(bound))
            self.reader.report("list", node, self.source, f"the list is as long as {size}")
        if isinstance(function, ast.Attribute) and function.attr in ("append", "extend", "insert"):
            flags = union(self.flow.of(argument) for argument in node.args)
            if flags & TENSOR and isinstance(function.value, ast.Name):
                self.flow.assign(function.value, GROWING if self.in_loop else SEQUENCE)
        if isinstance(function, ast.Name) and function.id == "getattr" and len(node.args) > 1:
            index = self.flow.of(node.args[1])
            if index & (VALUE | TENSOR):
                self.reader.report(
                    "choice", node, self.source, f"a module is chosen by the name {ast.unparse(node.args[1])}"
                )

    def _alias(self, target: ast.expr, value: ast.expr) -> None:
        if not isinstance(target, ast.Name):
            return
        if isinstance(value, ast.Lambda):
            self.local[target.id] = value
        live = self._find_live(value)
        if is_module_choice(live):
            self.flow.scope = {**self.flow.scope, target.id: live}

    def _find_live(self, node: ast.expr) -> RuntimeValue:
        live = self.flow.live(node)
        if live is MISSING and isinstance(node, ast.Name):
            live = self.flow.scope.get(node.id, MISSING)
        return live

    def _branch(self, node: ast.If | ast.IfExp, test: ast.expr) -> None:
        self.visit(test)
        flags = self.flow.of(test)
        # Inside a suspect loop a branch on a plain number does not count: it goes away with the loop.
        if "tensor" in flags or ("value" in flags and not self.in_loop):
            self.reader.report("branch", node, self.source, f"`if {ast.unparse(test)}` asks for a tensor's value")
        elif "size" in flags and not self.in_loop and not only_refuses(node):
            self.reader.report("branch", node, self.source, f"`if {ast.unparse(test)}` asks for a size that may vary")

    def _loop_body(self, loop: ast.For | ast.While, suspect: bool) -> None:
        inside = self.in_loop
        self.in_loop |= suspect
        self.loops.append(loop)
        self.read(loop.body)
        self.read(loop.body)  # again, with the flags that the first round carries into the next one
        self.loops.pop()
        self.in_loop = inside

    def _follow_calls(self, plain_call: Callable[[ast.Call], Flags]) -> Callable[[ast.Call], Flags]:
        """Return a reader of calls that reads the user's own functions with the flags of their arguments."""

        def call(node: ast.Call) -> Flags:
            arguments = [self.flow.of(a) for a in node.args] + [self.flow.of(k.value) for k in node.keywords]
            if isinstance(node.func, ast.Name) and node.func.id in self.local:
                return self._read_nested(self.local[node.func.id], arguments)
            target = self._find_target(node.func)
            if is_model_code(target):
                by_position = len(node.args) == len(arguments)
                passed = arguments if by_position else bind_call_flags(target, node, self.flow)
                reader = self.reader.for_owner(getattr(self.flow.live(node.func), "__self__", None))
                return reader.read_function(target, passed, self.in_loop)
            return plain_call(node)

        return call

    def _find_target(self, function: ast.expr) -> RuntimeValue:
        chain = split_attributes(function)
        if chain is not None and len(chain) == 2 and chain[0] == "self":
            return find_method(self.reader.module, chain[1])
        if isinstance(function, ast.Attribute) and ast.unparse(function.value).startswith("super("):
            for base in type(self.reader.module).__mro__[1:]:
                if function.attr in base.__dict__:
                    return unwrap_function(base.__dict__[function.attr])
        return unwrap_function(self.flow.live(function))

    def _read_nested(self, node: FunctionNode, arguments: list[Flags]) -> Flags:
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
