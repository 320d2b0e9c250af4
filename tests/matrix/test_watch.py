"""The list of blocked recipes: its entries, its news, and invalid lists."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from fairway.debug.versions.environments import EnvironmentSpec
from fairway.debug.versions.inside import RunSettings
from fairway.debug.versions.matrix import MatrixRun
from fairway.debug.versions.watch_list import (
    BlockedRecipe,
    add_blocked_recipe,
    list_news,
    read_watch_list,
    render_watch_table,
    retest,
    write_watch_list,
)
from fairway.diagnostics.errors import UserError

from .doubles import RECIPE, answering, record

ISSUE = "pytorch/pytorch#163713"
TODAY = date.today().isoformat()
ENTRY = vars(BlockedRecipe("r.py", ISSUE, "", TODAY))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "recipe.py").write_text(RECIPE)
    return tmp_path


def judged(project: Path, entries: list[BlockedRecipe], verdict: str) -> list[BlockedRecipe]:
    python = answering(project / "python", record(verdict))
    return retest(
        project / "w.json",
        entries,
        [EnvironmentSpec(())],
        MatrixRun(lambda spec: python, RunSettings(), rerun=True),
        lambda event: None,
    )


def test_a_recipe_is_kept_from_the_lists_folder_and_only_once(project: Path) -> None:
    add_blocked_recipe(project / "w.json", "models/recipe.py:net", ISSUE, "masks")
    add_blocked_recipe(project / "w.json", "models/recipe.py:other", ISSUE, "")
    result = add_blocked_recipe(
        project / "w.json", str(project / "models/recipe.py:net"), "owner/repo#1", "other words"
    )
    assert result == read_watch_list(project / "w.json")
    assert [(e.recipe, e.blocked_by, e.since, e.state) for e in result] == [
        ("models/recipe.py:other", ISSUE, TODAY, "not tested"),
        ("models/recipe.py:net", "owner/repo#1", TODAY, "not tested"),
    ]
    assert [p.name for p in project.iterdir() if "w.json" in p.name] == ["w.json"]


def test_blocked_then_possible_then_broken_again(project: Path) -> None:
    entries = add_blocked_recipe(project / "w.json", "models/recipe.py:net", ISSUE, "")
    seen = []
    for verdict in ("failed", "wrong", "verified", "verified", "unproven", "failed", "verified"):
        entries = judged(project, entries, verdict)
        write_watch_list(project / "w.json", entries)
        entries = read_watch_list(project / "w.json")
        seen.append(entries[0].state)
    assert seen == ["blocked", "blocked", "possible now", "possible", "broken again", "blocked", "possible now"]


def test_news_are_sentences_and_the_list_is_a_table(project: Path) -> None:
    first = add_blocked_recipe(project / "w.json", "models/recipe.py:net", ISSUE, "masks")
    possible = judged(project, first, "verified")
    broken = judged(project, possible, "failed")
    assert list_news(possible) == [
        f"models/recipe.py:net has become possible with torch 2.13.0+cpu (trace); it waited for {ISSUE}.",
        "0 of 1 still blocked.",
    ]
    assert list_news(broken)[0] == "models/recipe.py:net was possible and is broken again: FW303: a | b"
    assert list_news(first) == ["1 of 1 still blocked."]
    assert render_watch_table([*first, *possible, *broken]).splitlines() == [
        "| recipe | waits for | since | state | with | why |",
        "|---|---|---|---|---|---|",
        f"| models/recipe.py:net | {ISSUE} | {TODAY} | not tested |  | masks |",
        f"| models/recipe.py:net | {ISSUE} | {TODAY} | possible now | torch 2.13.0+cpu (trace) | masks |",
        f"| models/recipe.py:net | {ISSUE} | {TODAY} | broken again | torch 2.13.0+cpu (trace) | FW303: a \\| b |",
    ]


def test_a_recipe_that_is_gone_stays_blocked_and_the_others_are_tested(project: Path) -> None:
    add_blocked_recipe(project / "w.json", "models/recipe.py:net", ISSUE, "")
    entries = [BlockedRecipe("gone.py", ISSUE, "", TODAY), *read_watch_list(project / "w.json")]
    gone, there = judged(project, entries, "verified")
    assert (gone.state, gone.rows[0].reason.startswith("FW101: ")) == ("blocked", True)
    assert there.state == "possible now"


def test_the_list_can_be_in_another_folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = add_blocked_recipe(project / "w.json", "models/recipe.py:net", ISSUE, "")
    monkeypatch.chdir("/")
    assert judged(project, entries, "verified")[0].state == "possible now"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"format": 2, "blocked": []}',
        '{"format": 1, "blocked": 3}',
        "[" * 100_000,
        '{"format": 1, "blocked": [{}]}',
        '{"format": 1, "blocked": [], "more": 1}',
        json.dumps(
            {"format": 1, "blocked": [{**vars(BlockedRecipe("r.py", ISSUE, "", TODAY)), "since": 3, "rows": []}]}
        ),
        json.dumps({"format": 1, "blocked": [{**vars(BlockedRecipe("r.py", ISSUE, "", TODAY)), "rows": [{}]}]}),
        json.dumps({"format": 1, "blocked": [{**vars(BlockedRecipe("r.py", ISSUE, "", TODAY)), "rows": 1}]}),
    ],
    ids=range(11),
)
def test_nothing_of_a_bad_list_is_used(project: Path, text: str) -> None:
    (project / "w.json").write_text(text)
    with pytest.raises(UserError) as caught:
        add_blocked_recipe(project / "w.json", "models/recipe.py:net", ISSUE, "")
    assert caught.value.finding.code == "FW118"
    assert (project / "w.json").read_text() == text


def test_a_list_that_cannot_be_written_is_a_finding_and_leaves_nothing(project: Path) -> None:
    with pytest.raises(UserError) as caught:
        write_watch_list(project / "nowhere" / "w.json", [])
    assert caught.value.finding.code == "FW009"
    (project / "folder").mkdir()
    with pytest.raises(UserError):
        write_watch_list(project / "folder", [])
    assert sorted(p.name for p in project.iterdir()) == ["folder", "models"]
