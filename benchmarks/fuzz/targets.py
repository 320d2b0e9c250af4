"""The targets of the attack: for each its seeds, how they are changed, and one execution.

An execution takes bytes and answers with the code of the finding it ended in, or "passed". Whatever else it raises is a
crash. Targets that touch files do so in a folder in memory, and state what must hold afterwards on their own.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutate import Mutate, bytewise, jsonwise, protobufwise


@dataclass(frozen=True)
class Target:
    """One way in. `modules` are those whose lines count as covered or not."""

    modules: tuple[str, ...]
    seeds: list[bytes]
    mutate: Mutate
    run: Callable[[bytes], None]


def spec(folder: Path) -> Target:
    """Spec lines and dims, up to a subject: what a command line can say."""
    import torch

    from fairway.model.spec import parse_dim
    from fairway.model.subject import build_subject

    class Net(torch.nn.Module):
        def forward(self, **inputs: torch.Tensor) -> None: ...

    class Two(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> None: ...

    two = (torch.zeros(2, 3), torch.zeros(3, 4))

    def run(data: bytes) -> None:
        lines = data.decode(errors="replace").split("\n")
        bounds: dict[str, tuple[int, int]] = {}
        multiples: dict[str, int] = {}
        inputs = []
        for line in lines:
            if ":" in line:
                inputs.append(line)
            elif line.startswith("@"):
                build_subject(Two(), two, dims={"x": line[1:], "y": {0: line[1:9]}})
            else:
                name, pair, multiple = parse_dim(line)
                bounds |= {name: pair} if pair else {}
                multiples |= {name: multiple} if multiple else {}
        subject = build_subject(Net(), inputs or "x: float32[1]", bounds=bounds, multiples=multiples)
        str(subject.spec), str(subject.domain), [s.sizes(subject.example) for s in subject.spec]

    seeds = [
        b"acc: float32[batch, time, 3]\ntime=10..4000\nbatch=1..8",
        b"ids: int64[batch, seq] < 30522\nmask: bool[batch, seq] = padding-left\nseq%8",
        b"n: int32[batch] = lengths(2*time+1)\nx: bfloat16[batch, 2*time+1, a//b-c]\ntime=0..7%2",
        b"x: float16[] in -1.5..1e3",
        b"past.0.key: complex64[b, h, past+seq, (d)*2]\npast=0..3",
        b"x: uint8[1000000000, 1000000000]",
        b"x: int8[n]\nn=1..1000000000000000000",
        b"@b 3",
        b"@[b, 2*n+1]",
    ]
    words = (
        b"[",
        b"]",
        b"(",
        b")",
        b",",
        b":",
        b"..",
        b"%",
        b"//",
        b"*",
        b"+",
        b"-",
        b"=",
        b"<",
        b" in ",
        b"\n",
        b"\n@",
        b"float32",
        b"int64",
        b"bool",
        b"lengths(",
        b"padding",
        b"batch",
        b"x.0.",
        b"None",
        b"lambda",
        b"1e999",
        b"0x1",
        b"1_0",
        b"9" * 400,
        b"(" * 90,
        b"a+" * 90,
        "é".encode(),
        "٣".encode(),
        b"\0",
        b"\xff",
        b"x: float32[n]",
    )
    modules = ("fairway.model.spec", "fairway.model.dims", "fairway.model.declare")
    return Target(modules, seeds, bytewise(words), run)


def record(folder: Path) -> Target:
    """The record beside a file, and the short one inside it."""
    import json

    from fairway.diagnostics.errors import complain
    from fairway.record.files import hash_file
    from fairway.record.reader import compare_with_record, parse_short

    model, beside = folder / "m.onnx", folder / "m.fairway.json"
    model.write_bytes(b"model")
    (folder / "m.onnx.data").write_bytes(b"data")
    digest, data_digest = hash_file(model), hash_file(folder / "m.onnx.data")

    def run(data: bytes) -> None:
        beside.write_bytes(data)
        stored, finding = compare_with_record(model)
        if finding is None:
            assert stored is not None
            claims = json.loads(data)
            # The independent check: a record that passes without a finding must be about these bytes.
            assert claims["file"]["sha256"] == digest
            assert claims["file"].get("data") is None or claims["file"]["data"]["sha256"] == data_digest
            str(stored.short)
        with suppress(ValueError):
            str(parse_short(data.decode(errors="replace")))
        if finding is not None:
            raise complain(finding.code, finding.seen)

    domain = {"batch": {"low": 1, "high": 16, "multiple": 1, "declared": True}}
    whole = {
        "format": 2,
        "subject": {"name": "Net", "sha256": "a" * 64, "domain": domain},
        "versions": {"torch": "2.13"},
        "verdict": "verified",
        "route": "trace",
        "remedies": [{"name": "mul_scalar", "note": ""}],
        "findings": [],
        "evidence": {"level": "quick", "tested": [{"point": {"batch": 2}}] * 2},
        "file": {"name": "m.onnx", "sha256": digest, "data": {"name": "m.onnx.data", "sha256": data_digest}},
    }
    short = {
        "format": 2,
        "verdict": "unproven",
        "route": None,
        "remedies": [],
        "domain": domain,
        "subject_sha256": "b" * 64,
        "level": None,
        "points": 3,
        "versions": {},
    }
    seeds = [json.dumps(one).encode() for one in (whole, {**whole, "evidence": None}, short)]
    seeds += [b"[" * 3000, b"{}", b"", b'{"format":2,"format":2}', digest.encode()]
    words = (b"{", b"}", b"[", b"]", b'"', b",", b":", b"NaN", b"1e999", b"9" * 5000, b'{"":' * 600, b"\\ud800")
    return Target(("fairway.record.reader",), seeds, jsonwise(words), run)


def onnx(folder: Path) -> Target:
    """The loader: structure, tensors, shapes that nodes make."""
    import torch
    from onnx_seeds import models

    from fairway.model.onnx_file import check_memory, check_signature, find_fixed_dims, open_header
    from fairway.model.subject import build_subject

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> None: ...

    subject = build_subject(Net(), "x: float32[n, 3]")
    path = folder / "m.onnx"

    def run(data: bytes) -> None:
        path.write_bytes(data)
        header = open_header(path)
        [str(v) for v in (*header.inputs, *header.outputs)]
        check_memory(header)
        check_signature(header, subject)
        find_fixed_dims(header, subject)

    words = (b"", b"\xff\xff\xff\xff\x7f", b"\xff" * 10, b"x", b"location", b"../x", b"\xc3\x28", b"ConstantOfShape")
    modules = ("fairway.model.onnx_file", "fairway.model.onnx_requirements")
    return Target(modules, models(), protobufwise(words), run)


def explain(folder: Path) -> Target:
    """A pasted log, now and then megabytes of it."""
    from log_seeds import BOMBS, LOGS, WORDS

    from fairway.cli.explain import render_answer
    from fairway.diagnostics.errors import complain
    from fairway.diagnostics.knowledge.answer import find_answers
    from fairway.diagnostics.log import decode, read_tail

    small = bytewise(WORDS, 8192)

    def mutate(data: bytes, rng: random.Random) -> bytes:
        if rng.random() < 2e-5:
            return (rng.choice(BOMBS) + small(data, rng)[:100]) * rng.choice((1000, 30_000))
        return small(data, rng)

    def run(data: bytes) -> None:
        answers = find_answers(decode(read_tail(io.BytesIO(data))))
        for answer in answers:
            assert "\x1b" not in render_answer(answer)
        codes = [answer.code for answer in answers if answer.code]
        if codes:
            raise complain(codes[-1], "known")

    modules = ("fairway.diagnostics.log", "fairway.diagnostics.signatures", "fairway.diagnostics.knowledge.answer")
    return Target(modules, LOGS, mutate, run)


def table() -> dict[str, Callable[[Path], Target]]:
    from file_targets import checkpoint, external, recipe

    found: dict[str, Any] = {
        "spec": spec,
        "record": record,
        "onnx": onnx,
        "external": external,
        "recipe": recipe,
        "explain": explain,
        "checkpoint": checkpoint,
    }
    return found
