"""A folder of plain files with their checksums in it, in the form that `sha256sum -c` reads."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from fairway.diagnostics.errors import complain
from fairway.record.files import hash_file

NAME = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")


def write_checksums(folder: Path, names: Iterable[str]) -> None:
    lines = [f"{hash_file(folder / name)}  {name}\n" for name in names]
    (folder / NAME).write_text("".join(lines))


def read_checksums(folder: Path) -> dict[str, str]:
    """sha256 by name; FW804 where the folder has no such list."""
    try:
        text = (folder / NAME).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise complain("FW804", f"{folder}: nothing was published there, {NAME} cannot be read") from error
    found = {}
    for line in text.splitlines():
        parsed = _LINE.fullmatch(line)
        if parsed is None or {"", ".", ".."} & set(parsed[2].split("/")):
            raise complain("FW804", f"{folder}: {NAME} holds the line {line!r:.120}")
        found[parsed[2]] = parsed[1]
    return found
