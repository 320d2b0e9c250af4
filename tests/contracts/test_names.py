"""Rules of names and shapes: unique classes, verbs for functions, few `Any`, few parameters, few levels."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

from source_tree import LAYERS, SOURCE, imports, modules, package, reach, tree

MAX_TOP_PACKAGES = 11
MAX_TOP_MODULES = 3
MAX_IMPORT_LEVELS = 8
MAX_ANY_PER_1000_LINES = 6.0
"""STYLE's goal was 10. What an alias names, such as RuntimeValue or Untyped, is counted once, where it is defined."""
MAX_PARAMETERS = 6
MAX_LONG_FUNCTIONS = 15
"""Functions outside `cli` with more than MAX_PARAMETERS. Ten of them are commands of `api.py`."""

SIGNATURES_OF_TORCH = {
    "fairway.convert.remedies.fully_masked_rows.translate",
    "fairway.convert.remedies.rnn_time_baked.recurrent",
    "fairway.convert.remedies.rnn_time_baked._infer_shapes",
    "fairway.convert.remedies.rnn_time_baked.translate",
    "fairway.convert.translations.recurrences._recurrence",
    "fairway.convert.translations.recurrences.step",
    "fairway.convert.translations.replacements.divide_by_override",
    "fairway.convert.translations.replacements.normalize_batch",
    "fairway.convert.translations.replacements.normalize_functionally",
    "fairway.convert.translations.replacements.normalize_in_training",
    "fairway.convert.translations.statistics.segment_reduce",
    "fairway.convert.translations.substitutes.istft",
    "fairway.convert.translations.substitutes.convolve",
}
"""Functions that take the arguments of one of torch's operators, or are registered as an operator."""

BANNED_VARIABLES = {"one", "said", "told", "heard", "whole", "found", "wanted", "asked"}
ALLOWED_VARIABLES = {
    "fairway.record.schema_tuning": {"said"},  # a JSON key of the record
    # Functions that onnxscript compiles: the names of values reach ONNX files.
    "fairway.convert.translations.cumulative": {"one"},
    "fairway.convert.translations.linear_algebra": {"one"},
    "fairway.convert.translations.special": {"one"},
}

IRREGULAR_PARTICIPLES = {
    "begun",
    "bound",
    "broken",
    "brought",
    "built",
    "caught",
    "chosen",
    "done",
    "drawn",
    "found",
    "given",
    "gone",
    "grown",
    "held",
    "kept",
    "known",
    "laid",
    "left",
    "lost",
    "made",
    "met",
    "own",
    "said",
    "seen",
    "sent",
    "shown",
    "spent",
    "taken",
    "told",
    "torn",
    "understood",
    "written",
}

VERBS_IN_ED_OR_ING = {"embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed", "succeed", "bring", "ring"}
ALLOWED_MODULES = {
    "fairway.diagnostics.finding": "a noun, and a defined word",
    "fairway.testing": "the public helpers of plugin authors, after numpy.testing",
}

ALLOWED_FUNCTION_NAMES = {
    "verified": "a property of the public results, in documents and in users' code",
    "kept": "a property of the public results",
    "nested": "called by name from rewritten code, as `_fw.nested`",
    "reversed_": "called by name from rewritten code, after Python's `reversed`",
    "_eliminated": "its name reaches ONNX files",
    "searchsorted": "torch's name of the operator",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def walk_definitions(kind: type[ast.AST] | tuple[type[ast.AST], ...]) -> Iterator[tuple[str, ast.AST]]:
    """Yield (module, node) for the nodes of a kind in all modules."""
    for module in modules():
        for node in ast.walk(tree(module)):
            if isinstance(node, kind):
                yield module, node


def list_functions() -> Iterator[tuple[str, Function]]:
    for module, node in walk_definitions((ast.FunctionDef, ast.AsyncFunctionDef)):
        assert isinstance(node, Function)
        yield module, node


def is_bare_participle(name: str) -> bool:
    """Return whether a name is one word that is a participle or a gerund."""
    word = name.strip("_")
    if "_" in word or word in VERBS_IN_ED_OR_ING:
        return False
    return word in IRREGULAR_PARTICIPLES or bool(re.fullmatch(r"[a-z]{2,}(ed|ing)", word))


def count_parameters(function: Function) -> int:
    """Count a function's parameters without `self` and `cls`; `*args` and `**options` count as one each."""
    given = function.args
    names = [parameter.arg for parameter in (*given.posonlyargs, *given.args)]
    own = len(names[1:] if names[:1] in (["self"], ["cls"]) else names)
    return own + len(given.kwonlyargs) + (given.vararg is not None) + (given.kwarg is not None)


def test_no_class_name_is_defined_twice() -> None:
    counts = Counter(node.name for _, node in walk_definitions(ast.ClassDef) if isinstance(node, ast.ClassDef))
    assert sorted(name for name, count in counts.items() if count > 1) == []


def test_no_module_is_named_by_a_bare_participle() -> None:
    bare = [module for module in modules() if is_bare_participle(module.rpartition(".")[2])]
    assert sorted(bare) == sorted(ALLOWED_MODULES)


def test_no_function_is_named_by_a_bare_participle() -> None:
    names = {(module, function.name) for module, function in list_functions() if is_bare_participle(function.name)}
    assert sorted((module, name) for module, name in names if name not in ALLOWED_FUNCTION_NAMES) == []
    unused = set(ALLOWED_FUNCTION_NAMES) - {name for _, name in names}
    assert unused == set(), "these are gone: take them off the list"


def test_the_top_level_is_small() -> None:
    top = [path for path in (SOURCE / "fairway").iterdir() if not path.name.startswith("__")]
    assert len([path for path in top if (path / "__init__.py").exists()]) <= MAX_TOP_PACKAGES
    assert len([path for path in top if path.suffix == ".py"]) <= MAX_TOP_MODULES


@cache
def package_imports(name: str) -> frozenset[str]:
    """Return the packages that a package of LAYERS imports."""
    inside = [module for module in modules() if package(module) == name]
    return frozenset(package(other) for module in inside for other in imports(module)) - {name}


def test_packages_import_one_another_in_no_cycle() -> None:
    names = [name for row in LAYERS for name in row]
    assert [name for name in names if name in reach(name, package_imports)] == []


def test_imports_of_packages_have_few_levels() -> None:
    @cache
    def count_levels(name: str) -> int:
        return 1 + max((count_levels(other) for other in package_imports(name)), default=0)

    assert max(count_levels(name) for row in LAYERS for name in row if name != "fairway") <= MAX_IMPORT_LEVELS


def test_any_is_rare() -> None:
    texts = [path.read_text() for path in modules().values()]
    mentions = sum(len(re.findall(r"\bAny\b", text)) for text in texts)
    lines = sum(len(text.splitlines()) for text in texts)
    assert 1000 * mentions / lines <= MAX_ANY_PER_1000_LINES


def test_few_functions_have_many_parameters() -> None:
    names = [
        f"{module}.{function.name}"
        for module, function in list_functions()
        if count_parameters(function) > MAX_PARAMETERS and not module.startswith("fairway.cli")
    ]
    assert set(names) >= SIGNATURES_OF_TORCH, "these have become shorter: take them off the list"
    counted = sorted(name for name in names if name not in SIGNATURES_OF_TORCH)
    assert len(counted) <= MAX_LONG_FUNCTIONS, "\n".join(counted)


def test_a_numeric_constant_has_a_noun_and_a_unit() -> None:
    names = [(module, name) for module in modules() for name in list_numeric_constants(tree(module))]
    assert [(module, name) for module, name in names if len(name.strip("_").split("_")) < 2] == []


def list_numeric_constants(module: ast.Module) -> Iterator[str]:
    for statement in module.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if is_number(statement.value):
                yield from (target.id for target in targets if isinstance(target, ast.Name))


def is_number(node: ast.expr) -> bool:
    """Return whether an expression consists of numbers alone, as in `64 * 2**20`."""
    if isinstance(node, ast.BinOp):
        return is_number(node.left) and is_number(node.right)
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand)
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def test_no_variable_has_a_banned_name() -> None:
    names: set[tuple[str, str]] = set()
    for module, node in walk_definitions((ast.arg, ast.Name)):
        if isinstance(node, ast.arg):
            names.add((module, node.arg))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add((module, node.id))
    banned = {(module, name) for module, name in names if name in BANNED_VARIABLES}
    allowed = {(module, name) for module, allowance in ALLOWED_VARIABLES.items() for name in allowance}
    assert sorted(banned - allowed) == []
    assert sorted(allowed - banned) == [], "these are gone: take them off the list"
