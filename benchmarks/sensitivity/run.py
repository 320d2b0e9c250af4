"""fairway sensitivity beside what onnxruntime offers for the same question, on three models.

    python benchmarks/sensitivity/run.py            # writes rows.jsonl and results.md

  exhaustive  onnxruntime's own `quantize_static` for each unit alone, scored on all samples held back
  debug       onnxruntime's `qdq_loss_debug`: every tensor of the quantized model beside the float one
  fairway     `measure_sensitivity`, all of it, and again with a tenth of the time that `exhaustive` took

Seconds are of the process, not of the clock, budgets too: other work on the machine does not count. Everything runs on
one thread.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import math
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
from models import MODELS, build
from onnxruntime.quantization import CalibrationMethod, QuantType, quantize_static
from onnxruntime.quantization import qdq_loss_debug as debug

import fairway
from fairway.model.subject import build_subject
from fairway.record.files import read_versions
from fairway.tune import sensitivity as sensing
from fairway.tune.quantize import calibration
from fairway.tune.quantize.accuracy import OrtFile
from fairway.tune.quantize.error_metrics import add_scores, score_outputs
from fairway.tune.quantize.prepare import (
    FLOAT_OUTPUT_OPERATORS,
    FUSED_OPERATORS,
    RECURRENT_OPERATORS,
    WEIGHTED_OPERATORS,
    prepare_graph,
)
from fairway.tune.quantize.quality_budget import Budget
from fairway.tune.quantize.quantize_file import QuantizeSettings
from fairway.tune.quantize.sample_split import open_samples
from fairway.tune.sensitivity import SensitivityRequest, measure_sensitivity

HERE = Path(__file__).parent
SAMPLES = 32
OPTIONS = {"OpTypesToExcludeOutputQuantization": [*FLOAT_OUTPUT_OPERATORS]}


class Reader:
    def __init__(self, samples) -> None:
        self._left = iter(samples)

    def get_next(self):
        return next(self._left, None)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._left)


def one_model(name: str, folder: Path) -> dict:
    model = build(name)
    kind = MODELS[name]
    source = folder / f"{name}.onnx"
    result = fairway.export(model, [*kind.inputs], source, bounds=kind.bounds, level="quick")
    assert result.verified, result
    subject = build_subject(model, [*kind.inputs], bounds=kind.bounds)
    started = time.process_time()
    prepared = prepare_graph(source, folder)
    preparing = time.process_time() - started
    samples = open_samples(subject, None, SAMPLES)
    calibrating, held = list(samples.read_calibration()), samples.held_back
    row = {
        "model": name,
        "units": len(prepared.units),
        "held_back": len(held),
        "calibrating": len(calibrating),
        "planted": list(kind.planted),
        "preparing": preparing,
    }

    exact, seconds = exhaustive(prepared, calibrating, held, folder)
    row["exhaustive"] = {"seconds": seconds, "trials": len(exact), "trials_per_minute": 60 * len(exact) / seconds}
    runs = {"whole": None, "tenth": seconds / 10}
    if name == "encoder":
        found, seconds = loss_debug(prepared, calibrating, held, folder)
        row["debug"] = {"seconds": seconds + preparing, "rank": spearman(exact, found), "units": len(found)}
        runs["as long as debug"] = seconds + preparing
    for label, budget in runs.items():
        started = time.process_time()
        # Any drop will do: the search for what to keep in float is not compared.
        wishes = QuantizeSettings("int8-static", samples=SAMPLES, budget=Budget(math.inf))
        sensed = measure_sensitivity(
            source, subject, folder / f"{name}-{label}", wishes, SensitivityRequest(seconds=budget)
        )
        seconds = time.process_time() - started
        alone = {one.group.name: one.alone for one in sensed.ranked}
        first = [one.group.units[0].module for one in sensed.ranked]
        configurations = 2 * len(sensed.ranked)
        row[label] = {
            "seconds": seconds,
            "trials": configurations,
            "trials_per_minute": 60 * configurations / seconds,
            "rank": spearman({k: v for k, v in exact.items() if k in alone}, alone),
            "ranked": len(alone),
            "planted_first": set(first[: len(kind.planted)]) == set(kind.planted),
            "first": first[:4],
            "samples": sum(one.samples for one in sensed.ranked) / len(sensed.ranked),
        }
    row["exact"] = exact
    return row


def exhaustive(prepared, calibrating, held, folder: Path) -> tuple[dict[str, float], float]:
    """As it is done by hand: quantize again for each unit, load, run everything. Recurrent units it cannot quantize."""
    right = OrtFile(prepared.path)
    answers = [right(sample) for sample in held]
    exact = {}
    started = time.process_time()
    for unit in prepared.units:
        if unit.operator in RECURRENT_OPERATORS:
            continue
        path = folder / "one.onnx"
        static(prepared.path, path, calibrating, list(unit.nodes))
        session = OrtFile(path)
        scores = (score_outputs(right.names, a, session(s)) for a, s in zip(answers, held, strict=True))
        exact[unit.name] = add_scores(scores).compute_drop("sqnr")
    return exact, time.process_time() - started


def static(source: Path, target: Path, calibrating, nodes: list[str]) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        quantize_static(
            source,
            target,
            Reader(calibrating),
            op_types_to_quantize=[*WEIGHTED_OPERATORS, *FUSED_OPERATORS],
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            nodes_to_quantize=nodes,
            calibrate_method=CalibrationMethod.MinMax,
            extra_options=dict(OPTIONS),
        )


def loss_debug(prepared, calibrating, held, folder: Path) -> tuple[dict[str, float], float]:
    """Its whole flow, once. A unit's place in the ranking is the error of what it is given, as far as it tells."""
    names = [name for unit in prepared.units for name in unit.nodes]
    started = time.process_time()
    whole, wide, narrow = folder / "whole.onnx", folder / "wide.onnx", folder / "narrow.onnx"
    static(prepared.path, whole, calibrating, names)
    debug.modify_model_output_intermediate_tensors(prepared.path, wide)
    debug.modify_model_output_intermediate_tensors(whole, narrow)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    floats = debug.collect_activations(str(wide), Reader(held), options)
    quantized = debug.collect_activations(str(narrow), Reader(held), options)
    matching = debug.create_activation_matching(quantized, floats)
    errors = debug.compute_activation_error({n: both for n, both in matching.items() if both.get("float")})
    debug.compute_weight_error(debug.create_weight_matching(str(prepared.path), str(whole)))
    seconds = time.process_time() - started
    given = {node.name: node.input[0] for node in onnx.load(prepared.path).graph.node if node.input}
    found = {
        unit.name: 10 ** (-errors[given[unit.name]]["qdq_err"] / 10)
        for unit in prepared.units
        if given[unit.name] in errors
    }
    return found, seconds


def spearman(one: dict[str, float], other: dict[str, float]) -> float:
    names = [name for name in one if name in other]
    ranks = [np.argsort(np.argsort([some[n] for n in names])).astype(float) for some in (one, other)]
    return float(np.corrcoef(*ranks)[0, 1]) if len(names) > 2 else math.nan


def table(rows: list[dict]) -> str:
    lines = [
        "# Sensitivity",
        "",
        "Written by `python benchmarks/sensitivity/run.py`. `exhaustive` is onnxruntime's `quantize_static` for each",
        "unit alone, with everything held back scored; `whole` is all that `fairway sensitivity` does, both trials of",
        "each unit; `tenth` is stopped after a tenth of the time that `exhaustive` took. Rank is Spearman's",
        "correlation with `exhaustive`. A trial is one unit toggled and scored. Seconds are of the process, on one",
        "thread, with preparing and calibrating.",
        "",
        "| model | units | exhaustive | whole | faster per trial | rank, whole | tenth | rank, tenth | planted first |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        e, w, t = row["exhaustive"], row["whole"], row["tenth"]
        ratio = w["trials_per_minute"] / e["trials_per_minute"]
        both = f"{'yes' if w['planted_first'] else 'no'} / {'yes' if t['planted_first'] else 'no'}"
        lines.append(
            f"| {row['model']} | {row['units']} | {e['seconds']:.1f} s | {w['seconds']:.1f} s | {ratio:.0f}x "
            f"| {w['rank']:.3f} | {t['seconds']:.1f} s | {t['rank']:.3f} | {both} |"
        )
    for row in rows:
        if "debug" in row:
            d, s = row["debug"], row["as long as debug"]
            lines += [
                "",
                f"onnxruntime's `qdq_loss_debug` on the {row['model']}, its whole flow once: {d['seconds']:.1f} s",
                f"with preparing, rank {d['rank']:.3f}: it says how well each tensor is rounded, not what that does to",
                f"the output. Fairway in as much time: {s['seconds']:.1f} s, {s['ranked']} of {row['units']} units,",
                f"rank {s['rank']:.3f}, {s['samples']:.1f} samples each.",
            ]
    lines += ["", "Versions: " + ", ".join(f"{k} {v}" for k, v in read_versions().items() if k != "fairway") + ".", ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=list(MODELS))
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    for module in (sensing, calibration):
        module.time = SimpleNamespace(monotonic=time.process_time)
    rows = []
    for name in asked.models:
        with TemporaryDirectory() as folder:
            rows.append(one_model(name, Path(folder)))
            print(json.dumps({k: v for k, v in rows[-1].items() if k != "exact"}), flush=True)
    if set(asked.models) == set(MODELS):
        (HERE / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (HERE / "results.md").write_text(table(rows))


if __name__ == "__main__":
    main()
