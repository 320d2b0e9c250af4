"""The list of checksums in a folder of plain files, in the format of `sha256sum -c`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.record.files import hash_file

CHECKSUM_FILE = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")


def write_checksums(folder: Path, names: Iterable[str]) -> None:
    lines = [f"{hash_file(folder / name)}  {name}\n" for name in names]
    (folder / CHECKSUM_FILE).write_text("".join(lines))


def read_checksums(folder: Path) -> dict[str, str]:
    """Return sha256 by file name. Raises FW804 if the folder has no such list."""
    try:
        text = (folder / CHECKSUM_FILE).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise complain(
            Code.NOTHING_PUBLISHED, f"{folder}: nothing was published there, {CHECKSUM_FILE} cannot be read"
        ) from error
    checksums = {}
    for line in text.splitlines():
        parsed = _LINE.fullmatch(line)
        if parsed is None or {"", ".", ".."} & set(parsed[2].split("/")):
            raise complain(Code.NOTHING_PUBLISHED, f"{folder}: {CHECKSUM_FILE} holds the line {line!r:.120}")
        checksums[parsed[2]] = parsed[1]
    return checksums
