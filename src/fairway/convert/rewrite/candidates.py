"""Make the rewrites of a model: all its loops and choices together, and each function alone if that is not proven.

A site that cannot be rewritten is left as it is, and the others are rewritten all the same.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import inspect
import textwrap
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch

from fairway.convert.remedies.contract import Case, Refusal
from fairway.convert.rewrite import runtime
from fairway.convert.rewrite.call_graph import (
    FunctionSource,
    collect_visible_names,
    find_method,
    is_model_code,
    look_up,
    read_source,
    split_attributes,
    unwrap_function,
)
from fairway.convert.rewrite.expressions import RUNTIME, Expressions
from fairway.convert.rewrite.find import Site
from fairway.convert.rewrite.functional import FunctionalRewriter
from fairway.convert.rewrite.install import compile_function, install_functions
from fairway.convert.rewrite.loop_checks import Refused
from fairway.convert.rewrite.module_state import lift_loops, lift_method
from fairway.convert.rewrite.outline import BLOCK_NAME, outline
from fairway.convert.rewrite.scalars import RuntimeValue
from fairway.convert.rewrite.script_blocks import ScriptBlock
from fairway.convert.rewrite.state_plan import StatePlan, list_touched_methods, plan_state
from fairway.convert.rewrite.tensor_aliases import allow_shared_inputs
from fairway.diagnostics import Where
from fairway.torch_internals import module_children

MAX_SOURCE_CHARACTERS = 20_000
"""The most source text that goes into a record."""


@dataclass(frozen=True)
class RewriteCandidate:
    """One complete rewrite. `source` is the text of the new functions, which `install()` puts in place for a while."""

    strategy: str
    where: tuple[Where, ...]
    source: str
    model: torch.nn.Module = field(repr=False, compare=False)
    replacements: dict[types.FunctionType, RuntimeValue] = field(repr=False, compare=False)
    sites: tuple[Site, ...] = field(repr=False, compare=False)
    pieces: tuple[ScriptBlock, ...] = field(default=(), repr=False, compare=False)
    state: StatePlan | None = field(default=None, repr=False, compare=False)
    """The attributes that the rewritten loops carry."""

    def install(self) -> AbstractContextManager[None]:
        return _install(self)

    def describe(self) -> dict[str, str]:
        """Return the names of the functions and their texts before and after, for the record."""
        originals = list(self.replacements)
        texts = [textwrap.dedent(inspect.getsource(function)).rstrip() for function in originals]
        return {
            "functions": ", ".join(function.__qualname__ for function in originals),
            "before": "\n\n".join(texts)[:MAX_SOURCE_CHARACTERS],
            "after": self.source[:MAX_SOURCE_CHARACTERS],
        }


@contextlib.contextmanager
def _install(rewrite: RewriteCandidate) -> Iterator[None]:
    # Scans inside scans fail to decompose if a weight requires gradients (torch 2.13), and an export needs none.
    trained = [p for p in rewrite.model.parameters() if p.requires_grad]
    try:
        for parameter in trained:
            parameter.requires_grad_(False)
        held = nullcontext() if rewrite.state is None else rewrite.state.install()
        with install_functions(rewrite.replacements, rewrite.model), allow_shared_inputs(), held:
            yield
    finally:
        for piece in rewrite.pieces:
            piece.made.clear()
        for parameter in trained:
            parameter.requires_grad_(True)


def make_candidates(
    model: torch.nn.Module, sites: tuple[Site, ...], traced: bool
) -> tuple[RewriteCandidate, ...] | Refusal:
    """Return the rewrites that fit the route, or the reason why there is none."""
    lists = tuple(site for site in sites if site.suspect.kind == "list")
    if traced and len(lists) == len(sites):
        return Refusal("lists are only rewritten for torch.export", (lists[0].suspect.where,))
    sites = tuple(site for site in sites if not traced or site not in lists)
    strategy = make_script_rewrite if traced else make_functional_rewrite
    made = _rewrite_possible_sites(model, sites, strategy)
    if isinstance(made, Refusal):
        return made
    functions = list({site.source.function: None for site in made.sites})
    if not 1 < len(functions) <= MAX_SEPARATE_FUNCTIONS:
        return (made,)
    # A rewrite that is proven wrong must not rule out the others, so each function is offered alone too.
    by_function = [tuple(s for s in made.sites if s.source.function is function) for function in functions]
    alone = [_rewrite_possible_sites(model, own_sites, strategy) for own_sites in by_function]
    return made, *(rewrite for rewrite in alone if isinstance(rewrite, RewriteCandidate))


MAX_SEPARATE_FUNCTIONS = 4
"""Functions up to which each is also rewritten alone, in case all of them together are not proven."""

Strategy = Callable[[torch.nn.Module, tuple[Site, ...]], "RewriteCandidate"]


def _rewrite_possible_sites(
    model: torch.nn.Module, sites: tuple[Site, ...], strategy: Strategy
) -> RewriteCandidate | Refusal:
    """Rewrite as many of the sites as possible. A site that is refused is left as it is."""
    first: Refusal | None = None
    while sites:
        try:
            return strategy(model, sites)
        except Refused as refused:
            where = refused.where or sites[0].suspect.where
            reason = f"the code at {where.file}:{where.line} cannot be rewritten: {refused.reason}"
            first = first or Refusal(reason, (where,))
            sites = _drop_refused(sites, where)
    assert first is not None, "a search for candidates begins with a site"
    return first


def _drop_refused(sites: tuple[Site, ...], where: Where) -> tuple[Site, ...]:
    """Return the sites without those around the refused line, or else those in its function, or else all of them."""
    line = where.line or 0
    in_file = [s for s in sites if s.source.file == where.file]
    around = [s for s in in_file if s.node.lineno <= line <= (s.node.end_lineno or line)]  # type: ignore[attr-defined]
    in_function = [s for s in in_file if s.source.tree.lineno <= line <= (s.source.tree.end_lineno or line)]
    refused = around or in_function or list(sites)
    return tuple(site for site in sites if site not in refused)


def compile_blocks(case: Case) -> None:
    """Run the installed rewrite once outside any trace, since TorchScript takes the types from real values."""
    if case.route.is_traced:
        with torch.no_grad():
            case.model(*copy.deepcopy(case.args), **copy.deepcopy(case.kwargs))


def make_functional_rewrite(model: torch.nn.Module, sites: tuple[Site, ...]) -> RewriteCandidate:
    """Rewrite loops as steps and choices as gathers. Raises `Refused` if that is impossible."""
    for site in sites:
        _refuse_module_names(site)
    plan = plan_state(model)
    rewriter = _FunctionRewriter({(site.source.function, *_node_key(site.node)) for site in sites}, plan)
    texts = []
    for function, module in {site.source.function: site.module for site in sites}.items():
        texts.append(rewriter.rewrite(function, module, inside=False))
    if rewriter.is_lifting:
        texts += rewriter.lift_methods()
    where = tuple(site.suspect.where for site in sites)
    state = plan if rewriter.is_lifting else None
    return RewriteCandidate("scan", where, "\n\n".join(texts), model, dict(rewriter.replacements), sites, state=state)


def make_script_rewrite(model: torch.nn.Module, sites: tuple[Site, ...]) -> RewriteCandidate:
    """Cut the loops out, to be compiled by TorchScript. Raises `Refused` if that is impossible."""
    marked = {(site.source.function, *_node_key(site.node)) for site in sites}
    replacements, pieces, texts = {}, [], []
    for site in {site.source.function: site for site in sites}.values():
        function = site.source.function
        try:
            tree, piece = outline(site.source, site.module, _make_marker(function, marked))
        except Refused as refused:
            refused.where = _make_where(site.source, refused.line)
            raise
        replacements[function], text = _compile(tree, site.source, {BLOCK_NAME: piece})
        pieces.append(piece)
        lines = [ast.unparse(statement) for statement in piece.write(site.module)[0]]
        texts.append(f"{text}\n\n# {BLOCK_NAME}, compiled by TorchScript\n" + "\n".join(lines))
    where = tuple(site.suspect.where for site in sites)
    return RewriteCandidate("script", where, "\n\n".join(texts), model, replacements, sites, tuple(pieces))


def _compile(tree: ast.FunctionDef, source: FunctionSource, extra: dict[str, RuntimeValue]) -> tuple[RuntimeValue, str]:
    """Compile the new function, with its decorators. Some decorators of libraries read the place where they stand."""
    try:
        return compile_function(tree, source.function, extra)
    except Exception as error:
        refused = Refused(f"its decorators fail when applied again: {type(error).__name__}: {error}", tree.lineno)
        refused.where = _make_where(source, tree.lineno)
        raise refused from error


def _refuse_module_names(site: Site) -> None:
    if not isinstance(site.node, ast.Subscript):
        return
    scope = {**collect_visible_names(site.source.function), "self": site.module}
    chain = split_attributes(site.node.value)
    choices = look_up(chain, scope) if chain is not None else None
    if isinstance(choices, (dict, torch.nn.ModuleDict)) and not all(str(name).isdigit() for name in choices):
        refused = Refused(
            "the modules are chosen by names that are not numbers; keep them in a ModuleList and choose by number",
            site.node.lineno,
        )
        refused.where = _make_where(site.source, site.node.lineno)
        raise refused


def _make_where(source: FunctionSource, line: int) -> Where:
    return Where(file=source.file, line=line, function=source.function.__qualname__, source=source.line(line))


Marked = set[tuple[types.FunctionType, str, int, int]]


def _make_marker(function: types.FunctionType, marked: Marked) -> Callable[[ast.AST], bool]:
    """Return a function that tells whether a node of any copy of the tree is one of the marked nodes."""
    return lambda node: (function, *_node_key(node)) in marked


def _node_key(node: ast.AST) -> tuple[str, int, int]:
    return type(node).__name__, getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


class _FunctionRewriter:
    """Rewrites functions, and also the functions that their loops call."""

    def __init__(self, marked: Marked, plan: StatePlan) -> None:
        self.marked, self.plan = marked, plan
        self.is_lifting = False
        """Whether a loop carries attributes of modules."""
        self.replacements: dict[types.FunctionType, RuntimeValue] = {}
        self.called: dict[types.FunctionType, RuntimeValue] = {}

    def rewrite(self, function: types.FunctionType, module: torch.nn.Module, inside: bool) -> str:
        source = read_source(function)
        assert source is not None, "a site was found in it"
        extra: dict[str, RuntimeValue] = {RUNTIME: runtime}
        scope = {**collect_visible_names(function), "self": module}

        suspect = _make_marker(function, self.marked)
        given = source.tree
        if not inside:
            try:
                given, suspect = lift_loops(source.tree, function, module, self.plan, suspect)
            except Refused as refused:
                refused.where = _make_where(source, refused.line)
                raise
            self.is_lifting |= given is not source.tree

        def convert(target: ast.expr) -> str | None:
            made = self._rewrite_callee(target, scope, expressions.hidden, module)
            if made is None:
                return None
            name = f"{RUNTIME}_{made.__name__}"
            extra[name] = made
            return name

        expressions = Expressions(scope, suspect, convert)
        expressions.chosen = _find_chosen_names(given, suspect)
        try:
            tree = FunctionalRewriter(given, expressions, suspect).rewrite(inside)
        except Refused as refused:
            refused.where = _make_where(source, refused.line)
            raise
        made, text = _compile(tree, source, extra)
        (self.called if inside else self.replacements)[function] = made
        return text

    def lift_methods(self) -> list[str]:
        """Rewrite the methods that may change the attributes that loops carry. Those that cannot be are left alone."""
        texts = []
        for function, module in list_touched_methods(self.plan):
            source = read_source(function)
            assert source is not None, "its attributes were read"
            extra: dict[str, RuntimeValue] = {RUNTIME: runtime}
            scope = {**collect_visible_names(function), "self": module}
            suspect = _make_marker(function, self.marked)
            expressions = Expressions(scope, suspect, lambda target: None)
            try:
                tree = lift_method(source.tree, function, module, self.plan)
                new = FunctionalRewriter(tree, expressions, suspect).rewrite(inside=True)
                self.plan.lifted[function], text = _compile(new, source, extra)
            except Refused as refused:
                self.plan.refused[function.__name__] = refused.reason
                continue
            texts.append(text)
        return texts

    def _rewrite_callee(
        self, target: ast.expr, scope: dict[str, RuntimeValue], hidden: set[str], module: torch.nn.Module
    ) -> RuntimeValue:
        """Return the rewritten form of a user's function that a loop calls, or None if the call can stay."""
        chain = split_attributes(target)
        if chain is None or chain[0] in hidden:
            return None
        if chain[0] == "self" and len(chain) == 2:
            if chain[1] in module_children(module):
                return None
            function = find_method(module, chain[1])
        elif len(chain) == 1:
            function = unwrap_function(look_up(chain, scope))
        else:
            return None
        if not is_model_code(function) or read_source(function) is None:
            return None
        if function not in self.called:
            self.called[function] = function  # a function that calls itself stays as it is
            self.rewrite(function, module, inside=True)
        return self.called[function]


def _find_chosen_names(tree: ast.FunctionDef, suspect: Callable[[ast.AST], bool]) -> set[str]:
    """Return the names by which modules are chosen. Their values must stay tensors."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and suspect(node):
            names |= {name.id for name in ast.walk(node.slice) if isinstance(name, ast.Name)}
    return names
