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
    Moment("fairway.weights.store:write_data", "before"),
    Moment("fairway.weights.store:write_data", "after"),
    Moment("fairway.weights.store:ir.save", "before"),
    Moment("fairway.weights.store:ir.save", "after"),
    Moment("fairway.weights.store:ir.save", "after", 1, "worker"),
    Moment("fairway.ladder.attempt:os.fork", "after", 3),
    Moment("fairway.ladder.judging:gather", "before"),
    Moment("fairway.ladder.judging:gather", "before", 1, "worker"),
    Moment("fairway.evidence.judge:run_eager", "after", 2),
    Moment("fairway.ladder.judging:gather", "after"),
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
    # Weights, record and model, in this order.
    Moment("fairway.workshop:os.replace", "before", 1),
    Moment("fairway.workshop:os.replace", "after", 1),
    Moment("fairway.workshop:os.replace", "before", 2),
    Moment("fairway.workshop:os.replace", "after", 2),
    Moment("fairway.workshop:os.replace", "before", 3),
    Moment("fairway.workshop:os.replace", "after", 3),
    Moment("fairway.workshop:_carry", "after"),
    Moment("fairway.workshop:shutil.rmtree", "before"),
    Moment("fairway.workshop:shutil.rmtree", "after"),
    Moment("fairway.ladder.attempt:Janitor.dismiss", "before"),
    Moment("fairway.ladder.attempt:Janitor.dismiss", "after"),
)

DELIVERING = MOMENTS[MOMENTS.index(Moment("fairway.exporting:deliver")) :]
"""Those at which something may already have been put in place."""
