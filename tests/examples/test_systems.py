"""The four systems, exported as their teams wrote them. What the write-ups got wrong is what these tests pin down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import onnxruntime
import pytest

import forked
from documented import SECONDS, Documented

ROOT = Path(__file__).parents[2]


def export(recipe: str, path: Path, *options: str) -> tuple[int, dict]:
    """Exit code and record of `fairway export examples/RECIPE -o PATH OPTIONS --json`."""
    words = ["export", f"examples/{recipe}", "-o", str(path), "--json", *options]
    code, said = forked.fairway(words, ROOT, os.environ, SECONDS, errors=False)
    return code, json.loads(said)


@pytest.fixture
def shown(documented: Documented, out: Path) -> Callable[..., tuple[int, dict]]:
    """Exit code and record of an export that a page of the documentation shows, by its recipe and options."""

    def look(recipe: str, name: str, *options: str) -> tuple[int, dict]:
        words = ["fairway export", f"examples/{recipe}", *options, f"-o $OUT/{name}.onnx"]
        code, said = documented(" ".join(words))
        assert (out / f"{name}.fairway.json").exists(), said
        return code, json.loads((out / f"{name}.fairway.json").read_text())

    return look


def line_of(file: str, text: str) -> tuple[str, int]:
    """The place of the one line that holds `text`."""
    lines = (ROOT / "examples" / file).read_text().splitlines()
    numbers = [n for n, line in enumerate(lines, 1) if text in line]
    assert len(numbers) == 1, (text, numbers)
    return str(ROOT / "examples" / file), numbers[0]


def places(record: dict, code: str) -> list[tuple[str, int]]:
    return [(f["where"]["file"], f["where"]["line"]) for f in record["findings"] if f["code"] == code and f["where"]]


def test_airimu_is_one_file_for_every_length(shown):
    code, record = shown("airimu/recipe.py", "airimu")
    assert (code, record["verdict"]) == (0, "verified")
    assert record["subject"]["domain"]["time"]["high"] == 2000
    assert record["subject"]["domain"]["batch"]["high"] == 8
    assert "loop_unrolled" in [r["name"] for r in record["remedies"]]
    assert {t["point"]["time"] for t in record["evidence"]["tested"]} >= {10, 11, 1999, 2000}


@pytest.mark.parametrize("recipe", ["airimu/recipe.py", "airimu/variants.py:explicit_h0"])
def test_airimu_without_remedies_names_the_loop_and_the_boundary(tmp_path, recipe):
    code, record = export(recipe, tmp_path / "airimu.onnx", "--no-remedies", "--route", "trace")
    assert (code, record["verdict"], record["path"]) == (1, "wrong", None)
    loop = line_of("airimu/model.py", "for i in range(steps):")
    assert loop in places(record, "FW206")
    seen = next(f["seen"] for f in record["findings"] if f["code"] == "FW206")
    assert "right at time=19, wrong at 20" in seen


def test_airimu_is_never_verified_without_remedies(tmp_path):
    code, record = export("airimu/recipe.py", tmp_path / "airimu.onnx", "--no-remedies", "--level", "quick")
    assert code == 1
    assert record["verdict"] in ("wrong", "failed")
    assert not (tmp_path / "airimu.onnx").exists()
    assert len(record["ladder"]) >= 4


def is_chosen_by_id(code, record, path):
    assert (code, record["verdict"]) == (0, "verified")
    names = [r["name"] for r in record["remedies"]]
    assert "module_chosen_by_value" in names
    assert "input_output_name_clash" in names
    session = onnxruntime.InferenceSession(path)
    shapes = {i.name: i.shape for i in session.get_inputs()}
    assert shapes["positions"] == ["batch", "receivers", 3]
    assert [o.name for o in session.get_outputs()] == ["positions_out", "uncertainties"]


def test_heimdall_chooses_its_calibration_by_id_in_the_file(shown, out):
    is_chosen_by_id(*shown("heimdall/recipe.py:heimdall_net", "heimdall_net"), out / "heimdall_net.onnx")


def test_heimdall_pro_chooses_its_calibration_by_id_in_the_file(tmp_path):
    path = tmp_path / "pro.onnx"
    is_chosen_by_id(*export("heimdall/recipe.py:heimdall_net_pro", path, "--level", "quick"), path)


def test_heimdall_without_remedies_is_wrong_at_the_item_line(tmp_path):
    code, record = export("heimdall/recipe.py:heimdall_net", tmp_path / "h.onnx", "--no-remedies", "--route", "trace")
    assert (code, record["verdict"]) == (1, "wrong")
    assert line_of("heimdall/heimdall_net.py", "receiver_ids[b, n].item()") in places(record, "FW205")
    assert "positions" in [f["seen"] for f in record["findings"] if f["code"] == "FW210"]


def test_heimdall_with_its_own_patch_is_verified(shown):
    code, record = shown("heimdall/recipe.py:heimdall_net_patched", "heimdall_net_patched", "--level quick")
    assert (code, record["verdict"]) == (0, "verified")
    assert record["subject"]["patches"] == ["HeimdallNet._calibrate"]


def test_localization_net_takes_any_batch(shown):
    code, record = shown("heimdall/recipe.py:localization_tiny", "localization_tiny", "--level quick")
    assert (code, record["verdict"]) == (0, "verified")


def test_a_narrow_localization_net_takes_any_batch(tmp_path):
    code, record = export("heimdall/recipe.py:localization_narrow", tmp_path / "l.onnx", "--level", "quick")
    assert (code, record["verdict"]) == (0, "verified")


def test_the_2048_mistake_is_found_with_both_numbers_and_the_layer(tmp_path):
    code, record = export("heimdall/recipe.py:localization_mistake", tmp_path / "l.onnx")
    assert (code, record["verdict"]) == (1, "failed")
    finding = next(f for f in record["findings"] if f["code"] == "FW212")
    assert finding["data"] == {"arrives": 1536, "built": 2048, "layer": "position_head.0"}


def test_swipe_finds_the_same_words_with_both_files(shown, out):
    for name in ("encoder", "decoder"):
        code, record = shown(f"swipe/recipe.py:{name}", name)
        assert (code, record["verdict"]) == (0, "verified")
    files = [str(out / f"{name}.onnx") for name in ("encoder", "decoder")]
    command = [sys.executable, "examples/swipe/compare.py", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "200 of 200" in done.stdout


@pytest.mark.parametrize(
    ("name", "options"),
    [("text_sdpa", []), ("text_eager_fp16", ["--level quick"]), ("vision_672", ["--level quick"])],
)
def test_a_qwen_tower_of_the_documentation_is_verified(shown, name, options):
    code, record = shown(f"qwen_vl/recipe.py:{name}", name, *options)
    assert (code, record["verdict"]) == (0, "verified"), record["ladder"]


TOWERS = {"text_eager": "standard", "text_sdpa_fp16": "quick", "text_image": "quick", "vision_672_fp16": "quick"}
"""One more is looked at closely; the rest quickly, to keep the suite short."""


@pytest.mark.parametrize("name", TOWERS)
def test_a_qwen_tower_is_verified(tmp_path, name):
    code, record = export(f"qwen_vl/recipe.py:{name}", tmp_path / "q.onnx", "--level", TOWERS[name])
    assert (code, record["verdict"]) == (0, "verified"), record["ladder"]
