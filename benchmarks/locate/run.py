"""Count how often the planted node is named: `python benchmarks/locate/run.py [--models …]`.

Sixty defects, five kinds in each of twelve exported models (both exporters). Each is proven to change an answer first.
Every file is looked into three times: with PyTorch's values alone, beside a file exported again, and beside such a file
after ONNX Runtime has optimized the wrong one. Rows go to rows.jsonl, the sums to results.md.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "mutants")]

from graph import load  # noqa: E402  # the path is set above
from models import MODELS, right_file  # noqa: E402
from mutate import MUTATIONS, Mutant, write  # noqa: E402
from prove import Witness, build_pool, know, prove  # noqa: E402

from fairway.judge.gather import JudgeRequest, gather_evidence  # noqa: E402
from fairway.judge.judge import make_sample_inputs  # noqa: E402
from fairway.judge.locate.locate import locate_error  # noqa: E402
from fairway.workers.attempt import Limits, Workers  # noqa: E402

NAMES = (
    "mlp",
    "images",
    "recurrent",
    "attending",
    "reader",
    "decoder",
    "heads",
    "half",
    "sums",
    "wave",
    "stepping",
    "pooling",
)
KINDS = {
    "attribute off by one": "attribute changed",
    "axis changed": "axes swapped",
    "weight perturbed": "constant perturbed",
    "dim fixed": "dim baked",
    "cast narrowed": "cast narrowed",
}
WAYS = ("PyTorch alone", "exported again", "optimized")


@dataclass(frozen=True)
class Planted:
    """The values of the nodes that were changed, and of those right after."""

    at: frozenset[str]
    after: frozenset[str]


def planted(source: Path, wrong: Path) -> Planted:
    """Told from the files themselves: nodes that are new or differ, and those that read a changed weight."""
    before, now = onnx.load(source).graph, onnx.load(wrong).graph
    weights = {t.name: t.SerializeToString() for t in before.initializer}
    changed = {t.name for t in now.initializer if t.name in weights and weights[t.name] != t.SerializeToString()}
    known = {_sign(node) for node in before.node}
    hit = [n for n in now.node if n.op_type != "Constant" and (_sign(n) not in known or changed & set(n.input))]
    at = {name for node in hit for name in node.output}
    after = {name for node in now.node if at & set(node.input) for name in node.output}
    return Planted(frozenset(at), frozenset(after - at))


def surviving(where: Planted, wrong: Path, shown: Path) -> Planted:
    """Return the first values after the planted nodes that are left, if an optimizer has folded these nodes away."""
    there = {name for node in onnx.load(shown).graph.node for name in node.output}
    if where.at & there:
        return where
    reached, found = set(where.at), set()
    for node in onnx.load(wrong).graph.node:
        if reached & set(node.input):
            (found if there & set(node.output) else reached).update(node.output)
    return Planted(where.at, where.after | frozenset(found))


def _sign(node: Any) -> Any:
    attributes = tuple(sorted(a.SerializeToString() for a in node.attribute))
    return node.op_type, tuple(node.input), tuple(node.output), attributes


def optimized(path: Path) -> Path:
    """As ONNX Runtime writes a file that it has optimized."""
    target = path.with_suffix(".optimized.onnx")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(target)
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return target


def look(subject: Any, path: Path, against: list[str], where: Planted) -> dict[str, Any]:
    """Judges a file as `verify` does, and locates at the failing sample."""
    names = [output.name for output in onnx.load(path).graph.output]
    started = time.monotonic()
    evidence = gather_evidence(subject, JudgeRequest(str(path), names, "standard"), lambda event: None)
    if not evidence.failing:
        return {"named": "not found wrong"}
    one = evidence.failing[0]
    got = locate_error(subject, str(path), one, make_sample_inputs(subject, one, []), against)
    named = "planted" if got.value in where.at else "right after" if got.value in where.after else "elsewhere"
    return {"named": named, "node": f"{got.node} ({got.operator})", "seconds": round(time.monotonic() - started, 1)}


def apart(work: Callable[[], Any], otherwise: Any) -> Any:
    """Run in a separate process, because a wrong file can crash a runtime."""
    with Workers(Limits(300.0)) as workers:
        got = workers.run(lambda tell: work())
    return got.value if got.status == "done" else otherwise


def plant(name: str, folder: Path) -> list[dict[str, Any]]:
    """Five defects: one of each kind, and where a model has no place for a kind, more of the others in turn."""
    subject = MODELS[name].subject(name)
    source, again = right_file(name, folder, "quick"), right_file(name, folder / "again", "quick")
    pool = build_pool(source, subject.spec, subject.domain, dict(subject.example))
    known = know(source, subject.spec, subject.domain, dict(subject.example), pool.feeds[0])
    target = folder / f"{name}.wrong.onnx"
    left = {kind: _places(name, kind, source, known) for kind in KINDS}
    rows: list[dict[str, Any]] = []
    while len(rows) < len(KINDS) and any(left.values()):
        for kind, called in KINDS.items():
            if len(rows) == len(KINDS) or not _proven(name, kind, left[kind], source, known, pool, target):
                continue
            where = planted(source, target)
            row: dict[str, Any] = {"model": name, "route": MODELS[name].route, "kind": called}
            row["place"] = left[kind].pop(0)
            for way in WAYS:
                path = apart(lambda: optimized(target), None) if way == "optimized" else target
                against = [] if way == "PyTorch alone" else [str(again)]
                if way == "optimized" and path is not None:
                    where = surviving(where, target, path)
                died = {"named": "nowhere: the runtime died"}
                # The runtime refuses to load some files; then there is none that it has optimized.
                row[way] = (
                    apart(lambda p=path, a=against, w=where: look(subject, p, a, w), died)
                    if path
                    else {"named": row["exported again"]["named"], "note": "refused, so not optimized"}
                )
            rows.append(row)
            print(name, called, row["place"], {way: row[way]["named"] for way in WAYS}, flush=True)
    return rows


def _places(name: str, kind: str, source: Path, known: Any) -> list[str]:
    """Every place for a kind, in an order drawn at random. No node is to blame for what an input declares."""
    places = dict.fromkeys(place for place, _ in MUTATIONS[kind](load(source), known) if "declared" not in place)
    return random.Random(f"{name}{kind}").sample(list(places), len(places))


def _proven(name: str, kind: str, places: list[str], source: Path, known: Any, pool: Any, target: Path) -> bool:
    """Drops places until the first is one at which a defect changes an answer."""
    while places:
        write(Mutant(name, kind, places[0]), source, known, target)
        if apart(lambda: isinstance(prove(target, pool), Witness), False) and planted(source, target).at:
            return True
        places.pop(0)
    return False


def table(rows: list[dict[str, Any]]) -> str:
    lines = [f"{len(rows)} defects in {len({row['model'] for row in rows})} models.", ""]
    lines += ["| looked into with | planted node | the one right after | elsewhere | named |", "|---|---|---|---|---|"]
    for way in WAYS:
        said = [row[way]["named"] for row in rows]
        at, after = said.count("planted"), said.count("right after")
        lines.append(f"| {way} | {at} | {after} | {len(said) - at - after} | {(at + after) / len(said):.1%} |")
    lines += ["", "| kind | " + " | ".join(WAYS) + " |", "|---|" + "---|" * len(WAYS)]
    for kind in KINDS.values():
        mine = [row for row in rows if row["kind"] == kind]
        good = [sum(row[way]["named"] in ("planted", "right after") for row in mine) for way in WAYS]
        lines.append(f"| {kind} | " + " | ".join(f"{n} of {len(mine)}" for n in good) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="*", default=NAMES)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.models:
            rows += plant(name, Path(folder))
    if tuple(args.models) == NAMES:
        (HERE / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        head = "# Where the error begins\n\nBy `python benchmarks/locate/run.py`.\n\n"
        (HERE / "results.md").write_text(head + table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
