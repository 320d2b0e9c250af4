"""Reads records back, and believes nothing in them that was not checked: anybody may write beside or into a file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from fairway.diagnostics import Finding
from fairway.diagnostics.errors import UserError, complain
from fairway.model.memory_check import is_regular
from fairway.record.files import FORMAT, hash_checkpoint, hash_file, record_path

LARGEST = 64 * 2**20
"""Bytes. A record of a thousand samples has about one megabyte."""

T = TypeVar("T")

VERDICTS = ("verified", "unproven", "wrong", "failed", "quantised")


@dataclass(frozen=True)
class Proven:
    """What a record says was proven, of which model, by what."""

    verdict: str
    route: str | None
    remedies: tuple[str, ...]
    domain: Mapping[str, Mapping[str, int]]
    subject_sha256: str
    level: str | None
    points: int
    versions: Mapping[str, str]
    quantised: str | None = None
    """What quantising cost and gained; such a file was judged by quality, not by parity with PyTorch."""

    def __str__(self) -> str:
        if self.quantised is not None:
            return f"{self.verdict}: {self.quantised}; not held to PyTorch's numbers"
        dims = ", ".join(f"{name} {d['low']}..{d['high']}" for name, d in self.domain.items()) or "one fixed shape"
        return f"{self.verdict} for {dims}; {self.points} samples, level {self.level or 'none'}"


@dataclass(frozen=True)
class StoredRecord:
    """A record that was read back: what it says, and the bytes it says it of."""

    proven: Proven
    files: Mapping[str, str]
    """sha256 by name: the model file, and its data file if it has one."""
    whole: Mapping[str, Any]
    linked: Mapping[str, str] = field(default_factory=dict)
    """BLAKE3 of the checkpoints that the model's weights lie in, by their paths from its folder."""


def read_record(path: Path) -> StoredRecord:
    """The record in `path`, with every field that is used checked; FW115 where it is none."""
    return _read(path, parse_record)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`, of which nothing is known yet; FW115 where it is none."""
    return _read(path, lambda text: _object(_load(text), "it"))


def _read(path: Path, parse: Callable[[bytes], T]) -> T:
    if not is_regular(path):
        _refuse(path, "is no plain file" if os.path.lexists(path) else "does not exist")
    if path.resolve().parent != path.parent.resolve():
        _refuse(path, "is a link to another folder")
    if path.stat().st_size > LARGEST:
        _refuse(path, f"has {path.stat().st_size} bytes; at most {LARGEST} are read")
    try:
        return parse(path.read_bytes())
    except (ValueError, OSError) as error:
        _refuse(path, str(error) or type(error).__name__)


def parse_record(text: bytes) -> StoredRecord:
    """The record that the bytes hold; ValueError, in words for the user, where they hold none."""
    whole = _object(_load(text), "the record")
    file = _object(whole.get("file"), "file")
    files = {_file_name(file): _hash(file.get("sha256"), "file.sha256")}
    if file.get("data") is not None:
        data = _object(file["data"], "file.data")
        files[_file_name(data)] = _hash(data.get("sha256"), "file.data.sha256")
    linked = {}
    if file.get("linked") is not None:
        if not isinstance(file["linked"], list):
            raise ValueError("file.linked is not a list")
        for one in file["linked"]:
            entry = _object(one, "file.linked")
            linked[_link_name(entry)] = _hash(entry.get("blake3"), "file.linked.blake3")
    subject = _object(whole.get("subject"), "subject")
    evidence = {} if whole.get("evidence") is None else _object(whole["evidence"], "evidence")
    tested = evidence.get("tested", [])
    if not isinstance(tested, list):
        raise ValueError("evidence.tested is not a list")
    remedies = whole.get("remedies")
    if not isinstance(remedies, list):
        raise ValueError("remedies is not a list")
    short = {
        **whole,
        "remedies": [_object(one, "a remedy").get("name") for one in remedies],
        "domain": subject.get("domain"),
        "subject_sha256": subject.get("sha256"),
        "level": evidence.get("level"),
        "points": len(tested),
    }
    return StoredRecord(_proven(short), files, whole, linked)


def parse_short(text: str) -> Proven:
    """What a file says of itself in its metadata; ValueError where that is no short record."""
    return _proven(_object(_load(text.encode(errors="surrogatepass")), "the record"))


def _proven(short: Mapping[str, Any]) -> Proven:
    if short.get("format") != FORMAT or isinstance(short.get("format"), bool):
        raise ValueError(f"its format is {_shown(short.get('format'))}, this version reads {FORMAT}")
    if short.get("verdict") not in VERDICTS:
        raise ValueError(f"its verdict is {_shown(short.get('verdict'))}")
    remedies = short.get("remedies")
    if not isinstance(remedies, list):
        raise ValueError("remedies is not a list")
    points = short.get("points")
    if not isinstance(points, int) or isinstance(points, bool) or points < 0:
        raise ValueError(f"points is {_shown(points)}")
    versions = _object(short.get("versions"), "versions")
    return Proven(
        verdict=str(short["verdict"]),
        route=None if short.get("route") is None else _text(short["route"], "route"),
        remedies=tuple(_text(name, "a remedy's name") for name in remedies),
        domain={_text(k, "a dim"): _dim(v, k) for k, v in _object(short.get("domain"), "domain").items()},
        subject_sha256=_hash(short.get("subject_sha256"), "subject.sha256"),
        level=None if short.get("level") is None else _text(short["level"], "level"),
        points=points,
        versions={_text(k, "a package"): _text(v, "a version") for k, v in versions.items()},
        quantised=_quantised(short),
    )


def _quantised(short: Mapping[str, Any]) -> str | None:
    """A verdict of `quantised` says what that means, or the record is none."""
    if short["verdict"] != "quantised":
        return None
    return _text(_object(short.get("quantised"), "quantised").get("said"), "quantised.said")


def _dim(value: Any, name: str) -> dict[str, int]:
    dim = _object(value, f"domain.{name[:40]}")
    found = {key: dim.get(key) for key in ("low", "high", "multiple")}
    for key, number in found.items():
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**63:
            raise ValueError(f"domain.{name[:40]}.{key} is {_shown(number)}")
    return {key: int(number or 0) for key, number in found.items()}


def _load(text: bytes) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            raise ValueError("a key stands twice in one object")
        return made

    def no_number(word: str) -> NoReturn:
        raise ValueError(f"{word} is no number of JSON's")

    try:
        return json.loads(text.decode(), object_pairs_hook=once, parse_constant=no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg}, line {error.lineno}") from None


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is {_shown(value)}, not an object")
    return value


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or len(value) > 200 or not value.isprintable():
        raise ValueError(f"{what} is {_shown(value)}")
    return value


def _file_name(entry: Mapping[str, Any]) -> str:
    name = _text(entry.get("name"), "a file's name")
    if not name or "/" in name or name in (".", ".."):
        raise ValueError(f"a file's name is {_shown(name)}")
    return name


def _link_name(entry: Mapping[str, Any]) -> str:
    """A file in the model's folder or below it."""
    name = _text(entry.get("name"), "a linked file's name")
    parts = name.split("/")
    if not all(parts) or {".", ".."} & set(parts):
        raise ValueError(f"a linked file's name is {_shown(name)}")
    return name


def _hash(value: Any, what: str) -> str:
    if not isinstance(value, str) or len(value) != 64 or set(value) - set("0123456789abcdef"):
        raise ValueError(f"{what} is {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return f"of type {'object' if isinstance(value, dict) else 'list'}"
    return ascii(value)[:60] if not isinstance(value, int) or abs(value) < 10**50 else "a giant number"


def _refuse(path: Path, why: str) -> NoReturn:
    raise complain("FW115", f"{path.name}: {why}")


def compare_with_record(model: Path) -> tuple[StoredRecord | None, Finding | None]:
    """The record beside a model file, and what is to be said of it: unreadable, or about other bytes than these.

    The file's bytes count, not its name: a file and its record may be renamed together. A data file counts by the name
    that the model asks for it by, which renaming would break.
    """
    beside = record_path(model)
    if not os.path.lexists(beside):
        return None, None
    try:
        stored = read_record(beside)
    except UserError as error:
        return None, error.finding
    own, *others = stored.files.items()
    if hash_file(model) != own[1]:
        return stored, Finding("FW116", f"{model.name} is not the file that {beside.name} is about: its sha256 differs")
    for name, digest in others:
        data = model.with_name(name)
        if not is_regular(data) or hash_file(data) != digest:
            return stored, Finding("FW116", f"{name} is not the data that {beside.name} is about: its sha256 differs")
    for name, digest in stored.linked.items():
        if not is_regular(model.parent / name):
            return stored, Finding("FW119", f"{name}, which {model.name} links to, is not there")
        if hash_checkpoint(model.parent / name) != digest:
            return stored, Finding("FW119", f"{name}, which {model.name} links to: its hash differs")
    return stored, None
