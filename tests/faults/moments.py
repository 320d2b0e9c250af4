"""The moments of an export at which it is killed, in the order in which they are reached."""

from __future__ import annotations

from killing import Moment

MOMENTS = (
    Moment("fairway.convert.export:check_target", "before"),
    Moment("fairway.convert.export:preload_modules", "after"),
    Moment("fairway.workers.attempt:Janitor", "before"),
    Moment("fairway.workers.attempt:Janitor", "after"),
    Moment("fairway.workers.workshop:secrets.token_hex", "after"),
    Moment("fairway.workers.workshop:recover_folder", "before"),
    Moment("fairway.workers.workshop:Path.mkdir", "before"),
    Moment("fairway.workers.workshop:Path.mkdir", "after"),
    Moment("fairway.workers.workshop:Path.touch", "after"),
    Moment("fairway.workers.attempt:os.fork", "before", 1),
    Moment("fairway.workers.attempt:os.fork", "after", 1),
    Moment("fairway.convert.ladder.first_look:look_at_model", "before"),
    Moment("fairway.convert.ladder.first_look:look_at_model", "before", 1, "worker"),
    Moment("fairway.convert.ladder.first_look:look_at_model", "after"),
    Moment("fairway.workers.attempt:os.fork", "before", 2),
    Moment("fairway.convert.ladder.walk_rung:capture", "before"),
    Moment("fairway.convert.ladder.walk_rung:capture", "before", 1, "worker"),
    Moment("fairway.model.weight_storage:write_data", "before"),
    Moment("fairway.model.weight_storage:write_data", "after"),
    Moment("fairway.model.weight_storage:ir.save", "before"),
    Moment("fairway.model.weight_storage:ir.save", "after"),
    Moment("fairway.model.weight_storage:ir.save", "after", 1, "worker"),
    Moment("fairway.workers.attempt:os.fork", "after", 3),
    Moment("fairway.convert.ladder.judge_worker:gather_evidence", "before"),
    Moment("fairway.convert.ladder.judge_worker:gather_evidence", "before", 1, "worker"),
    Moment("fairway.judge.judge:run_eager", "after", 2),
    Moment("fairway.convert.ladder.judge_worker:gather_evidence", "after"),
    Moment("fairway.convert.ladder.walk_rung:weigh_evidence", "before"),
    Moment("fairway.convert.export:build_record", "after"),
    Moment("fairway.convert.export:deliver", "before"),
    Moment("fairway.record.delivery:strip_traces", "after"),
    Moment("fairway.record.delivery:hash_file", "before", 1),
    Moment("fairway.record.delivery:hash_file", "after", 2),
    Moment("fairway.record.delivery:commit_files", "before"),
    Moment("fairway.workers.workshop:flush_to_disk", "before", 3),
    Moment("fairway.workers.workshop:Path.rename", "before"),
    Moment("fairway.workers.workshop:Path.rename", "after"),
    # Weights, record and model, in this order.
    Moment("fairway.workers.workshop:os.replace", "before", 1),
    Moment("fairway.workers.workshop:os.replace", "after", 1),
    Moment("fairway.workers.workshop:os.replace", "before", 2),
    Moment("fairway.workers.workshop:os.replace", "after", 2),
    Moment("fairway.workers.workshop:os.replace", "before", 3),
    Moment("fairway.workers.workshop:os.replace", "after", 3),
    Moment("fairway.workers.workshop:_move_committed", "after"),
    Moment("fairway.workers.workshop:shutil.rmtree", "before"),
    Moment("fairway.workers.workshop:shutil.rmtree", "after"),
    Moment("fairway.workers.attempt:Janitor.dismiss", "before"),
    Moment("fairway.workers.attempt:Janitor.dismiss", "after"),
)

DELIVERING = MOMENTS[MOMENTS.index(Moment("fairway.convert.export:deliver")) :]
"""Those at which something may already have been put in place."""
