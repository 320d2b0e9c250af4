"""What is known of upstream bugs is whole and well-formed, or refused."""

import pytest

from fairway.knowledge.entry import BadEntryError, entries, parse_entries
from fairway.remedies.catalogue import CATALOGUE

GOOD = """
[[bug]]
id = "a-bug"
title = "It breaks"
signature = "it (broke|breaks)"
affected = "torch 2.13"
fixed = ""
status = "open"
date = 2026-11-16
link = "pytorch/pytorch#1"
todo = "Do not."
whose = ''
remedy = ""
seen = ""
"""


def test_an_entry_is_read_as_written():
    [entry] = parse_entries("torch", GOOD)
    assert (entry.project, entry.id, entry.link, entry.date.isoformat()) == (
        "torch", "a-bug", "pytorch/pytorch#1", "2026-11-16",
    )  # fmt: skip
    assert entry.matches("RuntimeError: it breaks")
    assert not entry.matches("RuntimeError: it holds")


def test_a_bug_that_says_nothing_matches_nothing():
    [entry] = parse_entries("torch", GOOD.replace('"it (broke|breaks)"', '""'))
    assert not entry.matches("")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('todo = "Do not."', "", "torch: a-bug: missing or unknown: todo"),
        ('seen = ""', 'sene = ""', "torch: a-bug: missing or unknown: seen, sene"),
        ('"pytorch/pytorch#1"', '"pytorch#1"', "torch: a-bug: the link 'pytorch#1' is not owner/repo#number"),
        ('"pytorch/pytorch#1"', '""', "torch: a-bug: a bug has a link or is unreported"),
        ('"open"', '"unreported"', "torch: a-bug: a bug has a link or is unreported"),
        ('"open"', '"perhaps"', "torch: a-bug: the status 'perhaps' is none of open, closed, unreported"),
        ('"it (broke|breaks)"', '"it ("', "torch: a-bug: the signature does not compile: missing ), "
         "unterminated subpattern at position 3"),
        ('"a-bug"', '"A bug"', "torch: A bug: an id is words-joined-by-dashes"),
        ("2026-11-16", '"yesterday"', "torch: a-bug: date is 'yesterday'"),
        ('"It breaks"', '" "', "torch: a-bug: title is empty"),
        ("[[bug]]", "[[bugs]]", "torch: entries stand under [[bug]]; found bugs"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_its_reason(old, new, said):
    assert old in GOOD
    with pytest.raises(BadEntryError) as caught:
        parse_entries("torch", GOOD.replace(old, new))
    assert str(caught.value) == said


def test_everything_that_ships_is_whole_and_names_remedies_that_exist():
    assert entries()
    assert all(entry.remedy == "" or entry.remedy in CATALOGUE for entry in entries())
