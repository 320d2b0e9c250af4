"""A run of `fairway quantize` as text: the verdict, a row for each variant, what was found."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from fairway.diagnostics.columns import aligned
from fairway.diagnostics.render import INDENT, labelled, render_finding

if TYPE_CHECKING:
    from fairway.tune.quantize.accuracy import Judged
    from fairway.tune.quantize.quantize_file import Quantised
    from fairway.tune.sensitivity import Sensitivity

COLUMNS = ("scheme", "drop", "SQNR", "top-1", "size", "speed", "")


def render(result: Quantised) -> str:
    made = result.record["quantised"]
    parts: list[str] = [result.verdict]
    if result.path is not None and result.best is not None:
        near = os.path.relpath(result.path)
        shown = near if not near.startswith("..") else str(result.path)
        parts = [f"{result.verdict}  {shown}  ({result.best.variant.scheme}, from {made['from']['sha256'][:12]})"]
    calibration = made["calibration"]
    drawn = "; values drawn from the spec, not from life" if calibration["drawn_from_spec"] else ""
    parts += labelled("samples", f"{calibration['source']}, {calibration['held_back']} others held back{drawn}")
    parts += labelled("cpu", f"{made['cpu']['name']}: {made['arithmetic']['why']}")
    rows = [COLUMNS, *(row(one, one is result.best) for one in result.tried)]
    for number, line in enumerate(aligned(rows, INDENT)):
        parts += labelled("variants" if number == 0 else "", line)
    if result.best is not None and result.best.variant.kept and result.best.variant.quantised:
        parts += labelled("in float", ", ".join(str(unit) for unit in result.best.variant.kept))
    return "\n".join(parts) + "".join("\n\n" + render_finding(f) for f in result.findings)


def row(judged: Judged, shipped: bool) -> tuple[str, ...]:
    top1 = judged.score.drop("top1")
    return (
        judged.variant.scheme,
        f"{judged.drop:.3%}",
        f"{judged.score.sqnr:.1f} dB",
        "–" if math.isnan(top1) else f"{1 - top1:.1%}",
        f"{judged.size_share:.0%}",
        "not taken" if judged.speed is None else str(judged.speed),
        "shipped" if shipped else "",
    )


def render_ranking(result: Sensitivity, most: int = 20) -> str:
    """What loses most first, with the error of each number where it is known."""
    ended = "" if result.finished else "; the time was up, more trials would make it surer"
    lines = [f"ranked  {len(result.ranked)} of {result.groups} groups in {result.trials} trials{ended}"]
    lines += labelled("drop by", f"{result.metric}; with everything quantised {result.all_quantised:.3%}")
    rows = [("", "quantised alone", "kept alone", "samples")]
    for number, one in enumerate(result.ranked[:most], 1):
        error = "" if one.alone_error is None else f" ± {2 * one.alone_error:.1e}"
        name = one.group.name if len(one.group.units) > 1 else str(one.group.units[0])
        rows.append((f"{number}. {name}", f"{one.alone:.2e}{error}", f"{one.kept:.2e}", str(one.samples)))
    lines += [f"  {line}" for line in aligned(rows, 2)]
    if len(result.ranked) > most:
        lines.append(f"  … {len(result.ranked) - most} more in ranking.json")
    kept = f"{len(result.do_not_quantize)} nodes in float bring the drop to {result.drop_without:.3%}"
    none = "everything may be quantised"
    lines += labelled("to keep", f"{kept if result.do_not_quantize else none} (asked for: {result.max_drop:.2%})")
    lines += labelled("written", f"{result.folder}: ranking.json, ranking.svg, do_not_quantize.json, trials.jsonl")
    return "\n".join(lines)
