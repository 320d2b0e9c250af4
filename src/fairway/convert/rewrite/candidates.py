"""The rewrites of a model: all its loops and choices together, and function by function in case that is not proven.

A site that cannot be rewritten is left as it stands and does not keep the others from being rewritten.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import inspect
import textwrap
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch

from fairway.convert.remedies.contract import Case, Refusal
from fairway.convert.rewrite import runtime
from fairway.convert.rewrite.call_graph import (
    FunctionSource,
    attribute_chain,
    is_model_code,
    look_up,
    method_of,
    plain,
    read_source,
    visible_names,
)
from fairway.convert.rewrite.expressions import RUNTIME, Expressions
from fairway.convert.rewrite.find import Site
from fairway.convert.rewrite.functional import Functional, Refused
from fairway.convert.rewrite.install import compile_function, installed
from fairway.convert.rewrite.outline import PIECE, outline
from fairway.convert.rewrite.script_blocks import ScriptBlock
from fairway.convert.rewrite.tensor_aliases import inputs_may_share_memory
from fairway.diagnostics import Where

LONGEST = 20_000
"""Characters of source that go into a record."""


@dataclass(frozen=True)
class RewriteCandidate:
    """One complete candidate. `source` is the text of the new functions; `install()` puts them in place for a while."""

    strategy: str
    where: tuple[Where, ...]
    source: str
    model: torch.nn.Module = field(repr=False, compare=False)
    replacements: dict[types.FunctionType, Any] = field(repr=False, compare=False)
    sites: tuple[Site, ...] = field(repr=False, compare=False)
    pieces: tuple[ScriptBlock, ...] = field(default=(), repr=False, compare=False)

    def install(self) -> AbstractContextManager[None]:
        return _installed(self)

    def told(self) -> dict[str, str]:
        """What the user may want to read: the functions as they were, and as they stand in for them."""
        originals = list(self.replacements)
        texts = [textwrap.dedent(inspect.getsource(function)).rstrip() for function in originals]
        return {
            "functions": ", ".join(function.__qualname__ for function in originals),
            "before": "\n\n".join(texts)[:LONGEST],
            "after": self.source[:LONGEST],
        }


@contextlib.contextmanager
def _installed(rewrite: RewriteCandidate) -> Iterator[None]:
    # Scans inside scans fail to decompose where a weight asks for gradients (torch 2.13); exporting needs none.
    asking = [p for p in rewrite.model.parameters() if p.requires_grad]
    try:
        for parameter in asking:
            parameter.requires_grad_(False)
        with installed(rewrite.replacements, rewrite.model), inputs_may_share_memory():
            yield
    finally:
        for piece in rewrite.pieces:
            piece.made.clear()
        for parameter in asking:
            parameter.requires_grad_(True)


def candidates(model: torch.nn.Module, sites: tuple[Site, ...], traced: bool) -> tuple[RewriteCandidate, ...] | Refusal:
    """The rewrites that fit the route, or the reason why there is none."""
    listed = tuple(site for site in sites if site.suspect.kind == "list")
    if traced and len(listed) == len(sites):
        return Refusal("a list is written anew for torch.export alone", (listed[0].suspect.where,))
    sites = tuple(site for site in sites if not traced or site not in listed)
    strategy = script_rewrite if traced else functional_rewrite
    made = _without_refused(model, sites, strategy)
    if isinstance(made, Refusal):
        return made
    functions = list({site.source.function: None for site in made.sites})
    if not 1 < len(functions) <= MOST_APART:
        return (made,)
    # A rewrite that is proven wrong must not take the others along, so each function is offered by itself, too.
    apart = [tuple(s for s in made.sites if s.source.function is function) for function in functions]
    alone = [_without_refused(model, one, strategy) for one in apart]
    return made, *(one for one in alone if isinstance(one, RewriteCandidate))


MOST_APART = 4
"""Functions up to which each is rewritten by itself where all of them together are not proven."""

Strategy = Callable[[torch.nn.Module, tuple[Site, ...]], "RewriteCandidate"]


def _without_refused(model: torch.nn.Module, sites: tuple[Site, ...], strategy: Strategy) -> RewriteCandidate | Refusal:
    """Rewrite as many of the sites as can be: one that is refused is left as it stands, and the others go on."""
    first: Refusal | None = None
    while sites:
        try:
            return strategy(model, sites)
        except Refused as refused:
            where = refused.where or sites[0].suspect.where
            reason = f"the code at {where.file}:{where.line} cannot be rewritten: {refused.reason}"
            first = first or Refusal(reason, (where,))
            sites = _others(sites, where)
    assert first is not None, "a search for candidates begins with a site"
    return first


def _others(sites: tuple[Site, ...], where: Where) -> tuple[Site, ...]:
    """Return the sites without those that a refused line belongs to: around it, in its function, or all of them."""
    line = where.line or 0
    here = [s for s in sites if s.source.file == where.file]
    around = [s for s in here if s.node.lineno <= line <= (s.node.end_lineno or line)]  # type: ignore[attr-defined]
    function = [s for s in here if s.source.tree.lineno <= line <= (s.source.tree.end_lineno or line)]
    refused = around or function or list(sites)
    return tuple(site for site in sites if site not in refused)


def prepare(case: Case) -> None:
    """Runs the installed rewrite once outside any trace, as TorchScript takes its types from real values."""
    if case.route.traced:
        with torch.no_grad():
            case.model(*copy.deepcopy(case.args), **copy.deepcopy(case.kwargs))


def functional_rewrite(model: torch.nn.Module, sites: tuple[Site, ...]) -> RewriteCandidate:
    """The loops as steps, the choices as gathers. Raises `Refused` where that cannot be."""
    for site in sites:
        _refuse_names(site)
    maker = _Maker({(site.source.function, *_place(site.node)) for site in sites})
    texts = []
    for function, module in {site.source.function: site.module for site in sites}.items():
        texts.append(maker.make(function, module, inside=False))
    where = tuple(site.suspect.where for site in sites)
    return RewriteCandidate("scan", where, "\n\n".join(texts), model, dict(maker.replacements), sites)


def script_rewrite(model: torch.nn.Module, sites: tuple[Site, ...]) -> RewriteCandidate:
    """The loops cut out and compiled by TorchScript. Raises `Refused` where that cannot be."""
    marked = {(site.source.function, *_place(site.node)) for site in sites}
    replacements, pieces, texts = {}, [], []
    for site in {site.source.function: site for site in sites}.values():
        function = site.source.function
        try:
            tree, piece = outline(site.source, site.module, _marks(function, marked))
        except Refused as refused:
            refused.where = _where(site.source, refused.line)
            raise
        replacements[function], text = _compiled(tree, site.source, {PIECE: piece})
        pieces.append(piece)
        lines = [ast.unparse(statement) for statement in piece.written(site.module)[0]]
        texts.append(f"{text}\n\n# {PIECE}, compiled by TorchScript\n" + "\n".join(lines))
    where = tuple(site.suspect.where for site in sites)
    return RewriteCandidate("script", where, "\n\n".join(texts), model, replacements, sites, tuple(pieces))


def _compiled(tree: ast.FunctionDef, source: FunctionSource, extra: dict[str, Any]) -> tuple[Any, str]:
    """The function anew, with its decorators; those of libraries may look for the place where they stand."""
    try:
        return compile_function(tree, source.function, extra)
    except Exception as error:
        refused = Refused(f"its decorators fail when applied again: {type(error).__name__}: {error}", tree.lineno)
        refused.where = _where(source, tree.lineno)
        raise refused from error


def _refuse_names(site: Site) -> None:
    if not isinstance(site.node, ast.Subscript):
        return
    scope = {**visible_names(site.source.function), "self": site.module}
    chain = attribute_chain(site.node.value)
    held = look_up(chain, scope) if chain is not None else None
    if isinstance(held, (dict, torch.nn.ModuleDict)) and not all(str(name).isdigit() for name in held):
        refused = Refused(
            "the modules are chosen by names that are not numbers; keep them in a ModuleList and choose by number",
            site.node.lineno,
        )
        refused.where = _where(site.source, site.node.lineno)
        raise refused


def _where(source: FunctionSource, line: int) -> Where:
    return Where(file=source.file, line=line, function=source.function.__qualname__, source=source.line(line))


Marked = set[tuple[types.FunctionType, str, int, int]]


def _marks(function: types.FunctionType, marked: Marked) -> Callable[[ast.AST], bool]:
    """Tells the function's marked nodes, in any copy of its tree."""
    return lambda node: (function, *_place(node)) in marked


def _place(node: ast.AST) -> tuple[str, int, int]:
    return type(node).__name__, getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


class _Maker:
    """Rewrites functions, and those they call from inside a loop."""

    def __init__(self, marked: Marked) -> None:
        self.marked = marked
        self.replacements: dict[types.FunctionType, Any] = {}
        self.called: dict[types.FunctionType, Any] = {}

    def make(self, function: types.FunctionType, module: torch.nn.Module, inside: bool) -> str:
        source = read_source(function)
        assert source is not None, "a site was found in it"
        extra: dict[str, Any] = {RUNTIME: runtime}
        scope = {**visible_names(function), "self": module}

        suspect = _marks(function, self.marked)

        def convert(target: ast.expr) -> str | None:
            made = self._callee(target, scope, expressions.hidden, module)
            if made is None:
                return None
            name = f"{RUNTIME}_{made.__name__}"
            extra[name] = made
            return name

        expressions = Expressions(scope, suspect, convert)
        expressions.chosen = _chosen_names(source.tree, suspect)
        try:
            tree = Functional(source.tree, expressions, suspect).rewrite(inside)
        except Refused as refused:
            refused.where = _where(source, refused.line)
            raise
        made, text = _compiled(tree, source, extra)
        (self.called if inside else self.replacements)[function] = made
        return text

    def _callee(self, target: ast.expr, scope: dict[str, Any], hidden: set[str], module: torch.nn.Module) -> Any:
        """The rewritten form of a user's function that a loop calls, or None where the call can stay."""
        chain = attribute_chain(target)
        if chain is None or chain[0] in hidden:
            return None
        if chain[0] == "self" and len(chain) == 2:
            if chain[1] in module._modules:
                return None
            function = method_of(module, chain[1])
        elif len(chain) == 1:
            function = plain(look_up(chain, scope))
        else:
            return None
        if not is_model_code(function) or read_source(function) is None:
            return None
        if function not in self.called:
            self.called[function] = function  # a function that calls itself stays as it is
            self.make(function, module, inside=True)
        return self.called[function]


def _chosen_names(tree: ast.FunctionDef, suspect: Callable[[ast.AST], bool]) -> set[str]:
    """Names that a choice of module is made by: what they are bound to must stay a tensor."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and suspect(node):
            found |= {name.id for name in ast.walk(node.slice) if isinstance(name, ast.Name)}
    return found
