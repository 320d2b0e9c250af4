"""Recipes: a model, its inputs and their domain, in a Python file or a module.

RECIPE is `path/to/file.py[:name]` or `package.module:name`. The name may be a `Recipe`, an nn.Module, a Module class,
or a function that returns a Module. Without a name, the file's only Recipe is used.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from fairway.diagnostics import Code, Where
from fairway.diagnostics.errors import UserError, complain
from fairway.model.memory_check import is_regular_file
from fairway.model.user_types import Calibration, Metric, ModelSource, OperatorFunctions, UserDims, UserInputs

MAX_RECIPE_BYTES = 10 * 2**20
"""The largest size of a recipe's file."""

if TYPE_CHECKING:
    import torch

    from fairway.model.subject import Subject


@dataclass(frozen=True)
class Recipe:
    """Instructions to build a model, with the inputs that it must accept.

    `model` is an nn.Module, a class, or a function without arguments that returns a Module. `inputs` takes the forms
    that `fairway.export` takes. A relative `checkpoint` starts at the recipe's folder. For quantization,
    `calibration()` yields samples, each a dict of tensors by input name, and `metric(model_fn)` returns the quality of
    a model, larger for better; `model_fn` takes a dict of arrays and returns one.
    """

    model: ModelSource
    inputs: UserInputs
    dims: UserDims = None
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    multiples: Mapping[str, int] = field(default_factory=dict)
    example: Mapping[str, int] = field(default_factory=dict)
    checkpoint: str | None = None
    input_names: Sequence[str] | None = None
    output_names: Sequence[str] | None = None
    patches: OperatorFunctions = field(default_factory=dict)
    translations: OperatorFunctions = field(default_factory=dict)
    calibration: Calibration | None = None
    metric: Metric | None = None


@dataclass(frozen=True)
class Overrides:
    """Options of the command line that replace or extend a recipe's."""

    inputs: tuple[str, ...] = ()
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    multiples: Mapping[str, int] = field(default_factory=dict)
    checkpoint: Path | None = None
    trust: bool = False


def load_model(address: str, overrides: Overrides) -> tuple[torch.nn.Module, Recipe, str]:
    """Find the recipe, build its model and load its checkpoint; return the model, the recipe and its name."""
    from fairway.model.checkpoint import load_checkpoint
    from fairway.model.subject import preserve_global_state

    with preserve_global_state():
        home, name, target = _find_object(address)
        recipe = target if isinstance(target, Recipe) else Recipe(target, list(overrides.inputs))
        checkpoint = overrides.checkpoint or (home / recipe.checkpoint if recipe.checkpoint else None)
        with _import_from_folder(home):
            model = (
                _build_model(recipe.model, address)
                if checkpoint is None
                else _build_without_parameters(recipe.model, address)
            )
        if checkpoint is not None:
            load_checkpoint(model, checkpoint, overrides.trust)
    return model, recipe, name


def load_subject(address: str, overrides: Overrides) -> Subject:
    """Return the recipe's model with its spec."""
    from fairway.model.subject import build_subject, preserve_global_state

    with preserve_global_state():
        model, recipe, name = load_model(address, overrides)
        inputs = list(overrides.inputs) or recipe.inputs
        if inputs is None or (isinstance(inputs, str | Sequence | Mapping) and not inputs):
            raise complain(Code.NO_INPUTS, f"{address} declares no inputs")
        subject = build_subject(
            model,
            inputs,
            dims=None if overrides.inputs else recipe.dims,
            bounds={**recipe.bounds, **overrides.bounds},
            multiples={**recipe.multiples, **overrides.multiples},
            example=recipe.example,
            input_names=recipe.input_names,
            output_names=recipe.output_names,
            patches=recipe.patches,
            translations=recipe.translations,
            name=name,
        )
        return replace(subject, calibration=recipe.calibration, metric=recipe.metric)


def _find_object(address: str) -> tuple[Path, str, ModelSource]:
    """Return the folder that relative paths start at, the subject's name, and the object that the address names."""
    location, _, name = address.partition(":")
    path = _resolve_path(location)
    if location.endswith(".py") or "/" in location:
        _refuse_other_files(location, path)
        module, home = _run_file(path, location), path.parent
    else:
        if path.is_file():
            _refuse_other_files(location, path)
        module, home = _run_module(location), Path.cwd()
    if not name:
        recipes = [n for n, value in vars(module).items() if isinstance(value, Recipe)]
        if len(recipes) != 1:
            count = f"{len(recipes)} recipes" if recipes else "no recipe"
            raise complain(Code.RECIPE_WITHOUT_MODEL, f"{address} holds {count}{_suggest_names(module, location)}")
        name = recipes[0]
    with _report_errors(location):  # the module's own __getattr__ may fail
        if not hasattr(module, name):
            raise complain(
                Code.RECIPE_WITHOUT_MODEL, f"{location} has no {name!r:.200}{_suggest_names(module, location)}"
            )
        return home, name, getattr(module, name)


def _resolve_path(location: str) -> Path:
    try:
        path = Path(location).resolve()
        path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise complain(Code.RECIPE_MISSING, f"{location!r:.200} is not a path: {error!s:.200}") from error
    return path


def _refuse_other_files(location: str, path: Path) -> None:
    location = location[:200]
    if not path.exists():
        raise complain(Code.RECIPE_MISSING, f"{location} does not exist")
    if path.is_dir() or path.suffix != ".py":
        raise complain(Code.RECIPE_MISSING, f"{location} is {'a folder' if path.is_dir() else 'not a Python file'}")
    if not is_regular_file(path):
        raise complain(Code.RECIPE_MISSING, f"{location} is not a regular file")
    if path.stat().st_size > MAX_RECIPE_BYTES:
        raise complain(
            Code.RECIPE_MISSING, f"{location} has {path.stat().st_size} bytes; a recipe has at most {MAX_RECIPE_BYTES}"
        )


def _suggest_names(module: ModuleType, location: str) -> str:
    """Return the objects of a module that can be named as a recipe."""
    import torch

    names = [
        n
        for n, v in vars(module).items()
        if isinstance(v, Recipe | torch.nn.Module)
        or (isinstance(v, type) and issubclass(v, torch.nn.Module) and v.__module__ == module.__name__)
    ]
    return "; name one: " + ", ".join(f"{location}:{n}" for n in names) if names else ""


def _run_file(path: Path, shown: str) -> ModuleType:
    """Run the file with its own folder first on the path, as `python file.py` does."""
    stamp = hashlib.sha256(str(path).encode()).hexdigest()[:12]
    title = f"fairway_recipe_{path.stem}_{stamp}"
    spec = importlib.util.spec_from_file_location(title, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[title] = module
    with _report_errors(shown), _import_from_folder(path.parent):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _import_from_folder(folder: Path) -> Iterator[None]:
    """Import the recipe's neighbors from its own folder, not from one that an earlier recipe left in the cache.

    Afterwards the folder stays on the path, but last: forward may import too, and a file in it must not hide a library.
    """
    from fairway.model.source import is_user_code

    sys.path[:] = [str(folder), *(p for p in sys.path if p != str(folder))]
    beside = {p.stem for p in folder.glob("*.py")}
    for name in beside & set(sys.modules):
        origin = getattr(sys.modules[name], "__file__", None)
        if origin and is_user_code(origin) and Path(origin).parent != folder:
            del sys.modules[name]
    try:
        yield
    finally:
        sys.path[:] = [*(p for p in sys.path if p != str(folder)), str(folder)]


def _run_module(name: str) -> ModuleType:
    missing = complain(Code.RECIPE_MISSING, f"there is no module {name!r:.200}")
    if not all(part.isidentifier() for part in name.split(".")):
        raise missing
    with _report_errors(name), _import_from_folder(Path.cwd()):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            # Only the module itself or a package around it. A missing import in the user's code is reported as such.
            if error.name and f"{name}.".startswith(f"{error.name}."):
                raise missing from error
            raise


@contextmanager
def _report_errors(what: str) -> Iterator[None]:
    """Turn any error in the user's code into a finding with the user's line."""
    try:
        yield
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:
        from fairway.model.source import find_user_frame

        if isinstance(error, SyntaxError):
            place = Where(file=error.filename, line=error.lineno, source=(error.text or "").strip() or None)
        else:
            frames = traceback.extract_tb(error.__traceback__)
            places = [Where(file=f.filename, line=f.lineno, function=f.name, source=f.line) for f in frames]
            place = find_user_frame(places) or Where()
        raise complain(Code.RECIPE_RAISED, f"{what}: {type(error).__name__}: {error}", where=place) from error


def _build_without_parameters(source: ModelSource, address: str) -> torch.nn.Module:
    """Build the model without its parameters; if the constructor reads their values, build it with them."""
    from fairway.model.meta_build import build_without_parameters

    try:
        with build_without_parameters():
            return _build_model(source, address)
    except UserError:
        return _build_model(source, address)


def _build_model(source: ModelSource, address: str) -> torch.nn.Module:
    import torch

    if isinstance(source, torch.nn.Module):
        return source
    if not callable(source):
        raise complain(Code.RECIPE_WITHOUT_MODEL, f"{address} is of type {type(source).__name__}")
    with _report_errors(address):
        model = source()
    if not isinstance(model, torch.nn.Module):
        raise complain(Code.RECIPE_WITHOUT_MODEL, f"{address} returned {model!r:.80}, which is not an nn.Module")
    return model
