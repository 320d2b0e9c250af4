"""results.md from the rows."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

HEAD = """# Paired timing, judged

`python benchmarks/bench/run.py`, then `--write`. {about}
A model against itself: arm b is the same file, or the same file made slower by spending that share
of each call's own time in a loop. `noisy` has a neighbor that burns a core at random moments. A difference is claimed
where the 99 % interval excludes 1.

The interval's constants were settled while this ran. With two processes tries 0 to 18, with one process tries 0 to 75,
and those of slower arms were measured before that and judged again from their durations; the others came after.

| a call takes | arms in | neighbor | arm b | tries | claimed to differ | median width | off by, median |
|---|---|---|---|---|---|---|---|
"""


def write(rows: list[dict[str, Any]]) -> str:
    groups: dict[tuple[str, str, bool, int], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["model"], row["way"], row["noisy"], row["slower"]].append(row)
    lines = []
    for (model, way, noisy, slower), some in sorted(groups.items()):
        truth = 1 / (1 + slower / 100)
        widths = sorted(row["high"] - row["low"] for row in some)
        off = sorted(abs(row["value"] / truth - 1) for row in some)
        what = f"{slower} % slower" if slower else "the same"
        claimed = sum(row["differs"] for row in some)
        lines.append(
            f"| {model} | {way} | {'noisy' if noisy else 'quiet'} | {what} | {len(some)} | {claimed} | "
            f"{widths[len(widths) // 2]:.3f} | {off[len(off) // 2]:.2%} |"
        )
    about = f"{len(rows)} comparisons, one second for each arm, on two cores that others were using too."
    return HEAD.format(about=about) + "\n".join(lines) + "\n"
