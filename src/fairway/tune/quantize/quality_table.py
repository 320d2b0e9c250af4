"""Text output of `fairway quantize`: the verdict, a row for each variant, the findings."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from fairway.diagnostics.columns import align_columns
from fairway.diagnostics.render import TEXT_INDENT, format_labeled, render_finding

if TYPE_CHECKING:
    from fairway.tune.quantize.accuracy import JudgedVariant
    from fairway.tune.quantize.quantize_file import QuantizeResult
    from fairway.tune.sensitivity import Sensitivity

COLUMNS = ("scheme", "drop", "SQNR", "top-1", "size", "speed", "")


def render(result: QuantizeResult) -> str:
    """Return a run as text."""
    quantized = result.record.quantized
    assert quantized is not None
    assert quantized.calibration is not None
    assert quantized.cpu is not None
    assert quantized.arithmetic is not None
    parts: list[str] = [result.verdict]
    if result.path is not None and result.best is not None:
        relative = os.path.relpath(result.path)
        path = relative if not relative.startswith("..") else str(result.path)
        parts = [f"{result.verdict}  {path}  ({result.best.variant.scheme}, from {quantized.source.sha256[:12]})"]
    calibration = quantized.calibration
    drawn = "; values generated from the spec, not real data" if calibration.drawn_from_spec else ""
    parts += format_labeled("samples", f"{calibration.source}, {calibration.held_back} others held back{drawn}")
    parts += format_labeled("cpu", f"{quantized.cpu.name}: {quantized.arithmetic.why}")
    rows = [COLUMNS, *(format_row(variant, variant is result.best) for variant in result.tried)]
    for number, line in enumerate(align_columns(rows, TEXT_INDENT)):
        parts += format_labeled("variants" if number == 0 else "", line)
    if result.best is not None and result.best.variant.kept and result.best.variant.quantized:
        parts += format_labeled("in float", ", ".join(str(unit) for unit in result.best.variant.kept))
    return "\n".join(parts) + "".join("\n\n" + render_finding(f) for f in result.findings)


def format_row(judged: JudgedVariant, shipped: bool) -> tuple[str, ...]:
    top1 = judged.score.compute_drop("top1")
    return (
        judged.variant.scheme,
        f"{judged.drop:.3%}",
        f"{judged.score.sqnr:.1f} dB",
        "–" if math.isnan(top1) else f"{1 - top1:.1%}",
        f"{judged.size_share:.0%}",
        "not measured" if judged.speed is None else str(judged.speed),
        "shipped" if shipped else "",
    )


def render_ranking(result: Sensitivity, limit: int = 20) -> str:
    """Return the ranking as text, largest drop first, with the error of each number if it is known."""
    ending = "" if result.finished else "; the time was up, more trials would make it more certain"
    lines = [f"ranked  {len(result.ranked)} of {result.groups} groups in {result.trials} trials{ending}"]
    lines += format_labeled("drop by", f"{result.metric}; with everything quantized {result.all_quantized:.3%}")
    rows = [("", "quantized alone", "kept alone", "samples")]
    for number, sensitivity in enumerate(result.ranked[:limit], 1):
        error = "" if sensitivity.alone_error is None else f" ± {2 * sensitivity.alone_error:.1e}"
        name = sensitivity.group.name if len(sensitivity.group.units) > 1 else str(sensitivity.group.units[0])
        rows.append(
            (
                f"{number}. {name}",
                f"{sensitivity.alone:.2e}{error}",
                f"{sensitivity.kept:.2e}",
                str(sensitivity.samples),
            )
        )
    lines += [f"  {line}" for line in align_columns(rows, 2)]
    if len(result.ranked) > limit:
        lines.append(f"  … {len(result.ranked) - limit} more in ranking.json")
    kept = f"{len(result.do_not_quantize)} nodes in float bring the drop to {result.drop_without:.3%}"
    all_quantized = "nothing: everything may be quantized"
    lines += format_labeled(
        "to keep", f"{kept if result.do_not_quantize else all_quantized} (limit: {result.max_drop:.2%})"
    )
    lines += format_labeled(
        "written", f"{result.folder}: ranking.json, ranking.svg, do_not_quantize.json, trials.jsonl"
    )
    return "\n".join(lines)
