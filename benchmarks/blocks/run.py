"""Stamped blocks: `python benchmarks/blocks/run.py [--only NAME…] [--jobs N]`, then `--write`.

transformers' architectures of the corpus, eight layers deep, exported at the level none, where nobody judges a file
whose blocks were stamped in error. The corpus's checker, which shares no code with Fairway, does it here; where it
finds one wrong, the same model is exported without stamping, to tell whose fault it is. Rows go to rows.jsonl at once
and are not run again.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "corpus")]
ROWS = HERE / "rows.jsonl"

DEPTH = 8
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

    from fairway.ladder import climb
    from fairway.weights.repeats import find_repeats

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
        with patch.object(climb, "find_repeats", lambda model: ()):
            row["without stamping"] = export(case, folder / "plain.onnx")["outcome"]
    return row


def export(case: Any, path: Path) -> dict[str, Any]:
    from check import score

    import fairway

    result = fairway.export(
        case.build(), list(case.lines), path, bounds=case.bounds, multiples=case.multiples, level="none",
        timeout=TIMEOUT / 2,
    )  # fmt: skip
    codes = [f["code"] for rung in result.record["ladder"] for f in rung["findings"] if f["code"] != "FW506"]
    blocks = [f"{one['container']} {one['kept']} of {one['count']}" for one in result.record["blocks"]]
    told = {"blocks": blocks, "codes": codes, "route": result.route}
    if result.path is None:
        return {"outcome": "fails", **told}
    found = score(case, case.build().eval(), path, result.record["subject"]["example"])
    return {"outcome": found.outcome, "note": found.note.replace(f"{path.parent}/", "")[:300], **told}


def apart(name: str) -> dict[str, Any]:
    from fairway.ladder.attempt import Limits, Workers

    with tempfile.TemporaryDirectory() as folder, Workers(Limits(TIMEOUT)) as workers:
        got = workers.run(lambda tell: work(name, Path(folder)))
    if got.status == "done":
        return dict(got.value)
    said = f"{got.failure.kind}: {got.failure.message}" if got.failure else got.status
    outcome = "skipped" if got.status == "raised" else got.status
    return {"case": name, "outcome": outcome, "note": " ".join(said.replace(f"{HERE.parents[1]}/", "").split())[:200]}


def rows_of(names: list[str], jobs: int) -> Iterator[dict[str, Any]]:
    from warm import warm_up

    warm_up()
    with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
        for done in as_completed([pool.submit(apart, name) for name in names]):
            yield done.result()


def read() -> list[dict[str, Any]]:
    lines = ROWS.read_text().splitlines() if ROWS.exists() else []
    return sorted({row["case"]: row for row in map(json.loads, lines)}.values(), key=lambda row: str(row["case"]))


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
        "# Stamped blocks", "", "By `python benchmarks/blocks/run.py --jobs 2`, then `--write`.", "",
        f"{len(rows)} architectures of transformers, eight layers deep, exported at the level none.", "",
        "| | architectures |", "|---|---|", *(f"| {what} | {count} |" for what, count in counts.items()), "",
        f"Runs from which two blocks were captured: {kept['2']}; three: {kept['3']}.", "",
        "Stamped and not right:", "", "| architecture | stamped | without stamping | what |", "|---|---|---|---|",
    ]  # fmt: skip
    for row in stamped:
        if row["outcome"] != "right":
            cells = (row["case"], row["outcome"], row["without stamping"], row.get("note", ""))
            lines.append("| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    if args.write:
        (HERE / "results.md").write_text(table(read()))
        return
    from architectures import names

    known = {row["case"] for row in read()}
    asked = [f"arch/{name}" for name in args.only] if args.only else [name for name in names() if name not in known]
    for row in rows_of(asked, args.jobs):
        with ROWS.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(row, flush=True)


if __name__ == "__main__":
    main()
