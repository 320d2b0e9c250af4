"""Stamped blocks: `python benchmarks/blocks/run.py [--only NAME…] [--jobs N]`, then `--write`.

transformers' architectures of the corpus, eight layers deep, exported at the level none, which judges no file whose
blocks were stamped in error. The corpus's checker, which shares no code with Fairway, does it here; where it finds one
wrong, the same model is exported without stamping, to tell whose fault it is. Rows go to rows.jsonl at once and are not
run again.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "corpus")]

from rows import Rows, main  # noqa: E402  # from the benchmarks' own folder

DEPTH = 8
KEPT = 3
"""Blocks of a run that may be captured; those behind are stamped."""
LARGEST = 150_000_000
TIMEOUT = 240.0


def deepen() -> None:
    """The corpus's architectures with eight layers, of the kinds that the first eight of the default are of."""
    import architectures
    import tiny

    architectures.LARGEST = LARGEST
    layered, number = next(name for name, _ in tiny._SIZES if "num_hidden_layers" in name), tiny._number
    tiny._number = lambda name, value, *rest: (
        {name: DEPTH} if value > 1 and re.fullmatch(layered, name) else number(name, value, *rest)
    )
    tiny._LISTS = tiny._LISTS | dict.fromkeys(("depths", "depth", "num_block_repeats", "block_repeats"), DEPTH - 1)
    tiny._UNSAID = tiny._UNSAID | {"layer_types": ["full_attention"] * DEPTH}
    tiny._layers = layers


def layers(settings: dict[str, Any]) -> dict[str, Any]:
    for name in ("layer_types", "layers_block_type"):
        kinds = settings.get(name)
        if isinstance(kinds, list | tuple) and kinds:
            return {name: list(kinds[:DEPTH]), "num_hidden_layers": len(kinds[:DEPTH])}
    return {}


def work(name: str, folder: Path) -> dict[str, Any]:
    from architectures import find
    from check import legal

    from fairway.convert.blocks.repeats import find_repeats
    from fairway.convert.ladder import first_look

    deepen()
    case = find(name)
    why = legal(case)
    if why:
        return {"case": name, "outcome": "skipped", "note": why[:200]}
    runs = find_repeats(case.build())
    if not runs:
        return {"case": name, "outcome": "no run of equal blocks"}
    row = {"case": name, "runs": [f"{run.container} {run.count}" for run in runs], **export(case, folder / "out.onnx")}
    if row.get("blocks") and row["outcome"] != "right":
        with patch.object(first_look, "find_repeats", lambda model: ()):
            row["without stamping"] = export(case, folder / "plain.onnx")["outcome"]
    return row


def built(case: Any) -> Any:
    """The model, with zero biases and scales of one in blocks that may be captured, unlike in the others."""
    import torch

    model = case.build()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            numbers = [int(part) for part in name.split(".") if part.isdigit()]
            if weight.dim() <= 1 and numbers and max(numbers) < KEPT:
                weight.fill_(0 if name.endswith("bias") else 1)
    return model


def export(case: Any, path: Path) -> dict[str, Any]:
    from check import score

    import fairway

    result = fairway.export(
        built(case),
        list(case.lines),
        path,
        bounds=case.bounds,
        multiples=case.multiples,
        level="none",
        timeout=TIMEOUT / 2,
    )
    codes = [f.code for rung in result.record.ladder for f in rung.findings if f.code != "FW506"]
    blocks = [f"{one.container} {one.kept} of {one.count}" for one in result.record.blocks]
    told = {"blocks": blocks, "codes": codes, "route": result.route}
    if result.path is None:
        return {"outcome": "fails", **told}
    found = score(case, built(case).eval(), path, result.record.subject.example)
    return {"outcome": found.outcome, "note": found.note.replace(f"{path.parent}/", "")[:300], **told}


def table(rows: list[dict[str, Any]]) -> str:
    stamped = [row for row in rows if row.get("blocks")]
    kept = Counter(one.split()[1] for row in stamped for one in row["blocks"])
    whole = [row for row in rows if row.get("runs") and not row.get("blocks")]
    ours = [row for row in stamped if row.get("without stamping") == "right"]
    ended = [row for row in rows if row["outcome"] in ("timeout", "died", "memory")]
    counts = {
        "not built, or no case": sum(row["outcome"] == "skipped" for row in rows),
        "ended by a limit, or dead": len(ended),
        "without a run of equal blocks": sum(row["outcome"].startswith("no run") for row in rows),
        "with one, captured whole": len(whole),
        "stamped": len(stamped),
        "stamped, and right over the whole domain": sum(row["outcome"] == "right" for row in stamped),
        "stamped and not right, but right without stamping": len(ours),
    }
    lines = [
        "# Stamped blocks",
        "",
        "By `python benchmarks/blocks/run.py --jobs 2`, then `--write`.",
        "",
        f"{len(rows)} architectures of transformers, eight layers deep, exported at the level none.",
        "",
        "| | architectures |",
        "|---|---|",
        *(f"| {what} | {count} |" for what, count in counts.items()),
        "",
        f"Runs from which two blocks were captured: {kept['2']}; three: {kept['3']}.",
        "",
        "Stamped and not right:",
        "",
        "| architecture | stamped | without stamping | what |",
        "|---|---|---|---|",
    ]
    for row in stamped:
        if row["outcome"] != "right":
            cells = (row["case"], row["outcome"], row["without stamping"], row.get("note", ""))
            lines.append("| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    from architectures import names

    main(Rows(HERE, work, TIMEOUT), names, table)
