"""Facts about the registry's types that no general rule builds: `python benchmarks/corpus/collect.py CHECKOUT`.

CHECKOUT is a checkout of huggingface/transformers near the installed release; its tests build every type at a tiny
size. For each type that `tiny.py` cannot build this runs the test setup of the type, once at each of two batch sizes
and lengths, and writes what it saw to settings.json: the settings that differ from the defaults, and name, dtype,
shape and values of each input. None of the tests' text is kept.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
import types
import unittest
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
TYPE_SECONDS_LIMIT = 180
STEP = 2
"""The batch and the length are raised by this, to see which dims follow."""
SPECIAL = r"_token_id|_token_index|_start_id|_end_id"

Facts = dict[str, Any]
Drawn = tuple[Any, dict[str, Any]]
"""A config and the arguments of `forward`."""


def prepare(checkout: Path) -> None:
    """Makes the checkout's tests importable; what they need of pipelines is not needed here."""
    os.chdir(checkout)
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(checkout))
    pipelines = types.ModuleType("tests.test_pipeline_mixin")
    pipelines.PipelineTesterMixin = type("PipelineTesterMixin", (), {})  # type: ignore[attr-defined]
    sys.modules["tests.test_pipeline_mixin"] = pipelines


def testers(model_type: str) -> Iterator[Any]:
    """The set-up test cases of the folder that the type's config is in."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    folder = CONFIG_MAPPING[model_type].__module__.split(".")[-2]
    for path in sorted(Path("tests/models", folder).glob("test_modeling_*.py")):
        module = importlib.import_module(f"tests.models.{folder}.{path.stem}")
        for kind in list(vars(module).values()):
            if not (isinstance(kind, type) and issubclass(kind, unittest.TestCase)):
                continue
            if kind.__module__ != module.__name__ or not hasattr(kind, "all_model_classes"):
                continue
            test = kind(methodName=next(name for name in dir(kind) if name.startswith("test_")))
            try:
                test.setUp()
            except Exception as error:
                print(f"{model_type}: {kind.__name__}: {error}", file=sys.stderr)
            else:
                if getattr(test, "model_tester", None) is not None and test.all_model_classes:
                    yield test


def draw_once(test: Any, kind: type, changes: Mapping[str, int]) -> Drawn:
    """Return the call of the test after some sizes of its setup were raised."""
    tester = test.model_tester
    parts = [tester, *(part for name, part in vars(tester).items() if name.endswith("_tester"))]
    raised = [(part, name, getattr(part, name)) for part in parts for name in changes if hasattr(part, name)]
    for part, name, value in raised:
        if isinstance(value, int):
            setattr(part, name, value + changes[name])
    try:
        config, arguments = tester.prepare_config_and_inputs_for_common()
        return config, dict(test._prepare_for_class(dict(arguments), kind))
    finally:
        for part, name, value in raised:
            setattr(part, name, value)


def inside(whole: type, part: type, drawn: Drawn) -> Drawn | None:
    """The config and the arguments that a part of the model was given while the whole ran."""
    import torch

    config, arguments = drawn
    model = whole(config).eval()
    seen: list[Drawn] = []

    def look(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        import inspect

        names = inspect.signature(module.forward).parameters
        seen.append((module.config, {**dict(zip(names, args, strict=False)), **kwargs}))

    for module in model.modules():
        if type(module) is part:
            module.register_forward_pre_hook(look, with_kwargs=True)
    with torch.no_grad():
        model(**arguments)
    return seen[0] if seen else None


def ways(model_type: str) -> Iterator[tuple[type, Any]]:
    """Classes to build, each with a function that draws for it; first the class that the corpus would take."""
    from architectures import find_class
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config_kind = CONFIG_MAPPING[model_type]
    _, kind = find_class(model_type)
    tests = list(testers(model_type))
    for test in tests:
        classes = list(test.all_model_classes)
        own = [each for each in classes if each.config_class is config_kind]
        for each in [kind] * (kind in own) + [other for other in own if other is not kind][:1]:
            yield each, lambda changes, test=test, each=each: draw_once(test, each, changes)
    for test in tests:
        for whole in list(test.all_model_classes)[:3]:
            yield (
                kind,
                lambda changes, test=test, whole=whole: inside(whole, kind, draw_once(test, whole, changes)),
            )


def facts(model_type: str) -> Facts:
    """The first way whose draw the model answers, as facts."""
    import torch

    problems = []
    for kind, draw in ways(model_type):
        try:
            first, again = draw({}), draw({})
            if first is None or again is None:
                continue
            config, arguments = first
            model, settings = rebuild(kind, config)
            tensors = {name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)}
            with torch.no_grad():
                model(**tensors)
            inputs = describe(tensors, again[1], stretched(draw), config)
        except Exception as error:
            problems.append(f"{kind.__name__}: {type(error).__name__}: {' '.join(str(error).split())[:160]}")
            continue
        return {"class": kind.__name__, "config": settings, "inputs": inputs}
    raise LookupError("; ".join(problems) or "no test builds it")


def rebuild(kind: type, config: Any) -> tuple[Any, Facts]:
    """The model of the settings that differ from the defaults; of all of them where those do not suffice."""
    for settings in (config.to_diff_dict(), config.to_dict()):
        settings = json.loads(json.dumps(settings, default=str))
        try:
            return kind(type(config).from_dict(settings)).eval(), settings
        except Exception as error:
            problem = error
    raise problem


def stretched(draw: Any) -> dict[str, dict[str, Any]]:
    """Return the arguments at another batch size and at another length, by the name of the dim that changed."""
    found = {}
    for dim, names in (("batch", ("batch_size",)), ("seq", ("seq_length", "seq_len", "encoder_seq_length"))):
        try:
            drawn = draw(dict.fromkeys(names, STEP))
        except Exception:
            continue
        if drawn is not None:
            found[dim] = drawn[1]
    return found


def describe(first: Mapping[str, Any], again: Mapping[str, Any], others: dict[str, Any], config: Any) -> list[Facts]:
    """Every input; a dim that some input follows otherwise than one by one stays as it was."""
    import torch

    free = {
        dim
        for dim, arguments in others.items()
        if all(
            isinstance(other := arguments.get(name), torch.Tensor)
            and other.dim() == value.dim()
            and all(theirs - ours in (0, STEP) for ours, theirs in zip(value.shape, other.shape, strict=True))
            for name, value in first.items()
        )
    }
    return [
        describe_one(name, value, again.get(name), {dim: others[dim][name].shape for dim in free}, config)
        for name, value in first.items()
    ]


def describe_one(name: str, value: Any, again: Any, others: dict[str, Any], config: Any) -> Facts:
    """Dtype, sizes, the names of the dims that changed, and the kind of values of one input."""
    import torch

    dims: list[str] = [""] * value.dim()
    for dim, shape in others.items():
        for place, (ours, theirs) in enumerate(zip(value.shape, shape, strict=True)):
            if ours != theirs:
                dims[place] = dim
    dtype = str(value.dtype).removeprefix("torch.")
    fact: Facts = {"name": name, "dtype": dtype, "sizes": [*value.shape], "dims": dims}
    if "mask" in name and set(value.unique().tolist()) <= {0, 1}:
        return fact | {"values": "mask"}
    if value.dtype.is_floating_point:
        unit = bool(value.min() >= 0) and bool(value.max() <= 1)
        return fact | {"values": "unit" if unit else "normal"}
    same = isinstance(again, torch.Tensor) and value.shape == again.shape and torch.equal(value, again)
    if same or value.dtype == torch.bool:
        alike = dims[:1] == ["batch"] and bool((value == value[:1]).all())
        return fact | {"values": "fixed", "fixed": (value[:1] if alike else value).tolist(), "rows_alike": alike}
    fact |= {"values": "ids", "least": int(min(value.min(), again.min())), "most": int(max(value.max(), again.max()))}
    if value.dim() == 2 and value.shape == again.shape:
        both = torch.cat([value, again])
        alike = (both == both[:1]).all(0) if len(both) > 2 else torch.zeros(0, dtype=torch.bool)
        fact["columns"] = {str(place): int(both[0, place]) for place in alike.nonzero().flatten().tolist()}
    return fact | {"special": sorted(special_ids(config))}


def special_ids(config: Any) -> set[int]:
    """Every id that a setting, of a part too, gives a meaning."""
    import re

    found: set[int] = set()
    for name, value in config.to_dict().items():
        if isinstance(value, int) and not isinstance(value, bool) and re.search(SPECIAL, name):
            found.add(value)
        part = getattr(config, name, None)
        if hasattr(part, "to_dict") and part is not config:
            found |= special_ids(part)
    return found


def in_child(model_type: str) -> Facts | str:
    """Facts, or why there are none; another process, since test modules leave patches behind."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(TYPE_SECONDS_LIMIT)
        try:
            text = json.dumps(facts(model_type))
        except BaseException as error:
            text = json.dumps(f"{type(error).__name__}: {' '.join(str(error).split())[:400]}")
        with os.fdopen(writing, "w") as file:
            file.write(text)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        text = file.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else "it took too long or died"  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--types", nargs="*", help="default: every type that the corpus skips")
    args = parser.parse_args()
    from run import read

    rows = read(HERE / "rows.jsonl")
    skipped = [row["case"][5:] for row in rows if row["outcome"] == "skipped" and row["case"].startswith("arch/")]
    out = HERE / "settings.json"
    known = json.loads(out.read_text()) if out.exists() else {}
    prepare(args.checkout)
    import torch

    torch.set_num_threads(1)
    for model_type in args.types or sorted(set(skipped) - set(known)):
        found = in_child(model_type)
        print(f"{model_type}: {found if isinstance(found, str) else found['class']}", flush=True)
        if not isinstance(found, str):
            known[model_type] = found
            lines = [f"{json.dumps(name)}: {json.dumps(known[name])}" for name in sorted(known)]
            out.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
