"""Knowledge files as Fairway reads them."""

from __future__ import annotations

from typing import Any

from fairway.convert.remedies.catalogue import CATALOGUE
from fairway.diagnostics.knowledge.entry import BadEntryError, KnownBug, folder_of, read_entries, shipped


def check_knowledge(source: Any, *, remedies: tuple[str, ...] = ()) -> list[KnownBug]:
    """The entries of a package or a folder, each whole, with an id of its own and a remedy that exists.

    `remedies` are names of remedies that are not installed where the test runs.
    """
    try:
        entries = read_entries(folder_of(source))
    except BadEntryError as error:
        raise AssertionError(str(error)) from error
    ours = {entry.id: entry for entry in shipped()}
    for entry in entries:
        assert ours.get(entry.id, entry) == entry, f"{entry.id} is one of Fairway's own"
        known = entry.remedy in ("", *remedies) or entry.remedy in CATALOGUE
        assert known, f"{entry.id}: there is no remedy {entry.remedy}"
    return entries
