"""Writes docs/reference from the code: the commands, the findings, the remedies, the upstream bugs, the public names.

Run by `make docs`. tests/docs/test_reference.py asserts that the pages in the repository are what this writes.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
import textwrap
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

import fairway
import fairway.api
from fairway.cli.app import app
from fairway.convert.remedies.catalogue import BUILT_IN as CATALOGUE
from fairway.convert.remedies.contract import Remedy
from fairway.diagnostics.codes import CODES, CodeEntry, exit_status
from fairway.diagnostics.knowledge.entry import KnownBug, load_shipped_entries
from fairway.record.schema import RECORD_FORMAT, GenerationRecord, Record, ShortRecord
from fairway.record.schema_parts import RecordPart

REFERENCE = Path(__file__).with_name("reference")

NOTE = "<!-- Written by docs/generate.py. Change the code and run `make docs`. -->"

WHOSE = {
    "input": "your input",
    "model": "the model's code",
    "upstream": "an exporter or a library",
    "evidence": "the exported file",
    "limit": "a limit",
    "machine": "this machine",
    "fairway": "Fairway itself",
}

GROUPS = {
    "0": "Invalid input",
    "1": "Something could not be loaded",
    "2": "The model's own code",
    "3": "Exporters",
    "4": "What the evidence showed",
    "5": "Limits",
    "6": "This machine, and others",
    "7": "Quantizing",
    "8": "Publishing, running and serving",
    "9": "Fairway itself",
}

STAGES = {
    "source": "rewrites the user's function, once the rewrite is proven equal in eager PyTorch",
    "model": "changes the model while it is captured",
    "library": "patches a library while the model is captured",
    "translation": "gives the exporter a translation",
    "graph": "changes the exported graph",
}


def pages() -> dict[str, str]:
    """Every generated page by its name."""
    return {
        "cli.md": "\n".join(cli()),
        "findings.md": "\n".join(findings()),
        "remedies.md": "\n".join(remedies()),
        "knowledge.md": "\n".join(knowledge()),
        "python.md": "\n".join(python()),
        "record.md": "\n".join(record()),
    }


def cli() -> Iterator[str]:
    group: Any = typer.main.get_command(app)
    yield from ("# The command line", "", NOTE, "", group.help, "", group.epilog, "")
    for name, command in group.commands.items():
        yield from _command(name, command)
        for below, one in getattr(command, "commands", {}).items():
            yield from _command(f"{name} {below}", one)


def _command(name: str, command: Any) -> Iterator[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    usage = " ".join(f"{a.metavar}" if a.required else f"[{a.metavar}]" for a in arguments)
    yield from (f"## fairway {name}", "", inspect.cleandoc(command.help), "")
    yield from ("```text", f"fairway {name} {usage} [OPTIONS]".replace("  ", " "), "```", "")
    yield from ("| | |", "|---|---|")
    for parameter in (*arguments, *options):
        yield f"| {_spelling(parameter)} | {_cell(parameter.help or '')}{_default(parameter)} |"
    yield ""


def _spelling(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar}`"
    names = ", ".join(f"`{o}`" for o in (*parameter.opts, *parameter.secondary_opts))
    return names if parameter.is_flag else f"{names} `{_cell(parameter.metavar or parameter.name.upper())}`"


def _default(parameter: Any) -> str:
    if parameter.required:
        return " Required."
    if parameter.param_type_name == "argument" or parameter.default in (None, False, True, ()):
        return " On unless switched off." if parameter.default is True else ""
    return f" Default: {parameter.default}."


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def findings() -> Iterator[str]:
    yield from ("# Findings", "", NOTE, "")
    yield "Every diagnosis has a code. `fairway explain FW###` prints the same text. Codes are never reused."
    yield ""
    yield "An error keeps a file from being verified. Warnings and notes are reported beside the verdict. Two warnings"
    yield "decide it too: FW504 makes a file unproven, and FW210 makes it wrong where remedies are switched off."
    for digit, title in GROUPS.items():
        rows = [row for row in CODES.values() if row.code[2] == digit]
        if not rows:
            continue
        yield from ("", f"## FW{digit}xx: {title}", "", f"Exit code {exit_status(rows[0].code)}.")
        for row in rows:
            yield from _finding(row)
    yield ""


def _finding(row: CodeEntry) -> Iterator[str]:
    cured = [name for name, remedy in CATALOGUE.items() if remedy.cures == row.code]
    yield from ("", f"### {row.code} {row.name}", "", f"{row.title}. ({row.severity}; {WHOSE[row.kind]})", "", row.why)
    yield ""
    for number, step in enumerate(row.todo, 1):
        yield f"{number}. {step}"
    if cured:
        links = ", ".join(f"[{name}](remedies.md#{name})" for name in cured)
        yield from ("", f"Remedy: {links}.")


FIELDS = {
    "id": "its name, words joined by dashes",
    "title": "what it means, in one sentence",
    "signature": "a regular expression for the error message, without `*` and `+`; empty if there is no message",
    "affected": "the versions on which it was reported or seen",
    "fixed": "`torch 2.9`: the first version without it; `by torch 2.13.0`: not seen there any more; or empty",
    "status": "of the thread on that date: `open`, `closed`; or `unreported`",
    "date": "when the status was looked up",
    "link": "`owner/repo#number`; empty if no thread is known",
    "todo": "what to try",
    "whose": "`your model`, `your settings`, `your installation`, `the tool that wrote the file`; empty: the project's",
    "remedy": "Fairway's remedy; or empty",
    "seen": "the versions on which its reproducer runs; or empty",
}


def knowledge() -> Iterator[str]:
    yield from ("# Upstream bugs", "", NOTE, "")
    seen = [entry for entry in load_shipped_entries() if entry.seen]
    yield f"{len(load_shipped_entries())} bugs and gaps of the libraries that an export goes through."
    yield "`fairway explain error.log`"
    yield f"recognizes those with an error message. {len(seen)} are reproduced by tests on the versions that Fairway is"
    yield "tested with; they are marked ●, and their tests fail once upstream fixes them. The others"
    yield "name their reports."
    yield from ("", "An entry is a `[[bug]]` table in a TOML file named after the project:", "")
    yield from ("| field | |", "|---|---|")
    for name, description in FIELDS.items():
        yield f"| `{name}` | {description} |"
    for project in dict.fromkeys(entry.project for entry in load_shipped_entries()):
        yield from ("", f"## {project}", "", "| what happens | issue | versions | what to do |", "|---|---|---|---|")
        for entry in load_shipped_entries():
            if entry.project == project:
                yield _bug(entry)
    yield ""


def _bug(entry: KnownBug) -> str:
    issue = f"{entry.link}, {entry.status} on {entry.date}" if entry.link else "no known upstream issue"
    fixed = entry.fixed.replace("by ", "gone in ") if entry.fixed.startswith("by ") else f"fixed in {entry.fixed}"
    versions = entry.affected + (f"; {fixed}" if entry.fixed else "")
    todo = entry.todo + (f" Remedy: [{entry.remedy}](remedies.md#{entry.remedy})." if entry.remedy else "")
    silent = "" if entry.signature else " (no error message)"
    cells = (f"{'● ' if entry.seen else ''}`{entry.id}`{silent}: {entry.title}.", issue, versions, todo)
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def remedies() -> Iterator[str]:
    yield from ("# Remedies", "", NOTE, "")
    yield "In the order in which they are tried. `fairway remedies` lists them; `--no-remedies` switches them all off."
    yield ""
    yield from ("| remedy | cures | stage |", "|---|---|---|")
    for remedy in CATALOGUE.values():
        code = f"[{remedy.cures}](findings.md#{remedy.cures.lower()}-{CODES[remedy.cures].name})"
        yield f"| [{remedy.name}](#{remedy.name}) | {code} | {remedy.stage} |"
    yield from ("", "| stage | what such a remedy does |", "|---|---|")
    for stage, effect in STAGES.items():
        yield f"| {stage} | {effect} |"
    for remedy in CATALOGUE.values():
        yield from _remedy(remedy)
    yield ""


def _remedy(remedy: Remedy) -> Iterator[str]:
    seen = ", ".join(f"{package} {versions}" for package, versions in remedy.affected.items()) or "any version"
    text = inspect.cleandoc(sys.modules[remedy.detect.__module__].__doc__ or "")
    yield from ("", f"## {remedy.name}", "", f"Cures {remedy.cures}: {CODES[remedy.cures].title}.", "")
    yield from (text, "")
    yield f"- Seen in: {seen}"
    yield f"- Upstream: {', '.join(remedy.upstream) or 'no known issue'}"
    yield f"- Safe because: {remedy.safety}"


RECORDS = (Record, ShortRecord, GenerationRecord)
"""The documents. The parts that they hold come after them."""

WORDS = {
    "Text": "text",
    "Name": "text",
    "FileName": "text",
    "LinkName": "text",
    "str": "text",
    "Hash": "hash",
    "bool": "true or false",
    "int": "whole number",
    "Size": "whole number",
    "float": "number",
    "Sizes": "size by dim",
    "RecordVerdict": "`verified`, `unproven`, `wrong`, `failed` or `quantized`",
    "JsonValue": "any",
    "None": "null",
}
"""Types of fields, as a reader of JSON knows them."""


def record() -> Iterator[str]:
    yield from ("# Record", "", NOTE, "")
    yield "A record is the JSON file beside an ONNX file, with everything known about the file."
    yield "`result.record` in Python has the"
    yield "same fields, and `result.record.as_dict()` is the JSON."
    yield "[Stability](stability.md#what-a-record-promises) says what you"
    yield f"can build on. The format is {RECORD_FORMAT}."
    yield ""
    yield "A field without a mark is always there. A field marked ○ may be missing. New fields may"
    yield "appear in the same format."
    parts: dict[str, type[RecordPart]] = {}
    for document in RECORDS:
        _collect_parts(document, parts)
    for part in (*RECORDS, *(part for part in parts.values() if part not in RECORDS)):
        yield from _record_part(part, parts)
    yield ""


def _collect_parts(part: type[RecordPart], parts: dict[str, type[RecordPart]]) -> None:
    """Find every part that a part holds, in the order of the fields."""
    parts[part.__name__] = part
    for field in part.model_fields.values():
        for inner in _classes_in(field.annotation):
            if inner.__name__ not in parts:
                _collect_parts(inner, parts)


def _classes_in(annotation: Any) -> Iterator[type[RecordPart]]:
    if isinstance(annotation, type) and issubclass(annotation, RecordPart):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _classes_in(argument)


def _record_part(part: type[RecordPart], parts: dict[str, type[RecordPart]]) -> Iterator[str]:
    yield from ("", f"## {part.__name__}", "", inspect.cleandoc(part.__doc__ or ""), "")
    yield from ("| field | | type | |", "|---|---|---|---|")
    docs = _attribute_docs(part)
    for name, field in part.model_fields.items():
        key = field.serialization_alias or name
        annotation = ast.parse(part.__annotations__[name], mode="eval").body
        mark = "" if field.is_required() else "○"
        yield f"| `{key}` | {mark} | {_cell(_json_type(annotation, parts))} | {_cell(docs.get(name, ''))} |"


def _json_type(node: ast.expr, parts: dict[str, type[RecordPart]]) -> str:
    match node:
        case ast.Name(name) if name in parts:
            return f"[{name}](#{name.lower()})"
        case ast.Name(name):
            return WORDS[name]
        case ast.Constant(None):
            return "null"
        case ast.BinOp(left, ast.BitOr(), right):
            return f"{_json_type(left, parts)}, or {_json_type(right, parts)}"
        case ast.Subscript(ast.Name("Literal"), ast.Constant(value)):
            return f"`{value}`"
        case ast.Subscript(ast.Name("Annotated"), ast.Tuple([inner, *_])):
            return _json_type(inner, parts)
        case ast.Subscript(ast.Name("Mapping"), ast.Tuple([_, value])):
            return f"object of {_json_type(value, parts)}"
        case ast.Subscript(ast.Name("Many"), inner):
            return f"list of {_json_type(inner, parts)}"
        case ast.Subscript(ast.Name("tuple"), ast.Tuple([inner, ast.Constant(value)])) if value is ...:
            return f"list of {_json_type(inner, parts)}"
        case ast.Subscript(ast.Name("tuple"), ast.Tuple(inner)):
            return f"[{', '.join(_json_type(item, parts) for item in inner)}]"
    raise ValueError(f"no words for {ast.unparse(node)}")


def python() -> Iterator[str]:
    yield from ("# Python", "", NOTE, "")
    yield "`import fairway` needs no torch; the names below are loaded when they are first used."
    for name in fairway.api.__all__:
        function = getattr(fairway, name)
        yield from ("", f"## fairway.{name}", "", "```python", _signature(name, function), "```", "")
        yield inspect.cleandoc(function.__doc__ or "")
    for name in ("Recipe", "Result", "GenerationResult", "Evidence", "Finding"):
        yield from _dataclass(name, getattr(fairway, name))
    yield from ("", "## fairway.UserError", "", inspect.cleandoc(fairway.UserError.__doc__ or ""), "")


def _signature(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    lines = [f"fairway.{name}("]
    starred = False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            lines.append("    *,")
            starred = True
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        lines.append(f"    {parameter.name}: {parameter.annotation}{default},")
    return "\n".join((*lines, f") -> {signature.return_annotation}"))


def _dataclass(name: str, cls: Any) -> Iterator[str]:
    yield from ("", f"## fairway.{name}", "", inspect.cleandoc(cls.__doc__ or ""), "")
    told = _attribute_docs(cls)
    yield from ("| field | type | |", "|---|---|---|")
    for field in dataclasses.fields(cls):
        yield f"| `{field.name}` | `{_cell(str(field.type))}` | {_cell(told.get(field.name, ''))} |"
    for attribute, value in vars(cls).items():
        if isinstance(value, property):
            returns = value.fget.__annotations__.get("return", "")
            told_of = _cell(inspect.cleandoc(value.__doc__ or ""))
            yield f"| `.{attribute}` | `{_cell(str(returns))}` | {told_of} |"


def _attribute_docs(cls: Any) -> dict[str, str]:
    """The strings that stand below the fields in the source."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for before, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(before, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            found[ast.unparse(before.target)] = " ".join(str(after.value.value).split())
    return found


def main() -> None:
    REFERENCE.mkdir(exist_ok=True)
    for name, text in pages().items():
        (REFERENCE / name).write_text(text)


if __name__ == "__main__":
    main()
