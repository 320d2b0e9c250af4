"""The wild corpus: models of packages from PyPI, by the corpus' runner and checker.

`python benchmarks/wild/run.py [--only NAME…] [--columns …]` takes the options of `benchmarks/corpus/run.py` and must
run in the environment that `benchmarks/wild/environment.py` makes. Rows go to rows.jsonl; `--write` sums them up.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
CORPUS = HERE.parent / "corpus"
# The corpus' modules go first: its runner is called run, too.
sys.path[:0] = [str(CORPUS), str(HERE.parent)]

from run import main, read  # noqa: E402  # the corpus' runner

if __name__ == "__main__":
    if "--write" in sys.argv:
        from summary import write

        write(read(HERE / "rows.jsonl"), HERE)
    else:
        main("wild", HERE)
