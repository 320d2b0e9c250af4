"""Swipes over a QWERTY keyboard, drawn for a word by a hand that is quick and not quite exact."""

import numpy as np
import torch
from model import EOS, LONGEST_TRACE, PAD, SOS, TOKENS

WORDS = """
able about above across after again against all almost along also always among and animal another answer any around
ask away back because been before began being below between big book both boy but came can car change city close
come could country cut day did different does done door down draw each earth eat end enough even ever every eye
face family far father feet few find first follow food for found four from gave get girl give good great group grow
had hand hard has have head hear help her here high him his home house how idea important into just keep kind know
land large last later learn leave left letter life light like line list little live long look made make man many
may mean might mile more most mother mountain move much must name near need never new next night now number off
often old once only open other our out over own page paper part people place plant play point put question quick
read real right river run said same saw say school sea second see seem set she should show side small some song soon
sound stop story study such take talk than
""".split()

ROWS = [("qwertyuiop", 0.05, 1 / 6), ("asdfghjkl", 0.10, 3 / 6), ("zxcvbnm", 0.20, 5 / 6)]
KEYS = {letter: (left + 0.1 * i, y) for letters, left, y in ROWS for i, letter in enumerate(letters)}
CENTRES = np.array([KEYS[letter] for letter in TOKENS[4:]])


def tokens(word):
    return [SOS, *(TOKENS.index(letter) for letter in word), EOS]


def swipe(word, rng):
    """The points of one swipe, float[n, 2] in 0..1: through every key, corners cut, slower near the keys."""
    stops = np.array([KEYS[letter] for letter in word]) + rng.normal(0, [0.014, 0.045], (len(word), 2))
    per_leg = rng.uniform(5, 11)
    pieces = [stops[:1]]
    for start, end in zip(stops[:-1], stops[1:], strict=True):
        count = max(2, round(per_leg * (0.4 + 1.5 * np.linalg.norm(end - start))))
        eased = (1 - np.cos(np.pi * np.arange(1, count + 1) / count)) / 2
        pieces.append(start + eased[:, None] * (end - start))
    points = np.concatenate(pieces)
    padded = np.pad(points, ((1, 1), (0, 0)), mode="edge")
    points = 0.25 * padded[:-2] + 0.5 * padded[1:-1] + 0.25 * padded[2:]
    points = points + rng.normal(0, 0.004, points.shape)
    if len(points) < 4:
        points = np.repeat(points, 4, axis=0)
    return np.clip(points[:LONGEST_TRACE], 0, 1)


def features(points):
    """`(trajectory float32[n, 6], nearest_key int64[n])`: place, velocity, acceleration, and the key beneath."""
    velocity = np.diff(points, axis=0, prepend=points[:1]) * 20
    acceleration = np.diff(velocity, axis=0, prepend=velocity[:1])
    trajectory = np.concatenate([points, np.clip(velocity, -10, 10), np.clip(acceleration, -10, 10)], axis=1)
    distance = ((points[:, None, :] - CENTRES) / [0.1, 1 / 3]) ** 2
    return trajectory.astype(np.float32), distance.sum(-1).argmin(1) + 4


def _stack(rows, fill, dtype):
    longest = max(len(row) for row in rows)
    out = torch.full((len(rows), longest, *np.shape(rows[0])[1:]), fill, dtype=dtype)
    for i, row in enumerate(rows):
        out[i, : len(row)] = torch.as_tensor(np.asarray(row), dtype=dtype)
    return out


def batch_of(words, rng):
    """`(trajectory, nearest_key, padding, target)`, padded on the right; `padding` is True at pads."""
    trajectories, keys = zip(*(features(swipe(word, rng)) for word in words), strict=True)
    padding = _stack([[False] * len(row) for row in keys], True, torch.bool)
    return (
        _stack(trajectories, 0.0, torch.float32),
        _stack(keys, PAD, torch.int64),
        padding,
        _stack([tokens(word) for word in words], PAD, torch.int64),
    )


def held_out(count=200, seed=2024):
    """`count` traces, each with the word meant; training never draws from this seed."""
    rng = np.random.default_rng([seed, 1])
    words = [WORDS[i % len(WORDS)] for i in range(count)]
    return [(word, features(swipe(word, rng))) for word in words]
