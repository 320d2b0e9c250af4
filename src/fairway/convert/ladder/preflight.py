"""Before any export: does the model run, what does it return, and is it in a state worth exporting?"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fairway.convert.ladder.cache_warmup import settled_finding, warm_up
from fairway.convert.ladder.diagnose import layer_sizes
from fairway.convert.ladder.state import ModelState, RunWatch
from fairway.diagnostics import Finding, Where
from fairway.diagnostics.errors import UserError, complain
from fairway.judge.budget import affordable_point
from fairway.judge.runtimes.eager import run_eager
from fairway.judge.samples import other_example
from fairway.model.dims import Point, show
from fairway.model.outputs import described, left_out, name_outputs, output_leaves
from fairway.model.source import user_frame
from fairway.model.subject import Subject

_MODE_MATTERS = (
    torch.nn.modules.dropout._DropoutNd,
    torch.nn.modules.batchnorm._NormBase,
    torch.nn.RNNBase,
    torch.nn.MultiheadAttention,
)


@dataclass(frozen=True)
class Preflight:
    """What is known of the outputs, and what was found."""

    output_names: tuple[str, ...]
    output_dtypes: tuple[str, ...]
    findings: tuple[Finding, ...]
    output_axes: tuple[tuple[bool, ...], ...] = ()
    """For each output, which of its axes vary with the dims; for who judges a file."""

    @property
    def hopeless(self) -> bool:
        return any(f.severity == "error" for f in self.findings)


def look(subject: Subject, remedies: bool) -> Preflight:
    """Runs the model in PyTorch at the example, or at the smallest sizes if it is dear, and at a second example.

    Nothing is exported yet.
    """
    warm_up(subject)
    findings = list(settled_finding(subject))
    state = ModelState(subject.model)
    point = affordable_point(subject)
    tensors = subject.make(point, 1, "normal")
    training = training_modules(subject.model) or _mode_sensitive(subject, tensors, state)
    if training:
        findings.append(_training_finding(subject.model, training))
    if remedies or not training:
        subject.model.eval()
    args, kwargs = subject.call([t.clone() for t in tensors])
    torch.manual_seed(11)
    try:
        with torch.no_grad():
            answer = subject.model(*args, **kwargs)
            leaves = output_leaves(answer)
            findings += _left_out(subject, answer)
    except UserError as error:
        return Preflight((), (), (*findings, error.finding))
    except Exception as error:
        return Preflight((), (), (*findings, _refusal(subject, error, point)))
    names = name_outputs(leaves, subject.output_names)
    dtypes = tuple(str(leaf.value.dtype).removeprefix("torch.") for leaf in leaves)
    first = [leaf.value for leaf in leaves]
    random, settled = _random(subject, tensors, first, state)
    findings += random
    findings += fixed_by_the_call(subject)
    refused, others = _corners(subject, first)
    findings += refused
    if not any(f.severity == "error" for f in findings):
        state = ModelState(subject.model)
        findings += _without_effect(subject, tensors, settled)
        findings += _by_history(subject, tensors, settled, state)
    return Preflight(names, dtypes, tuple(findings), _differing(first, others) if others else ())


def glance(subject: Subject, remedies: bool) -> Preflight:
    """What the outputs are, from a run on fake tensors, which reads no weight; for where no evidence is asked for.

    A model that has to see values is looked at as always.
    """
    training = training_modules(subject.model)
    if remedies or not training:
        subject.model.eval()
    try:
        answer = faked(subject, subject.example)
        leaves = output_leaves(answer)
        if left_out(answer):
            return look(subject, remedies)
    except Exception:
        return look(subject, remedies)
    names = name_outputs(leaves, subject.output_names)
    dtypes = tuple(str(leaf.value.dtype).removeprefix("torch.") for leaf in leaves)
    findings = (_training_finding(subject.model, training),) if training else ()
    return Preflight(names, dtypes, findings)


def faked(subject: Subject, point: Point) -> Any:
    """The model's answer in fake tensors: shapes and dtypes without a number computed."""
    from torch._subclasses import FakeTensorMode  # seen to work in torch 2.9–2.13; no public counterpart

    tensors = subject.make(point, 1, "normal")
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        args, kwargs = subject.call([mode.from_tensor(tensor) for tensor in tensors])
        return subject.model(*args, **kwargs)


def computed(subject: Subject, point: Point) -> Any:
    """The model's answer in earnest."""
    return run_eager(subject, subject.make(point, 1, "normal"))


def _left_out(subject: Subject, answer: Any) -> list[Finding]:
    """A number or a word beside the tensors is left out where it is always the same, and refused where it is not."""
    here = left_out(answer)
    if not here:
        return []
    args, kwargs = subject.call(subject.make(other_example(subject), 2, "normal"))
    there = left_out(subject.model(*args, **kwargs))
    for name, leaf in here.items():
        if name not in there or leaf.value != there[name].value:
            raise complain("FW209", f"{described(leaf)}; it is not always the same")
    return [Finding("FW215", described(leaf)) for leaf in here.values()]


def fixed_by_the_call(subject: Subject) -> list[Finding]:
    """Say which numbers, flags and lengths of lists the call fixes: they are constants of the file."""
    if not subject.is_call:
        return []
    fixed = [text for name, item in _arguments(subject) for text in _fixed(name, item)]
    return [Finding("FW220", ", ".join(fixed))] if fixed else []


def _arguments(subject: Subject) -> list[tuple[str, Any]]:
    """Return the call's arguments by the names of forward's parameters, with a slot for each tensor."""
    args, kwargs = subject.shape
    try:
        bound = inspect.signature(subject.model.forward).bind(*args, **kwargs).arguments
    except TypeError:
        return []
    return list(bound.items())


def _fixed(name: str, item: Any) -> list[str]:
    if isinstance(item, bool | int | float | str):
        return [f"{name}={item!r}"]
    if isinstance(item, list | tuple):
        length = [f"{name} of length {len(item)}"] if isinstance(item, list) else []
        return length + [text for i, one in enumerate(item) for text in _fixed(f"{name}.{i}", one)]
    if isinstance(item, Mapping):
        return [text for key, one in item.items() for text in _fixed(f"{name}.{key}", one)]
    return []


def _differing(outputs: list[torch.Tensor], others: list[torch.Tensor]) -> tuple[tuple[bool, ...], ...]:
    """Which axes differ in size between the example and a second one."""
    return tuple(
        tuple(a != b for a, b in zip(one.shape, other.shape, strict=False))
        for one, other in zip(outputs, others, strict=True)
    )


def training_modules(model: torch.nn.Module) -> list[str]:
    """Modules in training mode whose answer depends on the mode."""
    found = []
    for name, module in model.named_modules():
        if not module.training or not isinstance(module, _MODE_MATTERS):
            continue
        # Recurrent and attention layers depend on the mode only through their dropout.
        if getattr(module, "dropout", 1) != 0 and getattr(module, "p", 1) != 0:
            found.append(name or type(module).__name__)
    return found


def _mode_sensitive(subject: Subject, tensors: list[torch.Tensor], state: ModelState) -> list[str]:
    """The root's name where the model answers otherwise in training mode, though none of its layers is known to.

    Both runs start from the same state, since a model may change it.
    """
    model = subject.model
    modes = {m: m.training for m in model.modules()}
    if not any(modes.values()):
        return []
    try:
        torch.manual_seed(13)
        as_found = run_eager(subject, tensors)
        if state.find_changes():
            state.restore()
        torch.manual_seed(13)
        settled = run_eager(subject, tensors) if model.eval() else []
    except Exception:
        return []  # PyTorch refuses the example; that is reported where it is run in earnest
    finally:
        for module, mode in modes.items():
            module.training = mode
        if state.find_changes():
            state.restore()
    same = all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(as_found, settled, strict=True))
    return [] if same else [type(model).__name__]


def _training_finding(model: torch.nn.Module, training: list[str]) -> Finding:
    kinds = {name: type(dict(model.named_modules()).get(name, model)).__name__ for name in training}
    shown = ", ".join(f"{name} ({kind})" for name, kind in list(kinds.items())[:5])
    more = f" and {len(kinds) - 5} more" if len(kinds) > 5 else ""
    return Finding("FW202", f"{shown}{more}", where=Where(module=training[0]), data={"modules": training})


def _refusal(subject: Subject, error: Exception, point: Point) -> Finding:
    sizes = layer_sizes(error, subject.model)
    if sizes is not None:
        return sizes
    frames = [
        Where(file=f.filename, line=f.lineno, function=f.name, source=f.line)
        for f in traceback.extract_tb(error.__traceback__)
    ]
    first = str(error).splitlines()[0] if str(error) else ""
    todo: tuple[str, ...] = ()
    if isinstance(error, IndexError) and "index out of range in self" in first:
        todo = ("If the input is an index into an embedding, declare its limit: `ids: int64[batch, seq] < 30522`.",)
    return Finding("FW201", f"{type(error).__name__}: {first}, at {show(point)}", where=user_frame(frames), todo=todo)


def _corners(subject: Subject, answer: list[torch.Tensor]) -> tuple[list[Finding], list[torch.Tensor]]:
    """PyTorch at the lowest corner and at a second example, with its answer there; the evidence goes to the highest.

    `answer` is what it said at the point that was run before; that is not run again.
    """
    low, other = {d.name: d.sizes[0] for d in subject.domain.dims}, other_example(subject)
    known = affordable_point(subject)
    points = [point for point in (low, other) if point != known]
    for point in points if low != other else points[:1]:
        try:
            answer = run_eager(subject, subject.make(point, 2, "normal"))
        except UserError as error:
            return [error.finding], []
        except Exception as error:
            answer = []
            if subject.domain.declared:
                return [_refusal(subject, error, point)], []
    return [], answer


def _random(
    subject: Subject, tensors: list[torch.Tensor], first: list[torch.Tensor], state: ModelState
) -> tuple[list[Finding], list[torch.Tensor]]:
    """Runs from several random states must agree to the bit; the answer they agree on.

    A model may settle something on its first run: where the second differs, it is the third that counts. `state` is the
    model's before the first run. What the runs changed in it is undone, unless the model settled it.
    """
    watch = RunWatch(state)
    answers = [first]
    for seed in (12, 11):
        answers.append(_run_from(subject, tensors, seed, watch))
        index = _parting(*answers[-2:])
        if index is None:
            break
    settled = len(answers) == 3 and index is None
    changed = state.find_changes(containers=index is not None)
    if changed and index is None:
        index = _answer_by_history(subject, tensors, answers[-1])
    elif changed and _is_random(subject, tensors, state, watch):
        changed = []
    if changed and (not settled or index is not None):
        state.restore()
    if index is None:
        return [], answers[-1]
    return [_state_finding(changed, watch, index) if changed else _random_finding(watch, index)], answers[-1]


def _run_from(subject: Subject, tensors: list[torch.Tensor], seed: int, watch: RunWatch) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    with watch.run(subject.model):
        return run_eager(subject, tensors)


def _answer_by_history(subject: Subject, tensors: list[torch.Tensor], answer: list[torch.Tensor]) -> int | None:
    """The first output that differs once other inputs were seen in between; for a model that changes its state."""
    try:
        run_eager(subject, subject.make(affordable_point(subject), 4, "normal"))
        return _parting(answer, run_eager(subject, tensors))
    except Exception:
        return None  # PyTorch refuses the values, which is reported elsewhere


def _by_history(
    subject: Subject, tensors: list[torch.Tensor], answer: list[torch.Tensor], state: ModelState
) -> list[Finding]:
    """Whether the runs on other inputs changed the model's state and, with it, the answer to the first ones.

    An example of zeros may leave a state as it is that every other input changes.
    """
    changed = state.find_changes(containers=True)
    if not changed:
        return []
    watch = RunWatch(state)
    index = _parting(answer, _run_from(subject, tensors, 11, watch))
    state.restore()
    return [] if index is None else [_state_finding(changed, watch, index)]


def _is_random(subject: Subject, tensors: list[torch.Tensor], state: ModelState, watch: RunWatch) -> bool:
    """Whether two random states give two answers from one and the same state of the model."""
    answers = []
    for seed in (12, 11):
        if not state.restore():
            return bool(watch.draws)  # a parameter was changed, of which there is no copy
        torch.manual_seed(seed)
        answers.append(run_eager(subject, tensors))
    return _parting(*answers) is not None


def _random_finding(watch: RunWatch, index: int) -> Finding:
    where = watch.draws[0] if watch.draws else None
    line = f", drawn at {where}" if where else ""
    return Finding("FW203", f"output {index} differs between two runs on the same inputs{line}", where=where)


def _state_finding(changed: list[str], watch: RunWatch, index: int) -> Finding:
    """Names what the model's code writes itself first."""
    ranked = sorted(changed, key=lambda name: name not in watch.writes)
    where = watch.writes.get(ranked[0])
    shown = ", ".join(ranked[:3]) + (f" and {len(ranked) - 3} more" if len(ranked) > 3 else "")
    line = f", written at {where}" if where else ""
    seen = f"{shown} changes in forward{line}; output {index} differs between two runs on the same inputs"
    return Finding("FW219", seen, where=where, data={"state": ranked})


def _parting(one: list[torch.Tensor], other: list[torch.Tensor]) -> int | None:
    """The first output that is not the same in both."""
    for index, (a, b) in enumerate(zip(one, other, strict=True)):
        if a.shape != b.shape or not torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)):
            return index
    return None


def _without_effect(subject: Subject, tensors: list[torch.Tensor], answer: list[torch.Tensor]) -> list[Finding]:
    """Replace each input by another legal one at two points; one that never changes any output has no effect.

    An input that could not be replaced, because its only legal values are those it has, is not reported.
    """
    names = list(subject.input_names)
    replaced: set[str] = set()
    known = affordable_point(subject)
    for point in (known, other_example(subject)):
        if not names:
            break
        base, before = tensors, answer
        if point != known:
            base = subject.make(point, 3, "normal")
            try:
                before = run_eager(subject, base)
            except Exception:
                return []  # PyTorch refuses the point; the evidence reports that
        for seed in (4, 5):
            other = subject.make(point, seed, "normal")
            kept = [subject.input_names.index(name) for name in names]
            replaced.update(subject.input_names[i] for i in kept if not torch.equal(base[i], other[i]))
            names = [subject.input_names[i] for i in kept if not _changes(subject, base, other, i, before)]
    return [Finding("FW204", f"{name!r}", data={"input": name}) for name in names if name in replaced]


def _changes(
    subject: Subject, base: list[torch.Tensor], other: list[torch.Tensor], index: int, before: list[torch.Tensor]
) -> bool:
    mixed = [*base[:index], other[index], *base[index + 1 :]]
    try:
        after = run_eager(subject, mixed)
    except Exception:
        return True  # it matters enough to be refused in this company
    return _parting(before, after) is not None
