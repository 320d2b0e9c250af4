"""The contest: what each judge says of one proven mutant.

Fairway is asked through `verify_subject`, its whole road, with two savings. What does not depend on the file is
remembered: PyTorch's answers, by the bytes of inputs and weights, and the first look at the model. And a wrong file's
smallest failing shape, which comes after the verdict, is not looked for. `run.py --unremembered 30` shows that the
verdicts do not depend on either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from graph import Know
from mutate import Mutant, write
from prove import Pool, Witness, open_session, prove
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from fairway.convert.export import make_settings, verify_subject
from fairway.convert.ladder import judge_file as judge_file_module
from fairway.diagnostics.errors import UserError
from fairway.judge import gather as gathering
from fairway.judge import judge as judging
from fairway.judge.judge import Judge, open_runtime
from fairway.judge.runtimes.eager import run_eager, to_array
from fairway.judge.samples import list_lattice_samples
from fairway.model.onnx_file import open_header
from fairway.model.subject import Subject
from fairway.workers.attempt import Limits, Workers

SECONDS, PATIENCE = 60.0, 600.0
"""What the prover may take for one mutant, and what Fairway may."""
ALLCLOSE = {"rtol": 1e-3, "atol": 1e-5}
TORCH_ABS, TORCH_REL = 5e-3, 1e-1
"""The thresholds of `torch.onnx.export(verify=True)`, torch 2.13, torch/onnx/_internal/exporter/_core.py."""


@contextmanager
def remembering() -> Iterator[dict[str, Any]]:
    """PyTorch and its float64 self answer a question that was asked before from memory; see above."""
    known: dict[bytes, tuple[Any, list[bool]]] = {}

    def remember(run: Callable[..., Any]) -> Callable[..., Any]:
        def asked(subject: Subject, tensors: Sequence[torch.Tensor]) -> Any:
            # The judge asks again under modes that note whether they had anything to do.
            modes: list[Any] = [mode for mode in _get_current_dispatch_mode_stack() if hasattr(mode, "used")]
            key = hashlib.blake2b(f"{run.__name__} {subject.name} {[type(mode) for mode in modes]}".encode())
            for tensor in (*tensors, *subject.model.parameters(), *subject.model.buffers()):
                plain = tensor.detach().contiguous()
                key.update(f"{plain.dtype}{tuple(plain.shape)}".encode())
                key.update(plain.flatten().view(torch.uint8).numpy().tobytes())
            digest = key.digest()
            before = [mode.used for mode in modes]
            if digest not in known:
                for mode in modes:
                    mode.used = False
                known[digest] = run(subject, tensors), [mode.used for mode in modes]
            answer, used = known[digest]
            for mode, earlier, now in zip(modes, before, used, strict=True):
                mode.used = earlier or now
            return answer

        return asked

    looks: dict[str, Any] = {}

    def look(subject: Subject, remedies: bool) -> Any:
        return looks.get(subject.name) or original(subject, remedies)

    original = judge_file_module.run_preflight
    with ExitStack() as stack:
        for name in ("run_eager", "run_truth"):
            stack.enter_context(patch.object(judging, name, remember(getattr(judging, name))))
        stack.enter_context(patch.object(gathering, "_shrink_failures", lambda judge, failures: None))
        stack.enter_context(patch.object(judge_file_module, "run_preflight", look))
        yield looks


def warm(subject: Subject, path: Path, looks: dict[str, Any]) -> None:
    """Asks PyTorch once, before the first fork, what the judge is going to ask about every file."""
    looks[subject.name] = judge_file_module.run_preflight(subject, True)
    names = [value.name for value in open_header(path).outputs]
    judge = Judge(subject, open_runtime(str(path)), names)
    for one in list_lattice_samples(subject, "standard"):
        judge.excuse(judge.take(one))


def fairway_says(subject: Subject, path: Path, level: str) -> str:
    """The verdict, or the code with which the file was refused before it was judged."""
    try:
        return verify_subject(subject, path, make_settings(level, (), None, True, Limits(PATIENCE, 0))).verdict
    except UserError as error:
        return error.finding.code


def torch_says(path: Path, ours: list[torch.Tensor], theirs: list[np.ndarray]) -> bool:
    """Return whether the steps 4 to 6 of torch's own `verify=True` let the file pass."""
    import onnx_ir as ir
    from onnxscript._framework_apis import torch_2_5 as apis
    from torch.onnx._internal.exporter._verification import VerificationInfo

    apis.check_model(ir.load(path))
    for own, their in zip(ours, theirs, strict=False):
        info = VerificationInfo.from_tensors("", own, torch.from_numpy(np.ascontiguousarray(their)))
        if info.max_abs_diff >= TORCH_ABS or info.max_rel_diff >= TORCH_REL:
            return False
    return True


def allclose_says(ours: list[torch.Tensor], theirs: list[np.ndarray]) -> bool:
    pairs = zip([to_array(t) for t in ours], theirs, strict=True)
    return all(a.shape == b.shape and np.allclose(a, b, equal_nan=True, **ALLCLOSE) for a, b in pairs)


def _passes(question: Callable[[], bool]) -> bool:
    try:
        return bool(question())
    except Exception:
        return False


def single_input(subject: Subject, path: Path) -> dict[str, str]:
    """Return the verdicts of the two single-input judges at the example."""
    tensors = subject.make(subject.example, 1, "normal")
    ours = run_eager(subject, tensors)

    def run() -> list[np.ndarray]:
        feeds = {name: to_array(t) for name, t in zip(subject.input_names, tensors, strict=True)}
        return list(open_session(path).run(None, feeds))

    judges = {"torch": lambda: torch_says(path, ours, run()), "allclose": lambda: allclose_says(ours, run())}
    return {name: "verified" if _passes(question) else "wrong" for name, question in judges.items()}


def try_mutant(
    mutant: Mutant, subject: Subject, source: Path, know: Know, pool: Pool, target: Path, levels: Sequence[str]
) -> dict[str, Any]:
    """One row: how the mutant was proven, and every judge's word. Unproven ones carry `dropped` instead."""
    row: dict[str, Any] = {"model": mutant.model, "kind": mutant.kind, "place": mutant.place}

    def work(tell: Any) -> tuple[Any, dict[str, str]]:
        write(mutant, source, know, target)
        proof = prove(target, pool)
        return proof, single_input(subject, target) if isinstance(proof, Witness) else {}

    with Workers(Limits(SECONDS)) as workers:
        outcome = workers.run(work)
    if outcome.status != "done":
        failure = outcome.failure.message if outcome.failure else ""
        return row | {"dropped": f"{outcome.status} {failure}"[:160].strip()}
    proof, said = outcome.value
    if not isinstance(proof, Witness):
        return row | {"dropped": "rounding" if proof is None else proof[:100]}
    return row | {"witness": asdict(proof), **said} | {level: fairway_says(subject, target, level) for level in levels}
