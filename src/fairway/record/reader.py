"""Read records. Anyone may write a file beside a model or metadata into it, so every field is checked by the schema."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from fairway.diagnostics import Code, Finding
from fairway.diagnostics.errors import UserError, complain
from fairway.model.cpu import check_cpu, detect_cpu
from fairway.model.memory_check import is_regular_file
from fairway.record.files import get_record_path, hash_checkpoint, hash_file
from fairway.record.schema import RECORD_FORMAT, UNKNOWN_SUBJECT, GenerationRecord, Record, RefusalReport, ShortRecord
from fairway.record.schema_parts import MAX_NAME_CHARACTERS, SubjectRecord

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

LARGEST_RECORD_BYTES = 64 * 2**20
"""A record of a thousand samples has about one megabyte."""

MAX_OBJECT_KEYS = 10_000
"""One object of a record has a few dozen keys. A larger one only costs time and memory."""
MAX_SHOWN_CHARACTERS = 60
MAX_SHOWN_KEY_CHARACTERS = 40

T = TypeVar("T")
Model = TypeVar("Model", bound=BaseModel)

EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "an object",
    "float_type": "a number",
    "int_type": "a whole number",
    "model_attributes_type": "an object",
    "model_type": "an object",
    "string_pattern_mismatch": "64 hexadecimal digits",
    "string_too_long": f"at most {MAX_NAME_CHARACTERS} characters",
    "string_type": "a text",
    "tuple_type": "a list",
}
"""By the error of pydantic."""


def read_record(path: Path) -> Record:
    """Read the record of an ONNX file. Raise FW115 if there is none in `path`."""
    return _read(path, parse_record)


def read_overview(path: Path) -> Record:
    """Read a record that may be about no file, such as that of a failed export or of a generator's folder."""
    return _read(path, _parse_overview)


def read_object(path: Path) -> dict[str, object]:
    """Read a JSON object that is not a record. Nothing in it is checked."""
    return _read(path, lambda text: _check_object(_load(text)))


def _read(path: Path, parse: Callable[[bytes], T]) -> T:
    if not is_regular_file(path):
        _refuse(path, "it is not a regular file" if os.path.lexists(path) else "it does not exist")
    if path.resolve().parent != path.parent.resolve():
        _refuse(path, "it is a link to another folder")
    size = path.stat().st_size
    if size > LARGEST_RECORD_BYTES:
        _refuse(path, f"expected at most {LARGEST_RECORD_BYTES} bytes, got {size}")
    try:
        return parse(path.read_bytes())
    except (ValueError, OSError) as error:
        _refuse(path, str(error) or type(error).__name__)


def parse_record(text: bytes) -> Record:
    """Return the record of an ONNX file. Raise ValueError, in words for the user, if the bytes hold none."""
    record = _parse(text, Record)
    if record.file is None:
        raise ValueError("file is missing")
    return record


def parse_printed(text: bytes) -> Record:
    """Return the record that a command printed with `--json`, which may be about no file.

    A command that ends before there is a record prints its findings alone. They become a record of an unknown subject.
    """
    if "format" in _check_object(_load(text)):
        return _parse(text, Record)
    report = _validate(text, RefusalReport)
    subject = SubjectRecord(sha256=UNKNOWN_SUBJECT, domain={})
    return Record(
        format=RECORD_FORMAT,
        subject=subject,
        versions={},
        verdict=report.verdict,
        remedies=(),
        findings=report.findings,
    )


def parse_short(text: str) -> ShortRecord:
    """Return the short record in a file's metadata. Raise ValueError if the text holds none."""
    return _parse(text.encode(errors="surrogatepass"), ShortRecord)


def _parse_overview(text: bytes) -> Record:
    if "graphs" in _check_object(_load(text)):
        return _parse(text, GenerationRecord).overview
    return _parse(text, Record)


def _parse(text: bytes, schema: type[Model]) -> Model:
    data = _check_object(_load(text))
    if type(data.get("format")) is not int or data.get("format") != RECORD_FORMAT:
        raise ValueError(f"format: expected {RECORD_FORMAT}, got {_show(data.get('format'))}")
    return _validate(text, schema)


def _validate(text: bytes, schema: type[Model]) -> Model:
    try:
        return schema.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise ValueError(_describe(error.errors(include_url=False)[0])) from None


def _describe(error: ErrorDetails) -> str:
    """Return what was expected and what was found, of the first field that does not fit."""
    place = ".".join(str(part)[:MAX_SHOWN_KEY_CHARACTERS] for part in error["loc"]) or "the record"
    if error["type"] == "missing":
        return f"{place} is missing"
    if error["type"] == "json_invalid":
        return "it is nested too deeply" if "recursion" in error["msg"] else f"it is not JSON: {error['msg']}"
    reason = str(error.get("ctx", {}).get("error", ""))
    if not error["loc"]:
        return reason or error["msg"]
    expected = EXPECTED.get(error["type"]) or reason.removeprefix("expected ")
    if not expected:
        expected = error["msg"].removeprefix("Input should be ").removeprefix("a valid ")
    return f"{place}: expected {expected}, got {_show(error['input'])}"


def _load(text: bytes) -> object:
    def build_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
        built = dict(pairs)
        if len(pairs) > MAX_OBJECT_KEYS:
            raise ValueError(f"expected at most {MAX_OBJECT_KEYS} keys in an object, got {len(pairs)}")
        if len(built) != len(pairs):
            raise ValueError("an object has the same key twice")
        return built

    def refuse_constant(word: str) -> NoReturn:
        raise ValueError(f"{word} is not JSON")

    try:
        data: object = json.loads(text.decode(), object_pairs_hook=build_object, parse_constant=refuse_constant)
        return data
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg}, line {error.lineno}") from None


def _check_object(data: object) -> dict[str, object]:
    if not isinstance(data, dict):
        raise ValueError(f"expected an object, got {_show(data)}")
    return data


def _show(value: object) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and abs(value) >= 10**50:
        return "a giant number"
    return ascii(value)[:MAX_SHOWN_CHARACTERS]


def _refuse(path: Path, why: str) -> NoReturn:
    raise complain(Code.RECORD_UNREADABLE, f"{path.name}: {why}")


def compare_with_this_cpu(record: Record) -> Finding | None:
    """Return a warning if the record is about a quantized file that was made for another kind of CPU, else None."""
    made = record.quantized
    if made is None or made.cpu is None:
        return None
    reduce_range = made.arithmetic is not None and made.arithmetic.reduce_range
    return check_cpu(made.cpu, reduce_range, detect_cpu())


def compare_with_record(model: Path) -> tuple[Record | None, Finding | None]:
    """Return the record beside a model file, and a finding if it is unreadable or about other bytes than these.

    The file is known by its bytes and not by its name, because a file and its record may be renamed together. A data
    file is known by the name in the model, which cannot be changed by renaming.
    """
    beside = get_record_path(model)
    if not os.path.lexists(beside):
        return None, None
    try:
        record = read_record(beside)
    except UserError as error:
        return None, error.finding
    own, *others = record.hashes.items()
    if hash_file(model) != own[1]:
        return record, Finding(
            Code.RECORD_OF_ANOTHER_FILE, f"{model.name} is not the file that {beside.name} is about: its sha256 differs"
        )
    for name, digest in others:
        data = model.with_name(name)
        if not is_regular_file(data) or hash_file(data) != digest:
            return record, Finding(
                Code.RECORD_OF_ANOTHER_FILE, f"{name} is not the data that {beside.name} is about: its sha256 differs"
            )
    for name, digest in record.linked_hashes.items():
        if not is_regular_file(model.parent / name):
            return record, Finding(Code.LINKED_CHECKPOINT_CHANGED, f"{name}, which {model.name} links to, is not there")
        if hash_checkpoint(model.parent / name) != digest:
            return record, Finding(
                Code.LINKED_CHECKPOINT_CHANGED, f"{name}, which {model.name} links to: its hash differs"
            )
    return record, None
