"""Entries of known bugs are complete and well-formed, or refused."""

import re
import time

import pytest
from samples import SAMPLES

from fairway.convert.remedies.catalogue import CATALOGUE
from fairway.diagnostics.knowledge.entry import BadEntryError, load_entries, load_shipped_entries, parse_entries

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
        "torch",
        "a-bug",
        "pytorch/pytorch#1",
        "2026-11-16",
    )
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
        (
            '"it (broke|breaks)"',
            '"it ("',
            "torch: a-bug: the signature does not compile: missing ), unterminated subpattern at position 3",
        ),
        (
            '"it (broke|breaks)"',
            '"it .*breaks"',
            "torch: a-bug: the signature repeats without an end: write {0,100} instead of *",
        ),
        (
            '"it (broke|breaks)"',
            "'it \\s{2,}breaks'",
            "torch: a-bug: the signature repeats without an end: write {0,100} instead of {2,}",
        ),
        ('fixed = ""', 'fixed = "soon"', "torch: a-bug: fixed is 'soon', not as in 'torch 2.9' or 'by torch 2.13.0'"),
        (
            "whose = ''",
            "whose = 'theirs'",
            "torch: a-bug: whose is 'theirs', none of your model, your settings, "
            "your installation, the tool that wrote the file",
        ),
        ('"a-bug"', '"A bug"', "torch: A bug: an id is words-joined-by-dashes"),
        ("2026-11-16", '"yesterday"', "torch: a-bug: date is 'yesterday'"),
        ('"It breaks"', '" "', "torch: a-bug: title is empty"),
        ("[[bug]]", "[[bugs]]", "torch: expected entries under [[bug]], got bugs"),
    ],
)
def test_what_is_wrong_is_refused_with_its_reason(old, new, said):
    assert old in GOOD
    with pytest.raises(BadEntryError) as caught:
        parse_entries("torch", GOOD.replace(old, new))
    assert str(caught.value) == said


def test_everything_that_ships_is_whole_and_names_remedies_that_exist():
    assert load_entries()
    assert all(entry.remedy == "" or entry.remedy in CATALOGUE for entry in load_entries())


PROJECTS = {"torch", "onnxscript", "onnx", "onnxruntime", "transformers", "optimum"}


def test_there_is_enough_and_every_project_has_its_file():
    assert len(load_shipped_entries()) >= 80
    assert {entry.project for entry in load_shipped_entries()} == PROJECTS


@pytest.mark.parametrize("entry", load_shipped_entries(), ids=lambda entry: entry.id)
def test_an_entry_says_where_it_was_seen_or_reported(entry):
    assert re.search(r"seen|reported|decided|removed", entry.affected)
    assert ("seen" in entry.affected) == bool(entry.seen)
    assert entry.status != "open" or entry.link


def test_every_signature_has_a_sample():
    assert set(SAMPLES) == {entry.id for entry in load_shipped_entries() if entry.signature}


MEANT = {
    # One error, two causes that are told apart by the code above it only.
    "trace-vmap-lost": {"trace-autograd-function-lost"},
    "trace-autograd-function-lost": {"trace-vmap-lost"},
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_signature_matches_its_sample_and_that_of_no_other(name):
    matching = {entry.id for entry in load_shipped_entries() if entry.matches(SAMPLES[name])}
    assert matching == {name, *MEANT.get(name, ())}


LONG = 100_000


def hostile(sample):
    """Long texts: of one character, of a sample again and again, whole, beheaded, cut short, stretched."""
    words = sample.split()
    pieces = ["a", " ", "1", "_", "aten::", "a.", sample, sample[: len(sample) // 2], sample[1:], sample[:-1]]
    pieces += [words[0] + " ", words[-1], "".join(words)]
    return [piece * (LONG // len(piece)) for piece in pieces if piece] + [word + "a" * LONG for word in words[:20]]


def seconds(signature, texts):
    pattern = re.compile(signature)
    started = time.process_time()
    for text in texts:
        for _ in pattern.finditer(text):
            pass
    return time.process_time() - started


@pytest.mark.parametrize("name", SAMPLES)
def test_no_signature_takes_its_time_over_long_hostile_text(name):
    [signature] = [entry.signature for entry in load_shipped_entries() if entry.id == name]
    assert seconds(signature, hostile(SAMPLES[name])) < 1


def test_a_signature_that_backtracks_would_be_noticed():
    text = ["a" * LONG]
    assert seconds(r"\w{1,1500}!", text) > 10 * seconds(r"\w{1,15}!", text)
