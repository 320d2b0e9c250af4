"""The commands themselves: what they print where, and that they are quick about it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
import torch

from fairway.cli.options import parse_memory
from fairway.convert.ladder.route import ROUTES
from fairway.convert.remedies.catalogue import CATALOGUE
from fairway.diagnostics import CODES
from fairway.diagnostics.errors import UserError

from .command_line import QUICK, RECIPE, Fairway

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1"}


def run_python(folder: Path, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)


WITHOUT_TORCH = """
import sys
from fairway.cli import main
try:
    main()
finally:
    print("torch" in sys.modules, "onnx" in sys.modules, file=sys.stderr)
"""


@pytest.mark.parametrize(
    "words",
    [("-h",), ("--help",), ("export", "-h"), ("explain", "FW001"), ("explain", "--list"), ("routes",)],
    ids=" ".join,
)
def test_help_and_pages_need_neither_torch_nor_onnx(folder: Path, words: tuple[str, ...]) -> None:
    done = run_python(folder, WITHOUT_TORCH, *words)
    assert done.stderr == "False False\n"
    assert done.stdout.strip()
    assert done.returncode == 0


def test_inspect_and_emit_script_need_no_torch(fairway: Fairway, folder: Path) -> None:
    assert fairway("export", "recipe.py", "-o", "out.onnx", *QUICK).code == 0
    for words in (("inspect", "out.onnx"), ("export", "recipe.py", "-o", "new.onnx", "--emit-script")):
        done = run_python(folder, WITHOUT_TORCH, *words)
        assert done.stderr.split()[0] == "False"
        assert done.returncode == 0


def test_help_names_every_command_and_the_exit_codes(fairway: Fairway) -> None:
    said = fairway("-h")
    words = said.out.split()
    assert [c for c in ("export", "verify", "inspect", "explain", "remedies", "routes") if c not in words] == []
    assert "Exit codes: 0 verified, 1 finding, 2 usage, 3 could not load" in " ".join(words)
    assert said.code == 0


def test_a_verified_export_prints_its_evidence_and_writes_file_and_record(fairway: Fairway, folder: Path) -> None:
    said = fairway("export", "recipe.py", "-o", "out.onnx", *QUICK)
    lines = said.out.splitlines()
    assert lines[0] == "verified  out.onnx  (trace, opset 20)"
    assert lines[1] == "  domain    batch 1..16"
    assert lines[2].startswith("  evidence  4 of 4 samples right (quick);")
    assert said.err == ""
    assert said.code == 0
    record = json.loads((folder / "out.fairway.json").read_text())
    assert record["file"]["sha256"] == hashlib.sha256((folder / "out.onnx").read_bytes()).hexdigest()
    assert [p.name for p in folder.glob(".fairway-*")] == []


def test_json_of_an_export_is_the_record_and_nothing_else(fairway: Fairway, folder: Path) -> None:
    (folder / "recipe.py").write_text("print('a recipe may chatter')\n" + RECIPE)
    said = fairway("export", "recipe.py", "-o", "out.onnx", *QUICK, "--json")
    record = json.loads(said.out)
    assert (record["verdict"], record["route"], record["path"]) == ("verified", "trace", "out.onnx")
    assert record["subject"]["inputs"] == ["x: float32[batch, 3]"]
    assert said.err == "a recipe may chatter\n"
    assert said.code == 0


def test_verify_agrees_with_the_export(fairway: Fairway, folder: Path) -> None:
    (folder / "recipe.py").write_text(RECIPE.replace("super().__init__()", "super().__init__(); torch.manual_seed(0)"))
    fairway("export", "recipe.py", "-o", "out.onnx", *QUICK)
    before = (folder / "out.onnx").read_bytes()
    said = fairway("verify", "out.onnx", "recipe.py", "--level", "quick", "--json")
    record = json.loads(said.out)
    assert (record["verdict"], record["route"], said.code) == ("verified", "file", 0)
    assert (folder / "out.onnx").read_bytes() == before


def test_verify_calls_a_file_of_other_weights_wrong(fairway: Fairway, folder: Path) -> None:
    fairway("export", "recipe.py", "-o", "out.onnx", *QUICK)
    torch.save({"fc.weight": torch.ones(4, 3), "fc.bias": torch.ones(4)}, folder / "other.pt")
    said = fairway("verify", "out.onnx", "recipe.py", "--checkpoint", "other.pt", "--level", "quick", "--json")
    record = json.loads(said.out)
    assert (record["verdict"], said.code) == ("wrong", 1)
    assert record["findings"][0]["code"] == "FW401"


def test_inspect_shows_the_signature_and_what_was_proven(fairway: Fairway, folder: Path) -> None:
    fairway("export", "recipe.py", "-o", "out.onnx", *QUICK)
    lines = fairway("inspect", "out.onnx").out.splitlines()
    assert lines[0].startswith("out.onnx  opset 20, pytorch ")
    assert lines[1:6] == [
        "  inputs    x: float32[batch, 3]",
        "  outputs   output: float32[batch, 4]",
        "  size      2 nodes, 2 weights, 0.00 MB of weights",
        "  record    verified for batch 1..16; 4 samples, level quick",
        next(line for line in lines if "route trace, remedies" in line),
    ]
    assert lines[-1] == "            unchanged since"


def test_inspect_notices_a_file_that_changed_since_its_record(fairway: Fairway, folder: Path) -> None:
    fairway("export", "recipe.py", "-o", "out.onnx", *QUICK)
    model = onnx.load(folder / "out.onnx")
    model.doc_string = "touched"
    onnx.save(model, folder / "out.onnx")
    said = fairway("inspect", "out.onnx")
    assert said.out.splitlines()[-1] == "            CHANGED since the record beside it was written"
    assert json.loads(fairway("inspect", "out.onnx", "--json").out)["record_matches_file"] is False


@pytest.mark.parametrize("forged", ["not json", "3", "{}", '{"domain": {"batch": 3}}'])
def test_inspect_does_not_believe_a_forged_record(fairway: Fairway, folder: Path, forged: str) -> None:
    fairway("export", "recipe.py", "-o", "out.onnx", *QUICK)
    model = onnx.load(folder / "out.onnx")
    next(p for p in model.metadata_props if p.key == "fairway").value = forged
    onnx.save(model, folder / "out.onnx")
    (folder / "out.fairway.json").write_text("{")
    said = fairway("inspect", "out.onnx")
    assert "  record    none: this file was not made by Fairway, or its metadata was stripped or changed" in said.out
    assert said.code == 0
    assert fairway("inspect", "out.onnx", "--json").code == 0


def test_inspect_json_parses_and_has_the_signature(fairway: Fairway, folder: Path) -> None:
    fairway("export", "recipe.py", "-o", "out.onnx", *QUICK)
    found = json.loads(fairway("inspect", "out.onnx", "--json").out)
    assert found["inputs"] == [{"name": "x", "dtype": "float32", "shape": ["batch", 3]}]
    assert found["record"]["verdict"] == "verified"
    assert found["record_matches_file"] is True


def test_explain_prints_the_page_of_a_code_in_any_case(fairway: Fairway) -> None:
    said = fairway("explain", "fw008")
    assert said.out.splitlines() == [
        "FW008 file-exists (error)",
        "  The output file exists.",
        "  whose     your input",
        "  why       Existing files are replaced only with --overwrite.",
        "  do        1. Pass --overwrite (overwrite=True), or name another file.",
    ]
    assert said.code == 0


def test_explain_has_a_page_for_every_code(fairway: Fairway) -> None:
    for code in CODES:
        said = fairway("explain", code)
        assert said.out.startswith(f"{code} ")
        assert said.code == 0


def test_explain_list_has_one_line_for_every_code(fairway: Fairway) -> None:
    said = fairway("explain", "--list")
    assert [line.split()[0] for line in said.out.splitlines()] == list(CODES)
    assert said.code == 0


def test_explain_refuses_a_code_that_there_is_not(fairway: Fairway) -> None:
    said = fairway("explain", "FW999")
    assert said.err.splitlines() == [
        "FW014 error: There is no such finding",
        "  seen      FW999",
        "  why       Every finding has a code such as FW206, and a page.",
        "  do        1. List them all: fairway explain --list",
    ]
    assert said.code == 2


def test_routes_lists_what_route_takes(fairway: Fairway) -> None:
    assert [line.split()[0] for line in fairway("routes").out.splitlines()] == list(ROUTES)
    assert json.loads(fairway("routes", "--json").out) == ROUTES


def test_remedies_lists_the_catalogue(fairway: Fairway) -> None:
    heads = [line.split()[0] for line in fairway("remedies").out.splitlines() if not line.startswith(" ")]
    assert heads == list(CATALOGUE)
    rows = json.loads(fairway("remedies", "--json").out)
    assert [(row["name"], row["cures"]) for row in rows] == [(r.name, r.cures) for r in CATALOGUE.values()]


def test_the_emitted_script_runs_and_gives_the_same_verdict(fairway: Fairway, folder: Path) -> None:
    words = (
        "export",
        "recipe.py:Net",
        "-o",
        "out.onnx",
        *QUICK,
        "--input",
        "x: float32[batch, 3]",
        "--dim",
        "batch=2..8%2",
        "--opset",
        "18",
        "--timeout",
        "60",
        "--memory",
        "4G",
    )
    said = fairway(*words, "--emit-script")
    assert not (folder / "out.onnx").exists()
    (folder / "script.py").write_text(said.out)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=120
    )
    (folder / "out.onnx").rename("by_script.onnx")
    (folder / "out.fairway.json").unlink()
    direct = fairway(*words)
    assert (done.returncode, done.stderr) == (direct.code, direct.err) == (0, "")
    assert done.stdout.splitlines()[:2] == direct.out.splitlines()[:2]
    assert done.stdout.splitlines()[:2] == [
        "verified  out.onnx  (trace, opset 18)",
        "  domain    batch 2..8 in multiples of 2",
    ]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (None, 0),
        ("1000", 1000),
        ("2k", 2048),
        ("500M", 500 * 2**20),
        ("8G", 8 * 2**30),
        ("8GB", 8 * 2**30),
        ("8GiB", 8 * 2**30),
        ("1.5g", 3 * 2**29),
        ("1T", 2**40),
        (" 4 G ", 4 * 2**30),
    ],
)
def test_memory_is_read_as_people_write_it(text: str | None, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "G", "-1G", "8X", "eight"])
def test_memory_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"FW006: .*: --memory"):
        parse_memory(text)


def test_output_into_a_pipe_that_closes_early_is_no_bug(folder: Path) -> None:
    """As in `fairway explain --list | head -1`."""
    code = "import sys; sys.stdin.read(); from fairway.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", code, "explain", "--list"],
        cwd=folder,
        env=ENVIRONMENT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    process.stdin.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=60) == 1
