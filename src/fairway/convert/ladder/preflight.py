"""Runs the model in PyTorch before any export: its outputs, and defects that make an export pointless."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from math import prod

import torch

from fairway import torch_internals
from fairway.convert.ladder.cache_warmup import report_warm_up, warm_up
from fairway.convert.ladder.diagnose import find_layer_mismatch
from fairway.convert.ladder.fast_path import check_fast_path
from fairway.convert.ladder.input_effects import find_difference, find_inputs_without_effect
from fairway.convert.ladder.model_mode import (
    find_mode_dependence,
    find_training_modules,
    report_training_mode,
    set_eval_mode,
)
from fairway.convert.ladder.model_state import ModelState, RunWatch
from fairway.convert.ladder.output_count import report_output_count
from fairway.convert.types import Preflight
from fairway.diagnostics import Code, Finding, Where
from fairway.diagnostics.errors import UserError, complain
from fairway.judge.budget import choose_affordable_point, compute_volume
from fairway.judge.refusal_cause import describe_refusal, explain_refusal
from fairway.judge.runtimes.eager import disable_compilation, run_eager
from fairway.judge.samples import choose_other_example
from fairway.model.dims import Point
from fairway.model.outputs import describe_leaf, find_non_tensors, find_output_leaves, name_outputs
from fairway.model.signatures import read_forward_signature
from fairway.model.source import find_user_frame
from fairway.model.subject import Subject

MAX_CORNER_FLOPS = 1e9
"""Operations of a run at the highest corner before the export. The evidence covers a costlier one."""
MAX_CORNER_ELEMENTS = 10**6
"""Elements of the inputs of such a run."""


def run_preflight(subject: Subject, remedies: bool) -> Preflight:
    """Run the model at the example, or at the smallest sizes if the example costs too much, and at a second example."""
    warm_up(subject)
    findings = list(report_warm_up(subject))
    state = ModelState(subject.model)
    point = choose_affordable_point(subject)
    tensors = subject.make(point, 1, "normal")
    training = find_training_modules(subject.model) or find_mode_dependence(subject, tensors, state)
    if training:
        findings.append(report_training_mode(subject.model, training))
    if remedies or not training:
        set_eval_mode(subject.model)
    args, kwargs = subject.call([t.clone() for t in tensors])
    torch.manual_seed(11)
    try:
        with torch.no_grad(), disable_compilation():
            outputs = subject.model(*args, **kwargs)
            leaves = find_output_leaves(outputs)
            findings += _report_left_out(subject, outputs)
    except UserError as error:
        return Preflight(findings=(*findings, error.finding))
    except Exception as error:
        return Preflight(findings=(*findings, _report_refusal(subject, error, point)))
    names = name_outputs(leaves, subject.output_names)
    dtypes = tuple(str(leaf.value.dtype).removeprefix("torch.") for leaf in leaves)
    first = [leaf.value for leaf in leaves]
    random, settled = _check_repeated_runs(subject, tensors, first, state)
    findings += random
    findings += report_fixed_arguments(subject)
    refused, others = _check_corners(subject, first)
    findings += refused
    if not any(f.severity == "error" for f in findings):
        findings += check_fast_path(subject, point)
        state = ModelState(subject.model)
        findings += find_inputs_without_effect(subject, tensors, settled)
        findings += _check_history(subject, tensors, settled, state)
    return Preflight(names, dtypes, tuple(findings), _find_varying_axes(first, others) if others else ())


def run_fake_preflight(subject: Subject, remedies: bool) -> Preflight:
    """Determine the outputs by a run on fake tensors, which reads no weights; used if no evidence is needed.

    A model that depends on values gets the ordinary preflight.
    """
    training = find_training_modules(subject.model)
    if remedies or not training:
        set_eval_mode(subject.model)
    try:
        outputs = run_fake(subject, subject.example)
        leaves = find_output_leaves(outputs)
        if find_non_tensors(outputs):
            return run_preflight(subject, remedies)
    except Exception:
        return run_preflight(subject, remedies)
    names = name_outputs(leaves, subject.output_names)
    dtypes = tuple(str(leaf.value.dtype).removeprefix("torch.") for leaf in leaves)
    findings = (report_training_mode(subject.model, training),) if training else ()
    return Preflight(names, dtypes, findings)


def run_fake(subject: Subject, point: Point) -> object:
    """Return the model's outputs as fake tensors, which have shapes and dtypes but no values."""
    tensors = subject.make(point, 1, "normal")
    with torch_internals.FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        args, kwargs = subject.call([mode.from_tensor(tensor) for tensor in tensors])
        return subject.model(*args, **kwargs)


def run_real(subject: Subject, point: Point) -> object:
    """Return the model's outputs."""
    return run_eager(subject, subject.make(point, 1, "normal"))


def _report_left_out(subject: Subject, outputs: object) -> list[Finding]:
    """Report outputs other than tensors: they are left out if they are constant, and refused if they are not."""
    here = find_non_tensors(outputs)
    if not here:
        return []
    args, kwargs = subject.call(subject.make(choose_other_example(subject), 2, "normal"))
    there = find_non_tensors(subject.model(*args, **kwargs))
    for name, leaf in here.items():
        if name not in there or leaf.value != there[name].value:
            raise complain(Code.NON_TENSOR_OUTPUT, f"{describe_leaf(leaf)}; its value differs between two examples")
    return [Finding(Code.OUTPUT_LEFT_OUT, describe_leaf(leaf)) for leaf in here.values()]


def report_fixed_arguments(subject: Subject) -> list[Finding]:
    """Report the numbers, flags and lengths of lists that the call fixes: they are constants of the file."""
    if not subject.is_call:
        return []
    fixed = [text for name, item in _list_arguments(subject) for text in _list_fixed(name, item)]
    return [Finding(Code.FIXED_BY_THE_CALL, ", ".join(fixed))] if fixed else []


def _list_arguments(subject: Subject) -> list[tuple[str, object]]:
    """Return the call's arguments by the names of forward's parameters, with a slot for each tensor."""
    args, kwargs = subject.shape
    try:
        bound = read_forward_signature(subject.model).bind(*args, **kwargs).arguments
    except TypeError:
        return []
    return list(bound.items())


def _list_fixed(name: str, item: object) -> list[str]:
    if isinstance(item, bool | int | float | str):
        return [f"{name}={item!r}"]
    if isinstance(item, list | tuple):
        length = [f"{name} of length {len(item)}"] if isinstance(item, list) else []
        return length + [text for i, part in enumerate(item) for text in _list_fixed(f"{name}.{i}", part)]
    if isinstance(item, Mapping):
        return [text for key, part in item.items() for text in _list_fixed(f"{name}.{key}", part)]
    return []


def _find_varying_axes(outputs: list[torch.Tensor], others: list[torch.Tensor]) -> tuple[tuple[bool, ...], ...]:
    """Return for each output which axes differ in size between the example and a second one."""
    return tuple(
        tuple(a != b for a, b in zip(output.shape, other.shape, strict=False))
        for output, other in zip(outputs, others, strict=True)
    )


def _report_refusal(subject: Subject, error: Exception, point: Point) -> Finding:
    sizes = find_layer_mismatch(error, subject.model)
    if sizes is not None:
        return sizes
    frames = [
        Where(file=f.filename, line=f.lineno, function=f.name, source=f.line)
        for f in traceback.extract_tb(error.__traceback__)
    ]
    return Finding(
        Code.FORWARD_FAILS,
        describe_refusal(error, point),
        where=find_user_frame(frames),
        todo=explain_refusal(subject, error, point),
    )


def _check_highest_corner(subject: Subject, known: Sequence[Point]) -> Finding | None:
    """Return the refusal of the largest declared sizes, before any file is made; None if they cost too much to run.

    It is not run if it is among the points that were run before.
    """
    high = {dim.name: dim.sizes[-1] for dim in subject.domain.dims}
    elements = sum(prod(spec.sizes(high)) for spec in subject.spec)
    cost = subject.study.flops_per_volume * compute_volume(high)
    if high in known or not subject.domain.is_declared or cost > MAX_CORNER_FLOPS or elements > MAX_CORNER_ELEMENTS:
        return None
    try:
        run_eager(subject, subject.make(high, 2, "normal"))
    except UserError as error:
        return error.finding
    except Exception as error:
        return _report_refusal(subject, error, high)
    return None


def _check_corners(subject: Subject, outputs: list[torch.Tensor]) -> tuple[list[Finding], list[torch.Tensor]]:
    """Run the lowest corner and a second example, and the highest corner if that is cheap.

    Return a refusal, and the outputs of the last run. `outputs` are those at the point that was run before; it is not
    run again.
    """
    low, other = {d.name: d.sizes[0] for d in subject.domain.dims}, choose_other_example(subject)
    first, known = outputs, choose_affordable_point(subject)
    points = [point for point in (low, other) if point != known]
    for point in points if low != other else points[:1]:
        try:
            outputs = run_eager(subject, subject.make(point, 2, "normal"))
        except UserError as error:
            return [error.finding], []
        except Exception as error:
            outputs = []
            if subject.domain.is_declared:
                return [_report_refusal(subject, error, point)], []
        if outputs and len(outputs) != len(first):
            return [report_output_count(subject, (known, len(first)), (point, len(outputs)))], []
    refusal = _check_highest_corner(subject, (known, *points))
    return ([], outputs) if refusal is None else ([refusal], [])


def _check_repeated_runs(
    subject: Subject, tensors: list[torch.Tensor], first: list[torch.Tensor], state: ModelState
) -> tuple[list[Finding], list[torch.Tensor]]:
    """Run the model from several random states; the outputs must be equal to the bit. Return findings and the outputs.

    A model may settle a part of its state on the first run. If the second run differs from it, the third one counts.
    `state` is the model's state before the first run. Changes to it are undone, unless the model settled it.
    """
    watch = RunWatch(state)
    runs = [first]
    for seed in (12, 11):
        runs.append(_run_from_seed(subject, tensors, seed, watch))
        index = find_difference(*runs[-2:])
        if index is None:
            break
    settled = len(runs) == 3 and index is None
    changed = state.find_changes(containers=index is not None)
    if changed and index is None:
        index = _find_difference_after_other_inputs(subject, tensors, runs[-1])
    elif changed and _is_random(subject, tensors, state, watch):
        changed = []
    if changed and (not settled or index is not None):
        state.restore()
    if index is None:
        return [], runs[-1]
    return [_report_state(changed, watch, index) if changed else _report_randomness(watch, index)], runs[-1]


def _run_from_seed(subject: Subject, tensors: list[torch.Tensor], seed: int, watch: RunWatch) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    with watch.run(subject.model):
        return run_eager(subject, tensors)


def _find_difference_after_other_inputs(
    subject: Subject, tensors: list[torch.Tensor], outputs: list[torch.Tensor]
) -> int | None:
    """Return the first output that differs after a run on other inputs; used for a model that changes its state."""
    try:
        run_eager(subject, subject.make(choose_affordable_point(subject), 4, "normal"))
        return find_difference(outputs, run_eager(subject, tensors))
    except Exception:
        return None  # PyTorch refuses the values, which is reported elsewhere


def _check_history(
    subject: Subject, tensors: list[torch.Tensor], outputs: list[torch.Tensor], state: ModelState
) -> list[Finding]:
    """Report if the runs on other inputs changed the model's state and thereby the outputs for the first inputs.

    An example of zeros may leave a state unchanged that every other input changes.
    """
    changed = state.find_changes(containers=True)
    if not changed:
        return []
    watch = RunWatch(state)
    index = find_difference(outputs, _run_from_seed(subject, tensors, 11, watch))
    state.restore()
    return [] if index is None else [_report_state(changed, watch, index)]


def _is_random(subject: Subject, tensors: list[torch.Tensor], state: ModelState, watch: RunWatch) -> bool:
    """Say whether two random states give different outputs from the same state of the model."""
    runs = []
    for seed in (12, 11):
        if not state.restore():
            return bool(watch.draws)  # a parameter was changed, of which there is no copy
        torch.manual_seed(seed)
        runs.append(run_eager(subject, tensors))
    return find_difference(*runs) is not None


def _report_randomness(watch: RunWatch, index: int) -> Finding:
    where = watch.draws[0] if watch.draws else None
    line = f", drawn at {where}" if where else ""
    return Finding(
        Code.RANDOM_FORWARD, f"output {index} differs between two runs on the same inputs{line}", where=where
    )


def _report_state(changed: list[str], watch: RunWatch, index: int) -> Finding:
    """Report the state that changed; the parts that the model's own code writes come first."""
    ranked = sorted(changed, key=lambda name: name not in watch.writes)
    where = watch.writes.get(ranked[0])
    shown = ", ".join(ranked[:3]) + (f" and {len(ranked) - 3} more" if len(ranked) > 3 else "")
    line = f", written at {where}" if where else ""
    seen = f"{shown} changes in forward{line}; output {index} differs between two runs on the same inputs"
    return Finding(Code.STATE_CHANGED, seen, where=where, data={"state": ranked})
