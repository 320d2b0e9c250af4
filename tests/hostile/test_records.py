"""A record is believed only where every field of it holds, and only for the bytes that it is about."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fairway.diagnostics import Finding, Where
from fairway.record.files import hash_file
from fairway.record.reader import LARGEST_RECORD_BYTES, compare_with_record, parse_record, parse_short, read_record
from fairway.record.schema_evidence import EvidenceRecord, SampleRecord
from fairway.record.writer import describe_finding, format_record

from .watch import opened, refusal


@pytest.fixture
def record(tmp_path: Path) -> dict[str, Any]:
    """A good one, of the two files beside it."""
    (tmp_path / "m.onnx").write_bytes(b"model")
    (tmp_path / "m.onnx.data").write_bytes(b"weights")
    domain = {"batch": {"low": 1, "high": 16, "multiple": 1, "declared": True}}
    return {
        "format": 2,
        "subject": {"name": "Net", "sha256": "a" * 64, "domain": domain},
        "versions": {"torch": "2.13.0"},
        "verdict": "verified",
        "route": "trace",
        "remedies": [{"name": "mul_scalar", "note": "1 place"}],
        "evidence": {"level": "quick", "tested": [{}, {}]},
        "file": {
            "name": "m.onnx",
            "sha256": hash_file(tmp_path / "m.onnx"),
            "data": {"name": "m.onnx.data", "sha256": hash_file(tmp_path / "m.onnx.data")},
        },
    }


def write(folder: Path, record: Any) -> Path:
    path = folder / "m.fairway.json"
    path.write_bytes(record if isinstance(record, bytes) else json.dumps(record).encode())
    return path


def test_a_record_is_read_back(tmp_path: Path, record: dict[str, Any]) -> None:
    write(tmp_path, record)
    stored, finding = compare_with_record(tmp_path / "m.onnx")
    assert stored is not None
    assert finding is None
    assert str(stored.short) == "verified for batch 1..16; 2 samples, level quick"
    assert (stored.short.remedies, stored.route) == (("mul_scalar",), "trace")


@pytest.mark.parametrize("name", ["m.onnx", "m.onnx.data"])
def test_a_record_of_other_bytes_is_told_apart_from_a_broken_one(
    tmp_path: Path, record: dict[str, Any], name: str
) -> None:
    write(tmp_path, record)
    (tmp_path / name).write_bytes(b"changed")
    stored, finding = compare_with_record(tmp_path / "m.onnx")
    assert stored is not None
    assert finding is not None
    what = "file" if name == "m.onnx" else "data"
    seen = f"{name} is not the {what} that m.fairway.json is about: its sha256 differs"
    assert (finding.code, finding.severity, finding.seen) == ("FW116", "warning", seen)


def test_missing_data_is_not_the_data_that_was_recorded(tmp_path: Path, record: dict[str, Any]) -> None:
    write(tmp_path, record)
    (tmp_path / "m.onnx.data").unlink()
    finding = compare_with_record(tmp_path / "m.onnx")[1]
    assert finding is not None
    assert finding.code == "FW116"


def test_no_record_is_nothing_to_speak_of(tmp_path: Path) -> None:
    assert compare_with_record(tmp_path / "m.onnx") == (None, None)


VERDICTS = "'verified', 'unproven', 'wrong', 'failed' or 'quantized'"
BROKEN: list[tuple[str, Any, str]] = [
    ("verdict", "perfect", f"verdict: expected {VERDICTS}, got 'perfect'"),
    ("verdict", ["verified"], f"verdict: expected {VERDICTS}, got a list"),
    ("verdict", "quantized", "the verdict quantized needs quantized.said"),
    ("format", 1, "format: expected 2, got 1"),
    ("format", True, "format: expected 2, got True"),
    ("format", 2.0, "format: expected 2, got 2.0"),
    ("remedies", {}, "remedies: expected a list, got an object"),
    ("remedies", [3], "remedies.0: expected an object, got 3"),
    ("remedies", [{"name": "\x1b[2J"}], r"remedies.0.name: expected printable characters, got '\x1b[2J'"),
    ("versions", {"torch": 2}, "versions.torch: expected a text, got 2"),
    ("subject", None, "subject: expected an object, got None"),
    (
        "subject",
        {"sha256": "a" * 64, "domain": {"n": {"low": 1, "high": 2**70, "multiple": 1}}},
        f"subject.domain.n.high: expected less than {2**63}, got {2**70}",
    ),
    (
        "subject",
        {"sha256": "A" * 64, "domain": {}},
        f"subject.sha256: expected 64 hexadecimal digits, got '{'A' * 59}",
    ),
    ("evidence", [], "evidence: expected an object, got a list"),
    ("evidence", {"tested": 3}, "evidence.tested: expected a list, got 3"),
    ("evidence", {"tested": [{"right": "yes"}]}, "evidence.tested.0.right: expected true or false, got 'yes'"),
    (
        "file",
        {"name": "../m.onnx", "sha256": "a" * 64},
        "file.name: expected a file name without a folder, got '../m.onnx'",
    ),
    ("file", {"name": "m.onnx", "sha256": 3}, "file.sha256: expected a text, got 3"),
    (
        "file",
        {"name": "m.onnx", "sha256": "a" * 64, "linked": [{"name": "../w", "blake3": "a" * 64}]},
        "file.linked.0.name: expected a path below the model's folder, got '../w'",
    ),
    ("opset", True, "opset: expected a whole number, got True"),
]


@pytest.mark.parametrize(("key", "value", "seen"), BROKEN)
def test_a_field_that_cannot_be_is_refused(
    tmp_path: Path, record: dict[str, Any], key: str, value: Any, seen: str
) -> None:
    path = write(tmp_path, {**record, key: value})
    assert refusal(lambda: read_record(path)) == ("FW115", f"m.fairway.json: {seen}")


@pytest.mark.parametrize("key", ["format", "verdict", "remedies", "versions", "subject", "file"])
def test_a_field_that_is_missing_is_refused(tmp_path: Path, record: dict[str, Any], key: str) -> None:
    del record[key]
    path = write(tmp_path, record)
    assert refusal(lambda: read_record(path))[0] == "FW115"


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        (b"", "it is not JSON: Expecting value, line 1"),
        (b"[" * 10**6, "it is nested too deeply"),
        (b'{"a": 1, "a": 2}', "an object has the same key twice"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b"\xff\xfe{}", "it is not UTF-8"),
        (b"3", "expected an object, got 3"),
        (b"null", "expected an object, got None"),
        (
            b"{" + b",".join(b'"%d": 1' % n for n in range(10_001)) + b"}",
            "expected at most 10000 keys in an object, got 10001",
        ),
    ],
)
def test_what_is_no_record_is_refused_in_words(tmp_path: Path, content: bytes, seen: str) -> None:
    path = write(tmp_path, content)
    assert refusal(lambda: read_record(path)) == ("FW115", f"m.fairway.json: {seen}")


def test_a_number_of_a_million_digits_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, b'{"format": ' + b"9" * 10**6 + b"}")
    assert refusal(lambda: read_record(path))[0] == "FW115"


def test_a_large_record_a_pipe_and_a_link_are_not_read(tmp_path: Path, record: dict[str, Any]) -> None:
    path = tmp_path / "m.fairway.json"
    os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 1 << 40)
    with opened() as files:
        seen = f"m.fairway.json: expected at most {LARGEST_RECORD_BYTES} bytes, got {1 << 40}"
        assert refusal(lambda: read_record(path)) == ("FW115", seen)
        path.unlink()
        os.mkfifo(path)
        assert refusal(lambda: read_record(path)) == ("FW115", "m.fairway.json: it is not a regular file")
        path.unlink()
        path.symlink_to("/etc/hostname")
        assert refusal(lambda: read_record(path))[0] == "FW115"
    assert files == []


def test_the_short_record_inside_a_file_is_held_to_the_same(record: dict[str, Any]) -> None:
    short = {
        "format": 2,
        "verdict": "verified",
        "route": "trace",
        "remedies": [],
        "domain": {},
        "subject_sha256": "b" * 64,
        "level": "deep",
        "points": 3,
        "versions": {},
    }
    assert str(parse_short(json.dumps(short))) == "verified for one fixed shape; 3 samples, level deep"
    for key in short:
        if key not in ("route", "level"):
            with pytest.raises(ValueError, match=key):
                parse_short(json.dumps({**short, key: -1.5}))
    with pytest.raises(ValueError, match="it is not UTF-8"):
        parse_short("\ud800")


def test_parsing_needs_no_file(record: dict[str, Any]) -> None:
    assert parse_record(json.dumps(record).encode()).verdict == "verified"


def test_unknown_fields_of_a_record_are_kept(record: dict[str, Any]) -> None:
    newer = {**record, "remark": {"by": "a newer version"}}
    assert json.loads(format_record(parse_record(json.dumps(newer).encode()))) == newer


def test_paths_that_are_not_utf8_and_infinite_numbers_are_read_back(record: dict[str, Any]) -> None:
    read = parse_record(json.dumps(record).encode())
    where = Where(file="caf\udce9.py", line=1)
    finding = describe_finding(Finding("FW206", "seen", where, data={"ratio": float("inf"), "path": Path("x")}))
    sample = SampleRecord(right=False, ratio=float("inf"))
    evidence = EvidenceRecord(level="quick", tested=(sample,))
    written = format_record(read.model_copy(update={"findings": (finding,), "evidence": evidence}))
    again = parse_record(written.encode())
    assert again.evidence is not None
    assert again.evidence.tested[0].ratio is None
    assert again.findings[0].data == {"ratio": None, "path": "x"}
    assert again.findings[0].where is not None
    assert again.findings[0].where.file == "caf?.py"
