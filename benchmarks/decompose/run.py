"""Decomposition by node and by torch: `python benchmarks/decompose/run.py [--only NAME…] [--jobs N]`, then `--write`.

Every case of the corpus is exported at the level none, and each program that is captured on the way is decomposed in
both ways; then it is exported by torch's way alone. Where the two come to different operators, or to another route,
their files are scored by the corpus's checker, which shares no code with Fairway. Rows go to rows.jsonl at once and are
not run again.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "corpus")]

from rows import Rows, main  # noqa: E402  # from the benchmarks' own folder

TIMEOUT = 240.0
NONE = ("sym_size", "_assert", "clone", "lift_fresh_copy")


def work(name: str, folder: Path) -> dict[str, Any]:
    from check import legal
    from corpus import find

    case = find(name)
    why = legal(case)
    if why:
        return {"case": name, "outcome": "skipped", "note": why[:200]}
    notes = folder / "notes.jsonl"
    with both_ways(notes):
        ours = export(case, folder / "out.onnx").route
    with patch("fairway.convert.ladder.capture_export.decompose_by_node", nullcontext):
        theirs = export(case, folder / "torchs.onnx").route
    programs = [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []
    row: dict[str, Any] = {"case": name, "programs": programs, "route": ours}
    if not programs:
        return row | {"outcome": "not captured by torch.export"}
    if ours != theirs or any(one["more"] or one["fewer"] for one in programs):
        row |= {"node by node": scored(case, folder / "ours.onnx")}
        with patch("fairway.convert.ladder.capture_export.decompose_by_node", nullcontext):
            row |= {"torch's": scored(case, folder / "theirs.onnx")}
        return row | {"outcome": "another graph"}
    return row | {"outcome": "left to torch" if all(one["whole"] for one in programs) else "the same operators"}


def export(case: Any, path: Path) -> Any:
    import fairway

    return fairway.export(
        case.build(),
        list(case.lines),
        path,
        bounds=case.bounds,
        multiples=case.multiples,
        level="none",
        timeout=TIMEOUT / 4,
    )


def scored(case: Any, path: Path) -> str:
    from check import score

    result = export(case, path)
    if result.path is None:
        return "fails"
    found = score(case, case.build().eval(), path, result.record.subject.example)
    return f"{found.outcome}, {result.route}"


@contextmanager
def both_ways(notes: Path) -> Iterator[None]:
    """Within, what Fairway captures is decomposed by torch first, then by Fairway, and a line is written of the two."""
    from torch.onnx._internal.exporter import _fx_passes  # private; seen in torch 2.13

    from fairway.convert.ladder import capture_export

    plain = capture_export.decompose_by_node

    @contextmanager
    def by_both() -> Iterator[None]:
        torchs = _fx_passes.decompose_with_registry
        with plain():
            ours = _fx_passes.decompose_with_registry

            def decompose(program: Any, registry: Any) -> Any:
                started = time.process_time()
                theirs = operators(torchs(program, registry))
                between = time.process_time()
                with reasons() as why:
                    made = ours(program, registry)
                seconds = [round(between - started, 3), round(time.process_time() - between, 3)]
                here = operators(made)
                told = {
                    "whole": why[0].partition(": ")[2] if why else "",
                    "operators": here.total(),
                    "seconds": seconds,
                    "more": dict(here - theirs),
                    "fewer": dict(theirs - here),
                }
                with notes.open("a") as file:
                    file.write(json.dumps(told) + "\n")
                return made

            with patch.object(_fx_passes, "decompose_with_registry", decompose):
                yield

    with patch.object(capture_export, "decompose_by_node", by_both):
        yield


@contextmanager
def reasons() -> Iterator[list[str]]:
    """Record the reasons for which programs are left to torch inside the block."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("fairway.convert.ladder.decompose")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    before = logging.root.manager.disable
    logging.disable(logging.NOTSET)
    try:
        yield said
    finally:
        logging.disable(before)
        logger.removeHandler(handler)


def operators(program: Any) -> Counter[str]:
    """With the dtype and shape of what comes out. What leaves no node in a file is not among them: sizes, assertions,
    and clones, of which there are more where a value's layout is not the one that torch sees the second time.
    """
    import torch

    return Counter(
        f"{node.target} {told(node.meta.get('val'))}"
        for module in program.graph_module.modules()
        for node in module.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload) and not node.name.startswith(NONE)
    )


def told(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(told, value))
    return f"{value.dtype} {[*value.shape]}" if hasattr(value, "dtype") else type(value).__name__


def table(rows: list[dict[str, Any]]) -> str:
    taken = [one for row in rows for one in row.get("programs", ()) if not one["whole"]]
    ratios = sorted(one["seconds"][0] / max(one["seconds"][1], 0.001) for one in taken)
    lines = [
        "# Decomposition node by node",
        "",
        "By `python benchmarks/decompose/run.py --jobs 2`, then `--write`.",
        "",
        f"{len(rows)} cases of the corpus.",
        "",
        "| | cases |",
        "|---|---|",
        *(f"| {what} | {count} |" for what, count in Counter(row["outcome"] for row in rows).most_common()),
        "",
    ]
    if ratios:
        low, high = (ratios[int(share * (len(ratios) - 1))] for share in (0.1, 0.9))
        lines += [
            f"{len(taken)} programs were decomposed node by node. torch took {median(ratios):.1f} times as much CPU "
            f"time in the median, {low:.1f} to {high:.1f} times in four of five.",
            "",
        ]
    lines += ["Another graph:", "", "| case | node by node | torch's | more | fewer |", "|---|---|---|---|---|"]
    for row in rows:
        if row["outcome"] == "another graph":
            sides = [
                "; ".join(f"{count}× {op}" for one in row["programs"] for op, count in one[side].items())
                for side in ("more", "fewer")
            ]
            cells = (row["case"], row["node by node"], row["torch's"], *(side[:200] for side in sides))
            lines.append("| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    from corpus import names

    main(Rows(HERE, work, TIMEOUT), names, table)
