"""Every example in float and in each scheme: size, speed, quality. Rows are kept, so a run goes on where it stopped.

    python benchmarks/quantize/run.py               # writes rows.jsonl and results.md

Each model is exported and verified first, at the level quick. Samples are drawn from the recipe's spec: these tables
tell of the arithmetic, not of any task. `int8-mixed` keeps as many layers in float as it takes to bring the drop of
int8-static down to a quarter, on some samples of the calibration.
"""

from __future__ import annotations

import argparse
import json
import logging
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from fairway.convert.export import export_subject, make_settings
from fairway.diagnostics.errors import UserError
from fairway.model.cpu import choose_arithmetic, detect_cpu
from fairway.model.recipe import Overrides, load_subject
from fairway.record.files import read_versions
from fairway.tune.quantize.accuracy import AccuracyJudge
from fairway.tune.quantize.calibration import calibrate
from fairway.tune.quantize.prepare import prepare_graph
from fairway.tune.quantize.sample_split import open_samples
from fairway.tune.quantize.schemes import SCHEMES, QuantizeContext, make_variant
from fairway.tune.quantize.search import MixEvaluator, find_smallest_mix, rank_units
from fairway.tune.quantize.slices import SlicedModel
from fairway.workers.attempt import Limits

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
MODELS = {
    "airimu": "airimu/recipe.py:airimu",
    "swipe encoder": "swipe/recipe.py:encoder",
    "swipe decoder": "swipe/recipe.py:decoder",
    "heimdall_net": "heimdall/recipe.py:heimdall_net",
    "heimdall_net_pro": "heimdall/recipe.py:heimdall_net_pro",
    "localization (narrow)": "heimdall/recipe.py:localization_narrow",
    "qwen text": "qwen_vl/recipe.py:text_eager",
    "qwen text and image": "qwen_vl/recipe.py:text_image",
    "qwen vision": "qwen_vl/recipe.py:vision_672",
}
SECONDS = 2.0
SAMPLES = 16


def one_model(name: str, address: str, folder: Path) -> list[dict]:
    subject = load_subject(str(EXAMPLES / address), Overrides())
    source = folder / "float.onnx"
    result = export_subject(subject, source, make_settings("quick", (), None, True, Limits(900.0, 0)))
    if not result.verified:
        return [{"model": name, "scheme": "fp32", "failed": result.verdict}]
    prepared = prepare_graph(source, folder)
    samples = open_samples(subject, None, SAMPLES)
    ranges = calibrate(prepared, samples.read_calibration(), "minmax", folder)
    context = QuantizeContext(prepared, choose_arithmetic(detect_cpu()), ranges, True, folder)
    judge = AccuracyJudge(source, samples, "sqnr", None, SECONDS, folder)
    rows = [{"model": name, "scheme": "fp32", "bytes": judge.size, "units": len(prepared.units)}]
    for scheme in SCHEMES:
        try:
            judged = judge.judge(make_variant(scheme, context))
        except UserError as error:
            rows.append({"model": name, "scheme": scheme, "failed": f"{error.finding.code}: {error.finding.title}"})
            continue
        rows.append({"model": name, **judged.describe().as_dict()})
        if scheme == "int8-static" and len(prepared.units) > 1:
            scene = MixEvaluator(SlicedModel(context), list(islice(samples.read_calibration(), 6)), "sqnr")
            mix = find_smallest_mix([unit for unit, _ in rank_units(scene)], scene.measure_drop, judged.drop / 4)
            variant = replace(make_variant("int8-static", context, mix.keep, "mixed"), scheme="int8-mixed")
            rows.append({"model": name, **judge.judge(variant).describe().as_dict()})
    return rows


def table(rows: list[dict]) -> str:
    lines = [
        "# The examples, quantized",
        "",
        "Written by `python benchmarks/quantize/run.py`. Size is the file's, as a share of the float file's. Speed is",
        "paired with the float file on one thread, with its interval; values are drawn from the recipes' specs, at the",
        "middle of their domains. Drop is the error's share of the output's power on samples held back (1% is 20 dB),",
        "of the worst output; top-1 is the share of places with the same largest element. `int8-mixed` keeps as many",
        "layers in float as bring the drop of int8-static down to a quarter on the samples that they are chosen by;",
        "the drop shown is on others. Models that are not in the table were not run yet.",
        "",
        "| model | scheme | size | speed | drop | SQNR | top-1 | layers in float |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        start = f"| {row['model']} | {row['scheme']} "
        if "failed" in row:
            lines.append(start + f"| {row['failed']} | | | | | |")
            continue
        if row["scheme"] == "fp32":
            lines.append(start + f"| {row['bytes'] / 1e6:.2f} MB | 1 | 0 | | | {row['units']} of {row['units']} |")
            continue
        quality, kept = row["quality"], len(row["units_kept"])
        top1 = "–" if quality["top1"] is None else f"{1 - quality['top1']:.1%}"
        sqnr = "–" if quality["sqnr_db"] is None else f"{quality['sqnr_db']:.1f} dB"
        units = f"{kept} of {kept + row['units_quantized']}" if row["scheme"] in ("int8-static", "int8-mixed") else ""
        lines.append(
            start + f"| {row['size_share']:.0%} | {row['speed']['said']} | {row['drop']:.3%} | {sqnr} | {top1} "
            f"| {units} |"
        )
    cpu = detect_cpu()
    lines += [
        "",
        f"{cpu.name}, {', '.join(cpu.flags)}; "
        + ", ".join(f"{k} {v}" for k, v in read_versions().items() if k in ("onnxruntime", "torch", "onnx"))
        + ".",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=list(MODELS))
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    kept = HERE / "rows.jsonl"
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    for name in asked.models:
        if any(row["model"] == name for row in rows):
            continue
        with TemporaryDirectory() as folder:
            new = one_model(name, MODELS[name], Path(folder))
        rows += new
        with kept.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in new)
        print(name, len(new), flush=True)
    order = list(MODELS)
    rows.sort(key=lambda row: order.index(row["model"]))
    (HERE / "results.md").write_text(table(rows))


if __name__ == "__main__":
    main()
