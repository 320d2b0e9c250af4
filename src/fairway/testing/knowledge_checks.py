"""Check knowledge files as Fairway reads them."""

from __future__ import annotations

from fairway.convert.remedies.catalogue import CATALOGUE
from fairway.diagnostics.knowledge.entry import BadEntryError, KnownBug, find_folder, load_shipped_entries, read_entries


def check_knowledge(source: object, *, remedies: tuple[str, ...] = ()) -> list[KnownBug]:
    """Read the entries of a package or a folder. Each must be complete, with a new id and a remedy that exists.

    `remedies` are names of remedies that are not installed in the test environment.
    """
    try:
        entries = read_entries(find_folder(source))
    except BadEntryError as error:
        raise AssertionError(str(error)) from error
    ours = {entry.id: entry for entry in load_shipped_entries()}
    for entry in entries:
        assert ours.get(entry.id, entry) == entry, f"{entry.id} is the id of another entry of Fairway"
        known = entry.remedy in ("", *remedies) or entry.remedy in CATALOGUE
        assert known, f"{entry.id}: there is no remedy {entry.remedy}"
    return entries
