"""The points to export from."""

import torch

from fairway.judge.samples import choose_examples
from fairway.model.subject import build_subject


def _subject():
    bounds = {"batch": (1, 8), "time": (10, 2000)}
    return build_subject(torch.nn.Linear(63, 3), ["input: float32[batch, time, 63]"], bounds=bounds)


def test_two_examples_share_no_size():
    subject = _subject()
    first, second = choose_examples(subject, {})
    assert first == subject.example
    assert not {*first.values()} & {*second.values()}


def test_sizes_seen_wrong_are_taken_large_and_odd_ones_first():
    subject = _subject()
    first, second = choose_examples(subject, {"time": (40, 51, 63, 77, 80)})
    assert (first["time"], second["time"]) == (77, 51)  # 63 is another dim's own
    assert first["batch"] == subject.example["batch"]


def test_a_single_size_seen_wrong_is_taken_for_both():
    first, second = choose_examples(_subject(), {"time": (40,)})
    assert first["time"] == second["time"] == 40
