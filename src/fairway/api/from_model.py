"""The functions that take a PyTorch model and its inputs: export, verify, locate, reduce and export_generation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairway.convert.export import export_subject, make_settings, preload_modules, verify_subject
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.model.subject import build_subject
from fairway.record.progress_display import ProgressOption, open_progress

if TYPE_CHECKING:
    import torch

    from fairway.convert.generation.generation_result import GenerationResult
    from fairway.convert.result import Result
    from fairway.debug.reduce.issue_report import ReduceResult
    from fairway.judge.lattice import Level
    from fairway.model.weight_storage import WeightMode


def export(
    model: torch.nn.Module,
    inputs: object,
    path: str | Path,
    *,
    dims: object = None,
    bounds: Mapping[str, tuple[int, int]] | None = None,
    multiples: Mapping[str, int] | None = None,
    example: Mapping[str, int] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    patches: Mapping[Any, Callable[..., Any]] | None = None,
    translations: Mapping[Any, Callable[..., Any]] | None = None,
    opset: int | None = None,
    level: Level = "standard",
    routes: Sequence[str] = (),
    remedies: bool = True,
    timeout: float = 600.0,
    memory: int = 0,
    data: str | Path | None = None,
    weights: WeightMode | None = None,
    overwrite: bool = False,
    progress: ProgressOption = False,
) -> Result:
    """Export `model` to an ONNX file that agrees with PyTorch over every declared shape, or report what is wrong.

        result = fairway.export(model, ["x: float32[batch, 3]"], "out.onnx", bounds={"batch": (1, 64)})

    `inputs` is a tuple of example args, a dict of kwargs, an (args, kwargs) pair, a function `(seed, **dims)` that
    makes such a pair, or a list of spec lines. `timeout` (seconds) and `memory` (bytes) limit each attempt.
    `translations` maps operators (`torch.ops.mine.op.default`) to functions that call ONNX operators. `weights` chooses
    where they are stored: "embed" in the file, "copy" in a file beside it, "link" in the checkpoint that they are
    mapped from. By default they are in the file if it can hold them, or else beside it. `progress=True` shows on
    standard error what is running; a function gets every event of `fairway.record.progress`.
    """
    subject = build_subject(
        model,
        inputs,
        dims=dims,
        bounds=bounds,
        multiples=multiples,
        example=example,
        input_names=input_names,
        output_names=output_names,
        patches=patches,
        translations=translations,
    )
    settings = make_settings(level, routes, opset, remedies, timeout, memory, weights)
    with open_progress(progress) as on_event:
        return export_subject(subject, Path(path), settings, data, overwrite, on_event)


def verify(
    path: str | Path,
    model: torch.nn.Module,
    inputs: object,
    *,
    dims: object = None,
    bounds: Mapping[str, tuple[int, int]] | None = None,
    multiples: Mapping[str, int] | None = None,
    example: Mapping[str, int] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    level: Level = "standard",
    timeout: float = 600.0,
    memory: int = 0,
    data: str | Path | None = None,
    progress: ProgressOption = False,
) -> Result:
    """Judge an ONNX file of any origin against `model`. The file is only read.

        result = fairway.verify("out.onnx", model, ["x: float32[batch, 3]"], bounds={"batch": (1, 64)})

    `inputs` and the other arguments are those of `fairway.export`.
    """
    subject = build_subject(
        model,
        inputs,
        dims=dims,
        bounds=bounds,
        multiples=multiples,
        example=example,
        input_names=input_names,
        output_names=output_names,
    )
    settings = make_settings(level, (), None, True, timeout, memory, judging=True)
    with open_progress(progress) as on_event:
        return verify_subject(subject, Path(path), settings, data, on_event)


def locate(
    path: str | Path,
    model: torch.nn.Module,
    inputs: object,
    *,
    against: str | Path | None = None,
    dims: object = None,
    bounds: Mapping[str, tuple[int, int]] | None = None,
    multiples: Mapping[str, int] | None = None,
    example: Mapping[str, int] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    level: Level = "standard",
    timeout: float = 600.0,
    memory: int = 0,
    data: str | Path | None = None,
    progress: ProgressOption = False,
) -> Result:
    """Judge a file as `fairway.verify` does; for a wrong file, name the first wrong node, its module and the line.

        print(fairway.locate("wrong.onnx", model, ["x: float32[batch, 3]"], bounds={"batch": (1, 64)}))

    `against` is a right file, such as the one before optimizing. Without it, the model is exported again if possible.
    """
    from fairway.debug.find_wrong_node import locate_subject

    subject = build_subject(
        model,
        inputs,
        dims=dims,
        bounds=bounds,
        multiples=multiples,
        example=example,
        input_names=input_names,
        output_names=output_names,
    )
    settings = make_settings(level, (), None, True, timeout, memory, judging=True)
    with open_progress(progress) as on_event:
        return locate_subject(subject, Path(path), settings, data, None if against is None else Path(against), on_event)


def reduce(
    model: torch.nn.Module,
    inputs: object,
    folder: str | Path,
    *,
    exporter: str | None = None,
    check: str | None = None,
    budget: float = 300.0,
    timeout: float = 60.0,
    dims: object = None,
    bounds: Mapping[str, tuple[int, int]] | None = None,
    multiples: Mapping[str, int] | None = None,
    example: Mapping[str, int] | None = None,
    progress: ProgressOption = False,
) -> ReduceResult | None:
    """Reduce a model whose export fails to the smallest script that fails in the same way.

        reduced = fairway.reduce(model, ["x: float32[batch, 3]"], "reduced", bounds={"batch": (1, 64)})

    `repro.py` and `report.md` are written into `folder`. The result is None if torch's own exporter makes no mistake.
    `exporter` is "dynamo" or "trace", by default the first that fails. `check` is a command that runs with each
    candidate script and keeps it by exit code 0. `budget` limits the entire search, `timeout` each trial, in seconds.
    """
    from fairway.debug.reduce.reduce import ReduceSettings, reduce_subject
    from fairway.debug.reduce.trial_export import EXPORTERS

    if exporter is not None and exporter not in EXPORTERS:
        raise complain(Code.UNKNOWN_OPTION, f"exporter {exporter!r}; the exporters are {', '.join(EXPORTERS)}")
    subject = build_subject(model, inputs, dims=dims, bounds=bounds, multiples=multiples, example=example)
    preload_modules()
    with open_progress(progress) as on_event:
        return reduce_subject(subject, Path(folder), ReduceSettings(exporter, check, budget, timeout), on_event)


def export_generation(
    model: torch.nn.Module,
    folder: str | Path,
    *,
    bounds: Mapping[str, tuple[int, int]] | None = None,
    prompts: Sequence[Sequence[int]] | None = None,
    steps: int = 32,
    opset: int | None = None,
    level: Level = "standard",
    routes: Sequence[str] = (),
    remedies: bool = True,
    timeout: float = 600.0,
    memory: int = 0,
    overwrite: bool = False,
    progress: ProgressOption = False,
) -> GenerationResult:
    """Export a generator of transformers to a folder of ONNX graphs with a cache, and compare generation step by step.

        result = fairway.export_generation(model, "talker", bounds={"past": (0, 512)})

    `bounds` change the bounds of the dims batch, past, seq and source. `prompts` are token ids to generate from; random
    ones are used by default. `timeout` (seconds) and `memory` (bytes) limit each attempt.
    """
    from fairway.convert.generation.export_generator import GenerationOptions, generate_folder

    settings = make_settings(level, routes, opset, remedies, timeout, memory, judging=True)
    options = GenerationOptions(bounds or {}, prompts, steps, overwrite)
    with open_progress(progress) as on_event:
        return generate_folder(model, Path(folder), settings, options, on_event)
