"""Samples that are right only by an excuse are counted apart wherever samples are counted."""

from fairway.convert.evidence_writer import write_evidence
from fairway.diagnostics.excuses import count_samples
from fairway.judge import evidence
from fairway.judge.gather import MIN_EXCUSED_SAMPLES, _report_many_excuses
from fairway.judge.sample_result import SUMS_EXCUSE, TIES_EXCUSE, SampleResult
from fairway.model.sample import make_sample
from fairway.record.page.comparison import list_facts
from fairway.record.page.notebook import describe_domain
from fairway.record.page.summary import summarize
from fairway.record.schema import Record
from fairway.record.schema_parts import DimRecord, SubjectRecord

SAID = "61 of 67 samples right, 6 right by an excuse (order of equal elements 4, order of sums 2)"


def _evidence():
    excuses = [""] * 61 + [TIES_EXCUSE] * 4 + [SUMS_EXCUSE] * 2
    pairs = enumerate(excuses)
    tested = tuple(evidence.TestedSample({"n": 2}, i, "normal", True, 0.5, excused=excuse) for i, excuse in pairs)
    outputs = (evidence.OutputError("y", "float32", 0.5, 0.0, 0.0),)
    return evidence.Evidence("standard", "n", tested, outputs, "by the yardstick", 10.0, 1.0)


def _story():
    subject = SubjectRecord(sha256="0" * 64, domain={"n": DimRecord(low=1, high=9, multiple=1)})
    return summarize(
        Record(
            format=2,
            subject=subject,
            versions={},
            verdict="verified",
            remedies=(),
            evidence=write_evidence(_evidence()),
        ),
        "",
    )


def test_excused_samples_are_counted_apart_with_their_reasons():
    assert _evidence().samples == SAID
    assert count_samples([(True, ""), (False, "")]) == "1 of 2 samples right"


def test_the_json_has_the_excuse_of_each_sample_without_a_note():
    rows = _evidence().as_dict()["tested"]
    assert [row["excused"] for row in rows].count(TIES_EXCUSE) == 4
    assert {row["note"] for row in rows} == {""}


def test_the_page_the_list_and_the_notebook_count_them_apart():
    story = _story()
    assert story["evidence"]["samples"] == SAID
    assert [row[7] for row in story["evidence"]["tested"]].count(SUMS_EXCUSE) == 2
    assert list_facts(story)["samples right"] == SAID.replace(" samples right", "")
    assert SAID in describe_domain(story)


class _Judge:
    def __init__(self, excuses):
        self.trials = [SampleResult(make_sample({"n": 2}, i), excused=excuse) for i, excuse in enumerate(excuses)]


def test_a_few_excused_samples_are_not_too_many():
    assert _report_many_excuses(_Judge([TIES_EXCUSE] * (MIN_EXCUSED_SAMPLES - 1) + [""] * 10)) == []
    assert _report_many_excuses(_Judge([TIES_EXCUSE] * 4 + [""] * 196)) == []


def test_more_than_two_percent_are_too_many():
    (found,) = _report_many_excuses(_Judge([TIES_EXCUSE] * 3 + [SUMS_EXCUSE] * 2 + [""] * 195))
    assert found.code == "FW422"
    assert found.seen == "5 of 200 samples: order of equal elements 3, order of sums 2"
