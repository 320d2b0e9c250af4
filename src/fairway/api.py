"""One function for each command. `import fairway` offers all of them as `fairway.NAME`.

The first five take a PyTorch model and its inputs, the others an ONNX file. There, `recipe` is the address of a recipe
that builds the model, such as "recipe.py" or "recipe.py:name".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from fairway.convert.export import (
    check_level,
    export_subject,
    make_judging_settings,
    make_settings,
    preload_modules,
    verify_subject,
)
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.model.recipe import Overrides, load_subject
from fairway.model.subject import build_subject
from fairway.model.torch_arguments import TorchArguments, take_torch_arguments
from fairway.model.user_types import UserModel
from fairway.record.progress_display import ProgressOption, open_progress
from fairway.workers.attempt import Limits

if TYPE_CHECKING:
    import torch

    from fairway.convert.generation.generation_result import GenerationResult
    from fairway.convert.result import Result
    from fairway.debug.reduce.issue_report import ReduceResult
    from fairway.deploy.publish.destination import Published, Pulled
    from fairway.deploy.run.runner import FinishedRun
    from fairway.deploy.run.windows import Stitch, Tail
    from fairway.deploy.serve.settings import ServerSettings
    from fairway.judge.lattice import Level
    from fairway.model.subject import Subject
    from fairway.model.weight_storage import WeightMode
    from fairway.tune.bench.bench_result import BenchResult
    from fairway.tune.optimize.optimize_result import OptimizeResult
    from fairway.tune.quantize.quantize_file import QuantizeResult
    from fairway.tune.sensitivity import Sensitivity

__all__ = [
    "bench",
    "export",
    "export_generation",
    "locate",
    "optimize",
    "publish",
    "pull",
    "quantize",
    "reduce",
    "run",
    "sensitivity",
    "serve",
    "verify",
]


def export(
    model: UserModel,
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
    **torch_arguments: Unpack[TorchArguments],
) -> Result:
    """Export `model` to an ONNX file that agrees with PyTorch over every declared shape, or report what is wrong.

        result = fairway.export(model, ["x: float32[batch, 3]"], "out.onnx", bounds={"batch": (1, 64)})

    `model` is an nn.Module, a function or bound method, an ExportedProgram, TorchScript, or the path of a file with one
    of the last two. `inputs` is a tuple of example args, a dict of kwargs, an (args, kwargs) pair, a function
    `(seed, **dims)` that makes such a pair, or a list of spec lines such as "ids: int64[batch, seq] < 30522". An
    ExportedProgram also takes None, for its own inputs. `dynamic_axes`, `dynamic_shapes` and `opset_version` mean what
    they mean in torch.onnx.export. `timeout` (seconds) and `memory` (bytes) limit each attempt.
    `translations` maps operators (`torch.ops.mine.op.default`) to functions that call ONNX operators. `weights` chooses
    where they are stored: "embed" in the file, "copy" in a file beside it, "link" in the checkpoint that they are
    mapped from. By default they are in the file if it can hold them, or else beside it. `progress=True` shows on
    standard error what is running; a function gets every event of `fairway.record.progress`.
    """
    dims = take_torch_arguments(torch_arguments, "export", dims, input_names, output_names)
    opset = opset or torch_arguments.get("opset_version")
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
    settings = make_settings(level, routes, opset, remedies, Limits(timeout, memory), weights)
    with open_progress(progress) as on_event:
        return export_subject(subject, Path(path), settings, data, overwrite, on_event)


def verify(
    path: str | Path,
    model: UserModel,
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
    **torch_arguments: Unpack[TorchArguments],
) -> Result:
    """Judge an ONNX file of any origin against `model`. The file is only read.

        result = fairway.verify("out.onnx", model, ["x: float32[batch, 3]"], bounds={"batch": (1, 64)})

    `inputs` and the other arguments are those of `fairway.export`.
    """
    dims = take_torch_arguments(torch_arguments, "verify", dims, input_names, output_names)
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
    settings = make_judging_settings(level, Limits(timeout, memory))
    with open_progress(progress) as on_event:
        return verify_subject(subject, Path(path), settings, data, on_event)


def locate(
    path: str | Path,
    model: UserModel,
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
    settings = make_judging_settings(level, Limits(timeout, memory))
    with open_progress(progress) as on_event:
        return locate_subject(subject, Path(path), settings, data, None if against is None else Path(against), on_event)


def reduce(
    model: UserModel,
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
        raise complain(Code.UNKNOWN_OPTION, f"exporter: expected one of {', '.join(EXPORTERS)}, got {exporter!r:.80}")
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

    check_level(level)
    settings = make_settings(level, routes, opset, remedies, Limits(timeout, memory))
    options = GenerationOptions(bounds or {}, prompts, steps, overwrite)
    with open_progress(progress) as on_event:
        return generate_folder(model, Path(folder), settings, options, on_event)


def quantize(
    path: str | Path,
    output: str | Path,
    *,
    recipe: str | None = None,
    scheme: str = "auto",
    method: str = "minmax",
    per_channel: bool = True,
    data: str | Path | None = None,
    samples: int = 32,
    metric: str | None = None,
    max_drop: float = 0.01,
    min_speedup: float | None = None,
    max_size: float | None = None,
    keep: Sequence[str] = (),
    overwrite: bool = False,
    progress: ProgressOption = False,
) -> QuantizeResult:
    """Make a file smaller or faster, and deliver it only if its quality on held-back samples is within the limits.

        result = fairway.quantize("net.onnx", "net.int8.onnx", recipe="recipe.py", max_drop=0.02)

    Without `recipe`, inputs and truth come from the file and its record. `data` holds samples. `max_drop` is the share
    of quality that may be lost, `max_size` a share of the float file's size. `keep` names nodes that stay in float.
    """
    from fairway.tune.quantize.quality_budget import Budget
    from fairway.tune.quantize.quantize_file import QuantizeSettings, quantize_file

    settings = QuantizeSettings(
        scheme,
        method,
        per_channel,
        samples,
        metric,
        Budget(max_drop, min_speedup, max_size),
        keep=tuple(keep),
        data=_make_path(data),
    )
    subject = _load_subject(Path(path), recipe)
    with open_progress(progress) as on_event:
        return quantize_file(Path(path), subject, Path(output), settings, overwrite, on_event)


def sensitivity(
    path: str | Path,
    folder: str | Path | None = None,
    *,
    recipe: str | None = None,
    budget: float | None = None,
    depth: int | None = None,
    max_drop: float = 0.01,
    metric: str | None = None,
    method: str = "minmax",
    per_channel: bool = True,
    data: str | Path | None = None,
    samples: int = 32,
    jobs: int = 1,
    on: str = "processes",
    overwrite: bool = False,
    progress: ProgressOption = False,
) -> Sensitivity:
    """Rank the parts of a model by the quality that is lost when each is quantized.

        ranking = fairway.sensitivity("net.onnx", recipe="recipe.py")
        fairway.quantize("net.onnx", "net.int8.onnx", recipe="recipe.py", keep=ranking.do_not_quantize)

    Trials and results are written into `folder`, by default `net.sensitivity`. `budget` limits the time in seconds.
    `depth` groups nodes by the first names of their module's path.
    """
    from fairway.tune.quantize.quality_budget import Budget
    from fairway.tune.quantize.quantize_file import QuantizeSettings
    from fairway.tune.sensitivity import SensitivityRequest, measure_sensitivity
    from fairway.workers.fanout import Parallelism

    path = Path(path)
    settings = QuantizeSettings(
        "int8-static", method, per_channel, samples, metric, Budget(max_drop), data=_make_path(data)
    )
    request = SensitivityRequest(budget, depth, Parallelism(jobs, on), overwrite)
    target = path.with_suffix(".sensitivity") if folder is None else Path(folder)
    with open_progress(progress) as on_event:
        return measure_sensitivity(path, _load_subject(path, recipe), target, settings, request, on_event)


def optimize(
    path: str | Path,
    output: str | Path | None = None,
    *,
    recipe: str | None = None,
    smaller: bool = False,
    at: Sequence[str] = (),
    seconds: float = 1.0,
    threads: int = 0,
    level: Level = "standard",
    timeout: float = 600.0,
    memory: int = 0,
    overwrite: bool = False,
    progress: ProgressOption = False,
) -> OptimizeResult:
    """Try optimizers on a file. Keep those that make it faster and leave its outputs unchanged.

        result = fairway.optimize("net.onnx", "faster.onnx", recipe="recipe.py", at=["batch=8,time=100"])

    `output` is `net.optimized.onnx` by default. With `recipe`, the result is judged against PyTorch, and otherwise
    against the file itself. `smaller` also accepts a smaller file that is slightly slower. `threads` 0 uses all cores.
    """
    from fairway.tune.bench.bench import check_timing
    from fairway.tune.optimize.optimize import OptimizeGoal, optimize_file

    path = Path(path)
    check_timing(seconds, (threads,) if threads else ())
    settings = make_judging_settings(level, Limits(timeout, memory))
    subject = None if recipe is None else load_subject(recipe, Overrides())
    target = path.with_name(f"{path.stem}.optimized.onnx") if output is None else Path(output)
    goal = OptimizeGoal(smaller, tuple(at), seconds, threads, overwrite=overwrite)
    with open_progress(progress) as on_event:
        return optimize_file(path, target, subject, settings, goal, on_event)


def bench(
    files: Sequence[str | Path],
    *,
    recipe: str | None = None,
    at: Sequence[str] = (),
    levels: Sequence[str] = ("all", "none"),
    threads: Sequence[int] = (),
    seconds: float = 1.0,
    timeout: float = 120.0,
    memory: int = 0,
    progress: ProgressOption = False,
) -> BenchResult:
    """Time files, and with `recipe` also PyTorch, and return durations and speed ratios with intervals.

        result = fairway.bench(["net.onnx", "faster.onnx"], recipe="recipe.py", at=["batch=8,time=100"])

    `at` lists points; three are chosen by default. `levels` are ONNX Runtime's: all, extended, basic, none. Each arm
    runs for `seconds` at each point. An arm that does not respond for `timeout` seconds is dropped.
    """
    from fairway.tune.bench.bench import BenchRequest, run_bench

    request = BenchRequest(tuple(levels), tuple(threads), tuple(at), seconds, Limits(timeout, memory))
    with open_progress(progress) as on_event:
        return run_bench([Path(file) for file in files], recipe, Overrides(), request, on_event)


def run(
    path: str | Path,
    data: str | Path,
    folder: str | Path,
    *,
    window: int | None = None,
    step: int | None = None,
    tail: Tail = "short",
    stitch: Stitch = "blend",
    batch: int = 1,
    over: str | None = None,
    carry: Mapping[str, str] | None = None,
    recipe: str | None = None,
    jobs: int = 1,
    on: str = "processes",
    unverified: bool = False,
    progress: ProgressOption = False,
) -> FinishedRun:
    """Run a file over recordings of any length, window by window, and write each output as a .npy file into `folder`.

        done = fairway.run("net.onnx", "recordings", "outputs", window=400, step=200)

    `over` is the dim along the recording. `carry` maps inputs to the outputs that hold state for the next window. With
    `recipe`, PyTorch is run too and the differences are reported. A run that was stopped continues with the same call.
    """
    from fairway.deploy.run import run as run_file
    from fairway.deploy.run.windows import WindowSettings
    from fairway.workers.fanout import Parallelism

    settings = WindowSettings(window, step, tail, stitch, batch, over, dict(carry or {}))
    with open_progress(progress) as on_event:
        return run_file(path, data, folder, settings, recipe, unverified, on_event, Parallelism(jobs, on))


def publish(
    path: str | Path, destination: str, *, unverified: bool = False, progress: ProgressOption = False
) -> Published:
    """Publish a verified file with its weights, record and checksums: everything or nothing.

        fairway.publish("net.onnx", "s3://models/net")

    `destination` is `s3://BUCKET/PREFIX`, `mlflow:NAME`, `triton:FOLDER`, `ort:FOLDER` or a folder. A file that is not
    verified is refused unless `unverified` is set.
    """
    from fairway.deploy.publish import publish as publish_file

    with open_progress(progress) as on_event:
        return publish_file(path, destination, unverified, on_event)


def pull(
    destination: str, folder: str | Path, *, version: str | None = None, progress: ProgressOption = False
) -> Pulled:
    """Download a published version into a new folder, and check that every byte is the one that was verified.

        fairway.pull("s3://models/net", "net", version="3")

    `version` is a number, the beginning of a digest, or an alias in MLflow. The newest version is the default.
    """
    from fairway.deploy.publish import pull as pull_files

    with open_progress(progress) as on_event:
        return pull_files(destination, folder, version, on_event)


def serve(
    models: Sequence[str],
    *,
    routes: Sequence[str] = (),
    settings: ServerSettings | None = None,
    on_line: Callable[[str], None] | None = None,
) -> None:
    """Serve verified files over the Open Inference Protocol v2, REST and gRPC, until the process is stopped.

        fairway.serve(["net=net.onnx"], on_line=print)

    `models` are `[NAME=]PLACE[@VERSION]`: files, or places they were published to. `on_line` receives a line for each
    model and each port. Needs the extra `serve`.
    """
    from fairway.deploy.serve.server import serve as serve_models
    from fairway.deploy.serve.settings import ServerSettings

    serve_models(models, routes, settings or ServerSettings(), on_line or (lambda line: None))


def _make_path(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path)


def _load_subject(path: Path, recipe: str | None) -> Subject:
    """Return the recipe's subject, or one built from the file and its record."""
    import onnxruntime

    from fairway.judge.file_subject import build_file_subject
    from fairway.model.onnx_file import open_header
    from fairway.record.reader import compare_with_record

    onnxruntime.set_default_logger_severity(4)  # onnxruntime.quantization opens sessions that log
    if recipe is not None:
        return load_subject(recipe, Overrides())
    return build_file_subject(open_header(path), compare_with_record(path)[0], Overrides())
