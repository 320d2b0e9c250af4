"""`draw_texts.py` draws as many texts as it should, and `judgment.md` has an entry for each of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import draw_texts as draw

JUDGMENT = Path(__file__).with_name("judgment.md").read_text()


@pytest.mark.parametrize("seed", draw.SEEDS)
@pytest.mark.parametrize(("kind", "count"), draw.DRAWN_COUNTS.items())
def test_every_drawn_text_is_judged(seed: str, kind: str, count: int) -> None:
    places = list(draw.draw(seed, kind))
    assert len(places) == count
    part = JUDGMENT.split(f"## Draw {seed}\n")[1].split("\n## Draw")[0].split(f"### {kind}:")[1].split("\n### ")[0]
    entries = dict(re.findall(r"^- `(.*)`: (.+)$", part, re.MULTILINE))
    assert len(entries) >= count
    # Texts are moved and added, so older draws would differ today. The last one must still be nearly the same.
    if seed == draw.SEEDS[-1]:
        assert len(set(places) - set(entries)) <= len(places) // 10, "draw and judge again"
    assert all(re.match(r"(1\. )?(keep|rewrite: )", verdict) for verdict in entries.values())


def test_the_script_prints_the_texts_with_their_places() -> None:
    script = Path(__file__).with_name("draw_texts.py")
    done = subprocess.run([sys.executable, str(script), draw.SEEDS[0]], capture_output=True, text=True, check=True)
    for kind in draw.DRAWN_COUNTS:
        place = next(iter(draw.draw(draw.SEEDS[0], kind)))
        assert f"{kind} 1: {place}\n" in done.stdout
