"""Recipes: a model, its inputs and their domain, in a Python file or a module.

RECIPE is `path/to/file.py[:name]` or `package.module:name`. The name may be a `Recipe`, an nn.Module, a Module class,
or a function that returns a Module. Without a name, the file's only Recipe is used.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from fairway.diagnostics import Code, Finding, Where
from fairway.diagnostics.errors import UserError, complain
from fairway.model.memory_check import is_regular_file
from fairway.model.model_folder import read_model_folder
from fairway.model.user_types import Calibration, Metric, ModelSource, OperatorFunctions, UserDims, UserInputs

MAX_RECIPE_BYTES = 10 * 2**20
"""The largest size of a recipe's file."""

MODEL_SUFFIXES = (".pt2", ".pt", ".pth", ".ts")
"""Endings of files that hold an exported program or TorchScript, and are named in the place of a recipe."""

if TYPE_CHECKING:
    import torch

    from fairway.model.subject import Subject


@dataclass(frozen=True)
class Recipe:
    """Instructions to build a model, with the inputs that it must accept.

    `model` is a class or a function without arguments that returns a model, or a model in any form that
    `fairway.export` takes. So is `inputs`. A relative `checkpoint` starts at the recipe's folder; `checkpoint_key`
    names the entry or the prefix of the weights in it, such as `state_dict_ema`. For quantization,
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
    checkpoint_key: str | None = None
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
    checkpoint_key: str | None = None


@dataclass(frozen=True)
class LoadedModel:
    """A recipe's model with its weights, the recipe and its name, and notes on the form of the model and checkpoint."""

    model: torch.nn.Module
    recipe: Recipe
    name: str
    remarks: tuple[Finding, ...] = ()


def load_model(address: str, overrides: Overrides) -> LoadedModel:
    """Find the recipe, build its model and load its checkpoint."""
    from fairway.model.accept_model import accept_model
    from fairway.model.checkpoint import load_checkpoint
    from fairway.model.subject import preserve_global_state

    with preserve_global_state():
        home, name, target = _find_object(address)
        recipe = target if isinstance(target, Recipe) else Recipe(target, list(overrides.inputs))
        checkpoint = overrides.checkpoint or (home / recipe.checkpoint if recipe.checkpoint else None)
        with _import_from_folder(home):
            build = _build_model if checkpoint is None else _build_without_parameters
            accepted = accept_model(build(recipe.model, address, home))
        remarks = accepted.remarks
        if checkpoint is not None:
            key = overrides.checkpoint_key or recipe.checkpoint_key
            remarks += load_checkpoint(accepted.module, checkpoint, overrides.trust, key)
    return LoadedModel(accepted.module, recipe, name, remarks)


def load_subject(address: str, overrides: Overrides) -> Subject:
    """Return the recipe's model with its spec."""
    from fairway.model.program_model import ProgramModel
    from fairway.model.subject import build_subject, preserve_global_state

    with preserve_global_state():
        loaded = load_model(address, overrides)
        recipe = loaded.recipe
        inputs = list(overrides.inputs) or recipe.inputs
        is_program = inputs is None and isinstance(loaded.model, ProgramModel)
        if (inputs is None and not is_program) or (isinstance(inputs, str | Sequence | Mapping) and not inputs):
            raise complain(Code.NO_INPUTS, f"{address} declares no inputs")
        subject = build_subject(
            loaded.model,
            inputs,
            dims=None if overrides.inputs else recipe.dims,
            bounds={**recipe.bounds, **overrides.bounds},
            multiples={**recipe.multiples, **overrides.multiples},
            example=recipe.example,
            input_names=recipe.input_names,
            output_names=recipe.output_names,
            patches=recipe.patches,
            translations=recipe.translations,
            name=loaded.name,
        )
        remarks = (*loaded.remarks, *subject.remarks)
        return replace(subject, calibration=recipe.calibration, metric=recipe.metric, remarks=remarks)


def _find_object(address: str) -> tuple[Path, str, ModelSource]:
    """Return the folder that relative paths start at, the subject's name, and the object that the address names."""
    location, _, name = address.partition(":")
    path = _resolve_path(location)
    if path.suffix in MODEL_SUFFIXES and not name:
        _refuse_missing(location, path)
        return Path(), path.stem, Recipe(Path(location), None)
    if location and path.is_dir() and path.suffix != ".py" and not name:
        described = read_model_folder(path, location)
        return Path(), path.name, Recipe(described.build, described.inputs, bounds=described.bounds)
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
            raise complain(Code.RECIPE_WITHOUT_MODEL, f"{address} contains {count}{_suggest_names(module, location)}")
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


def _refuse_missing(location: str, path: Path) -> None:
    if not path.exists():
        raise complain(Code.RECIPE_MISSING, f"{location[:200]} does not exist")


def _refuse_other_files(location: str, path: Path) -> None:
    _refuse_missing(location, path)
    location = location[:200]
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


def _build_without_parameters(source: ModelSource, address: str, home: Path) -> object:
    """Build the model without its parameters; if the constructor reads their values, build it with them."""
    from fairway.model.meta_build import build_without_parameters

    try:
        with build_without_parameters():
            return _build_model(source, address, home)
    except UserError:
        return _build_model(source, address, home)


def _build_model(source: ModelSource, address: str, home: Path) -> object:
    """Return the model of a recipe. A function that needs no arguments builds it; any other function is the model."""
    import torch

    if isinstance(source, torch.nn.Module | torch.export.ExportedProgram | torch.jit.ScriptFunction):
        return source
    if isinstance(source, str | Path):
        return home / source
    if not callable(source):
        raise complain(
            Code.RECIPE_WITHOUT_MODEL,
            f"{address}: expected a model, or a function that returns one, got {type(source).__name__}",
        )
    if not isinstance(source, type) and _needs_arguments(source):
        return source
    with _report_errors(address):
        model = source()
    if not (callable(model) or isinstance(model, torch.export.ExportedProgram | str | Path)) or isinstance(model, type):
        raise complain(Code.RECIPE_WITHOUT_MODEL, f"{address} returned {model!r:.80}, which is not a model")
    return model


def _needs_arguments(function: Callable[..., object]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return any(parameter.default is parameter.empty and parameter.kind in plain for parameter in parameters)
