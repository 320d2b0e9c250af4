"""The machine's properties, and versions that do not work together."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from packaging.version import Version

from fairway.debug.doctor.combinations import BadCombinationError, find_conflicts, load_combinations, parse_combinations
from fairway.debug.doctor.machine import (
    MIN_FREE_BYTES,
    Machine,
    find_problems,
    inspect_machine,
    list_versions,
    try_imports,
)

FINE = Machine(
    {"python": "3.11"}, "Linux", "glibc 2.36", 2, ("avx2",), 8 * MIN_FREE_BYTES, 9 * MIN_FREE_BYTES, 9 * MIN_FREE_BYTES
)


def test_this_machine_is_described_and_nothing_is_known_against_it() -> None:
    machine = inspect_machine()
    assert machine.versions["torch"].startswith("2.")
    assert machine.cpus == len(os.sched_getaffinity(0))
    assert MIN_FREE_BYTES < machine.memory <= machine.memory_total
    assert machine.disk > 0
    assert machine.libc.startswith("glibc 2.")
    assert "CPUExecutionProvider" in machine.providers
    assert machine.broken == {}
    assert [f.seen for f in (*find_problems(machine), *find_conflicts(machine.versions))] == []


def test_an_import_that_kills_its_process_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deadly.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    (tmp_path / "chatty.py").write_text("print('hello')")
    (tmp_path / "stuck.py").write_text("import time; time.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result, providers = try_imports(("json", "deadly", "chatty", "no_such_module", "stuck", "csv"), seconds=2)
    assert result == {
        "json": "",
        "deadly": "the import ended its process with signal 4",
        "chatty": "",
        "no_such_module": "ModuleNotFoundError: No module named 'no_such_module'",
        "stuck": "no answer within 2 s",
        "csv": "",
    }
    assert providers == []


def test_what_cannot_be_imported_and_what_is_scarce_are_findings() -> None:
    assert find_problems(FINE) == []
    bad = Machine(
        **{**vars(FINE), "broken": {"onnx": "ImportError: no", "openvino": "no"}, "disk": MIN_FREE_BYTES // 2}
    )
    assert [(f.code, f.seen) for f in find_problems(bad)] == [
        ("FW604", "import onnx: ImportError: no"),
        ("FW605", "512 MB of disk for temporary files"),
    ]


@pytest.mark.parametrize(
    "row", load_combinations(), ids=lambda row: " ".join(f"{n}{r}" for n, r in row.together.items())
)
def test_a_row_applies_within_its_ranges_alone(row: object) -> None:
    from fairway.debug.doctor.combinations import Combination

    assert isinstance(row, Combination)
    inside = {name: _edge(str(range_)) for name, range_ in row.together.items()}
    assert row.applies(inside)
    assert row.applies({**inside, "torch": f"{inside['torch']}+cpu"} if "torch" in inside else inside)
    for name in row.together:
        assert not row.applies({k: v for k, v in inside.items() if k != name})
        assert not row.applies({**inside, name: _outside(str(row.together[name]))})
    assert any(finding.upstream == row.links for finding in find_conflicts(inside))


def _edge(range_: str) -> str:
    """A version inside: the one that the range names, or one just below."""
    named = range_.lstrip("<>=").removesuffix(".*")
    below = f"{Version(named).major}.{max(Version(named).minor - 1, 0)}.9"
    return below if range_.startswith("<") and "=" not in range_ else named


def _outside(range_: str) -> str:
    return "0.0.1" if range_.startswith((">", "==")) else "999"


def test_what_a_package_rules_out_itself_is_noticed() -> None:
    here = {**list_versions(), "numpy": "1.20.0"}
    assert any(
        "requires numpy" in finding.seen and "1.20.0 is installed" in finding.seen for finding in find_conflicts(here)
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[combination]]\ntogether = { a = '>1' }\nwhy = 'w'\ntodo = 't'\nlinks = ['o/r#1']", "two packages"),
        ("[[combination]]\ntogether = { a = '>1', b = '>1' }\nwhy = 'w'\ntodo = 't'\nlinks = ['r#1']", "owner/repo"),
        ("[[combination]]\ntogether = { a = '>1', b = '>1' }\nwhy = 'w'\ntodo = 't'\nlinks = []", "owner/repo"),
        ("[[combination]]\ntogether = { a = '1', b = '>1' }\nwhy = 'w'\ntodo = 't'\nlinks = ['o/r#1']", "Invalid"),
        ("[[combination]]\nwhy = 'w'", "together"),
        ("[[combination]]\ntogether = { a = '>1', b = '>1' }\nwhy = 'w'\ntodo = 't'\nlinks = ['o/r#1']\nx = 1", "x"),
        ("nonsense", "TOML"),
    ],
)
def test_a_bad_row_is_an_error_at_once(text: str, said: str) -> None:
    with pytest.raises(BadCombinationError, match=said):
        parse_combinations(text)
