"""Recipes: a model, its inputs and their domain, in a Python file or a module.

RECIPE is `path/to/file.py[:name]` or `package.module:name`. The name may be a `Recipe`, an nn.Module, a Module class,
or a function that returns a Module; without a name, the file's only Recipe is meant.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fairway.diagnostics import Where
from fairway.diagnostics.errors import UserError, complain
from fairway.model.memory_check import is_regular

LARGEST = 10 * 2**20
"""Bytes of a recipe's file."""

if TYPE_CHECKING:
    from fairway.model.subject import Subject


@dataclass(frozen=True)
class Recipe:
    """How to build a model and what it must accept.

    `model` is an nn.Module, a class, or a function without arguments that returns a Module. `inputs` takes the forms
    that `fairway.export` takes. A relative `checkpoint` starts at the recipe's folder. For quantising, `calibration()`
    yields samples, each a dict of tensors by input name, and `metric(model_fn)` says how good a model is, larger for
    better; `model_fn` takes a dict of arrays and gives one.
    """

    model: Any
    inputs: Any
    dims: Any = None
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    multiples: Mapping[str, int] = field(default_factory=dict)
    example: Mapping[str, int] = field(default_factory=dict)
    checkpoint: str | None = None
    input_names: Sequence[str] | None = None
    output_names: Sequence[str] | None = None
    patches: Mapping[Any, Callable[..., Any]] = field(default_factory=dict)
    translations: Mapping[Any, Callable[..., Any]] = field(default_factory=dict)
    calibration: Callable[[], Any] | None = None
    metric: Callable[[Any], float] | None = None


@dataclass(frozen=True)
class Overrides:
    """What the command line says on top of a recipe."""

    inputs: tuple[str, ...] = ()
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    multiples: Mapping[str, int] = field(default_factory=dict)
    checkpoint: Path | None = None
    trust: bool = False


def load_model(address: str, overrides: Overrides) -> tuple[Any, Recipe, str]:
    """Finds the recipe, builds its model and loads its checkpoint; answers the model, the recipe and its name."""
    from fairway.model.checkpoint import load_checkpoint
    from fairway.model.subject import undisturbed

    with undisturbed():
        home, name, found = _find(address)
        recipe = found if isinstance(found, Recipe) else Recipe(found, list(overrides.inputs))
        checkpoint = overrides.checkpoint or (home / recipe.checkpoint if recipe.checkpoint else None)
        with _own_folder(home):
            model = _build(recipe.model, address) if checkpoint is None else _build_bare(recipe.model, address)
        if checkpoint is not None:
            load_checkpoint(model, checkpoint, overrides.trust)
    return model, recipe, name


def load_subject(address: str, overrides: Overrides) -> Subject:
    """The recipe's model with its spec."""
    from fairway.model.subject import build_subject, undisturbed

    with undisturbed():
        model, recipe, name = load_model(address, overrides)
        inputs = list(overrides.inputs) or recipe.inputs
        if inputs is None or (isinstance(inputs, str | Sequence | Mapping) and not inputs):
            raise complain("FW010", f"{address} declares no inputs")
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


def _find(address: str) -> tuple[Path, str, Any]:
    """The folder that relative paths start at, a name to call the subject by, and the object itself."""
    where, _, name = address.partition(":")
    path = _resolve(where)
    if where.endswith(".py") or "/" in where:
        _refuse_other_files(where, path)
        module, home = _run_file(path, where), path.parent
    else:
        if path.is_file():
            _refuse_other_files(where, path)
        module, home = _run_module(where), Path.cwd()
    if not name:
        found = {n: v for n, v in vars(module).items() if isinstance(v, Recipe)}
        if len(found) != 1:
            count = f"{len(found)} recipes" if found else "no recipe"
            raise complain("FW103", f"{address} holds {count}{_offer(module, where)}")
        name = next(iter(found))
    with _reporting(where):  # a module may have a __getattr__ of its own
        if not hasattr(module, name):
            raise complain("FW103", f"{where} has no {name!r:.200}{_offer(module, where)}")
        return home, name, getattr(module, name)


def _resolve(where: str) -> Path:
    try:
        path = Path(where).resolve()
        path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise complain("FW101", f"{where!r:.200} is no path: {error!s:.200}") from error
    return path


def _refuse_other_files(where: str, path: Path) -> None:
    where = where[:200]
    if not path.exists():
        raise complain("FW101", f"{where} does not exist")
    if path.is_dir() or path.suffix != ".py":
        raise complain("FW101", f"{where} is {'a folder' if path.is_dir() else 'not a Python file'}")
    if not is_regular(path):
        raise complain("FW101", f"{where} is no plain file")
    if path.stat().st_size > LARGEST:
        raise complain("FW101", f"{where} has {path.stat().st_size} bytes; a recipe has at most {LARGEST}")


def _offer(module: ModuleType, where: str) -> str:
    import torch

    names = [
        n
        for n, v in vars(module).items()
        if isinstance(v, Recipe | torch.nn.Module)
        or (isinstance(v, type) and issubclass(v, torch.nn.Module) and v.__module__ == module.__name__)
    ]
    return "; name one: " + ", ".join(f"{where}:{n}" for n in names) if names else ""


def _run_file(path: Path, shown: str) -> ModuleType:
    """Runs the file with its own folder first on the path, as `python file.py` would."""
    stamp = hashlib.sha256(str(path).encode()).hexdigest()[:12]
    title = f"fairway_recipe_{path.stem}_{stamp}"
    spec = importlib.util.spec_from_file_location(title, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[title] = module
    with _reporting(shown), _own_folder(path.parent):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _own_folder(folder: Path) -> Iterator[None]:
    """The recipe's neighbours are imported from its own folder, not from one that an earlier recipe left in the cache.

    Afterwards the folder stays on the path, but last: forward may import too, and no file in it may hide a library.
    """
    from fairway.model.source import is_users

    sys.path[:] = [str(folder), *(p for p in sys.path if p != str(folder))]
    beside = {p.stem for p in folder.glob("*.py")}
    for name in beside & set(sys.modules):
        origin = getattr(sys.modules[name], "__file__", None)
        if origin and is_users(origin) and Path(origin).parent != folder:
            del sys.modules[name]
    try:
        yield
    finally:
        sys.path[:] = [*(p for p in sys.path if p != str(folder)), str(folder)]


def _run_module(name: str) -> ModuleType:
    missing = complain("FW101", f"there is no module {name!r:.200}")
    if not all(part.isidentifier() for part in name.split(".")):
        raise missing
    with _reporting(name), _own_folder(Path.cwd()):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            # Only the module itself or a package around it: one that the user's code imports is the user's error.
            if error.name and f"{name}.".startswith(f"{error.name}."):
                raise missing from error
            raise


@contextmanager
def _reporting(what: str) -> Iterator[None]:
    """Turns any error of the user's code into a finding with the user's line."""
    try:
        yield
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:
        from fairway.model.source import user_frame

        if isinstance(error, SyntaxError):
            place = Where(file=error.filename, line=error.lineno, source=(error.text or "").strip() or None)
        else:
            frames = traceback.extract_tb(error.__traceback__)
            places = [Where(file=f.filename, line=f.lineno, function=f.name, source=f.line) for f in frames]
            place = user_frame(places) or Where()
        raise complain("FW102", f"{what}: {type(error).__name__}: {error}", where=place) from error


def _build_bare(source: Any, address: str) -> Any:
    """The model without room for parameters; a constructor that reads their values gets to build them."""
    from fairway.model.meta_build import bare

    try:
        with bare():
            return _build(source, address)
    except UserError:
        return _build(source, address)


def _build(source: Any, address: str) -> Any:
    import torch

    if isinstance(source, torch.nn.Module):
        return source
    if not callable(source):
        raise complain("FW103", f"{address} is of type {type(source).__name__}")
    with _reporting(address):
        model = source()
    if not isinstance(model, torch.nn.Module):
        raise complain("FW103", f"{address} returned {model!r:.80}, which is not an nn.Module")
    return model
