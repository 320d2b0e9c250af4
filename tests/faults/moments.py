"""The moments of an export at which it is killed, in the order in which they are reached."""

from __future__ import annotations

from killing import Moment

MOMENTS = (
    Moment("fairway.exporting:check_target", "before"),
    Moment("fairway.exporting:warm_up", "after"),
    Moment("fairway.ladder.attempt:Janitor", "before"),
    Moment("fairway.ladder.attempt:Janitor", "after"),
    Moment("fairway.workshop:secrets.token_hex", "after"),
    Moment("fairway.workshop:recover", "before"),
    Moment("fairway.workshop:Path.mkdir", "before"),
    Moment("fairway.workshop:Path.mkdir", "after"),
    Moment("fairway.workshop:Path.touch", "after"),
    Moment("fairway.ladder.attempt:os.fork", "before", 1),
    Moment("fairway.ladder.attempt:os.fork", "after", 1),
    Moment("fairway.ladder.climb:_look", "before"),
    Moment("fairway.ladder.climb:_look", "before", 1, "worker"),
    Moment("fairway.ladder.climb:_look", "after"),
    Moment("fairway.ladder.attempt:os.fork", "before", 2),
    Moment("fairway.ladder.climb:capture", "before"),
    Moment("fairway.ladder.climb:capture", "before", 1, "worker"),
    Moment("fairway.ladder.finish:ir.save", "before"),
    Moment("fairway.ladder.finish:ir.save", "after"),
    Moment("fairway.ladder.finish:ir.save", "after", 1, "worker"),
    Moment("fairway.ladder.attempt:os.fork", "after", 3),
    Moment("fairway.ladder.climb:gather", "before"),
    Moment("fairway.ladder.climb:gather", "before", 1, "worker"),
    Moment("fairway.evidence.judge:run_eager", "after", 2),
    Moment("fairway.ladder.climb:gather", "after"),
    Moment("fairway.ladder.climb:_weigh", "before"),
    Moment("fairway.exporting:write_record", "after"),
    Moment("fairway.exporting:deliver", "before"),
    Moment("fairway.deliver:strip_traces", "after"),
    Moment("fairway.deliver:hash_file", "before", 1),
    Moment("fairway.deliver:hash_file", "after", 2),
    Moment("fairway.deliver:commit", "before"),
    Moment("fairway.workshop:_flush", "before", 3),
    Moment("fairway.workshop:Path.rename", "before"),
    Moment("fairway.workshop:Path.rename", "after"),
    # The first replacement is onnx-ir's own, inside the workshop; then come weights, record and model.
    Moment("fairway.workshop:os.replace", "before", 1),
    Moment("fairway.workshop:os.replace", "before", 2),
    Moment("fairway.workshop:os.replace", "after", 2),
    Moment("fairway.workshop:os.replace", "after", 3),
    Moment("fairway.workshop:os.replace", "before", 4),
    Moment("fairway.workshop:os.replace", "after", 4),
    Moment("fairway.workshop:_carry", "after"),
    Moment("fairway.workshop:shutil.rmtree", "before"),
    Moment("fairway.workshop:shutil.rmtree", "after"),
    Moment("fairway.ladder.attempt:Janitor.dismiss", "before"),
    Moment("fairway.ladder.attempt:Janitor.dismiss", "after"),
)

DELIVERING = MOMENTS[MOMENTS.index(Moment("fairway.exporting:deliver")) :]
"""Those at which something may already have been put in place."""
