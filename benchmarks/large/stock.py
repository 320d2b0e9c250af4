"""Export as people do without Fairway: build the model, load the checkpoint, call torch.onnx.export.

`python benchmarks/large/stock.py text_half CHECKPOINT out.onnx HOW`, where HOW is `dynamo` or `trace`, with the model
built as `from_pretrained` does, without drawing weights; `drawn`, dynamo after `Model(config)` and `load_state_dict`;
`layer`, one linear layer by dynamo after the same imports; `block`, the model with one block of each run of equal ones,
which shows how much of an export is not the depth. `fairway` is `fairway.export` at the level none, to
compare the calls alone: what each took of the CPU, without imports and loading, is the last line printed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE)]


def main(recipe: str, checkpoint: Path, out: str, exporter: str) -> None:
    import models

    from fairway.convert.blocks import repeats
    from fairway.model.meta_build import assign_state, build_without_parameters
    from fairway.model.subject import build_subject

    asked = getattr(models, recipe)
    if exporter == "fairway":
        with_fairway(recipe, checkpoint, out)
        return
    if exporter == "layer":
        with build_without_parameters():
            asked.model()  # transformers imports a class when it is asked for
        layer, given = torch.nn.Linear(4, 4), (torch.ones(1, 4),)
        timed(lambda: torch.onnx.export(layer, given, out, dynamo=True, verbose=False))
        return
    with nullcontext() if exporter == "drawn" else build_without_parameters():
        model = asked.model()
    index = json.loads((checkpoint / "model.safetensors.index.json").read_text())
    state = {}
    for shard in dict.fromkeys(index["weight_map"].values()):
        state.update(load_file(checkpoint / shard))
    if exporter == "drawn":
        model.load_state_dict(state, strict=False)  # tied weights are there once
    else:
        assign_state(model, state)
    del state
    if exporter == "block":
        repeats.MIN_BLOCKS = 3  # a tower of four blocks counts too
        repeats.shorten_model(model, tuple(replace(run, kept=1) for run in repeats.find_repeats(model)))
    # Only for inputs of the same shapes and values as Fairway's.
    subject = build_subject(model, asked.inputs, bounds=asked.bounds, example=asked.example)
    tensors = tuple(subject.make(subject.example, 1, "normal"))
    names = list(subject.input_names)
    varying = [{axis: str(size) for axis, size in enumerate(s.shape) if size.names} for s in subject.spec]
    if exporter != "trace":
        shapes = tuple(dict.fromkeys(axes, torch.export.Dim.DYNAMIC) for axes in varying)
        how = {"dynamo": True, "dynamic_shapes": shapes, "verbose": False}
    else:
        how = {"dynamo": False, "dynamic_axes": dict(zip(names, varying, strict=True))}
    timed(lambda: torch.onnx.export(model, tensors, out, input_names=names, **how))


def with_fairway(recipe: str, checkpoint: Path, out: str) -> None:
    from fairway.convert.export import export_subject, make_settings
    from fairway.model.recipe import Overrides, load_subject
    from fairway.workers.attempt import Limits

    subject = load_subject(f"{HERE / 'models.py'}:{recipe}", Overrides(checkpoint=checkpoint))
    settings = make_settings("none", (), None, True, Limits(3000.0, 0), "link")
    timed(lambda: export_subject(subject, Path(out), settings))


def timed(call: Callable[[], object]) -> None:
    """Calls it, and tells its share of the CPU, processes that it started included."""
    before = os.times()
    call()
    print("the call alone:", round(sum(os.times()[:4]) - sum(before[:4]), 1), "CPU-seconds")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4])
