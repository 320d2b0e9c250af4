"""What people do without Fairway: build the model, load the checkpoint, call torch.onnx.export.

`python benchmarks/large/stock.py text_half CHECKPOINT out.onnx HOW`, where HOW is `dynamo` or `trace`, with the model
built as `from_pretrained` does, without drawing weights; `drawn`, dynamo after `Model(config)` and `load_state_dict`;
`layer`, one linear layer by dynamo after the same imports; `block`, the model with one block of each run of equal ones,
which is the least that any way costs which captures a block.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path

import torch
from safetensors.torch import load_file

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE)]


def main(recipe: str, checkpoint: Path, out: str, exporter: str) -> None:
    import models

    from fairway.subject.bare import assign, bare
    from fairway.subject.subject import build_subject
    from fairway.weights import repeats

    asked = getattr(models, recipe)
    if exporter == "layer":
        with torch.device("meta"):
            asked.model()  # transformers imports a class when it is asked for
        torch.onnx.export(torch.nn.Linear(4, 4), (torch.ones(1, 4),), out, dynamo=True, verbose=False)
        return
    with nullcontext() if exporter == "drawn" else bare():
        model = asked.model()
    index = json.loads((checkpoint / "model.safetensors.index.json").read_text())
    state = {}
    for shard in dict.fromkeys(index["weight_map"].values()):
        state.update(load_file(checkpoint / shard))
    if exporter == "drawn":
        model.load_state_dict(state, strict=False)  # tied weights are there once
    else:
        assign(model, state)
    del state
    if exporter == "block":
        repeats.KEPT = 1
        repeats.shorten(model, repeats.find_repeats(model))
    # Only for inputs of the same shapes and values as Fairway's.
    subject = build_subject(model, asked.inputs, bounds=asked.bounds, example=asked.example)
    tensors = tuple(subject.make(subject.example, 1, "normal"))
    names = list(subject.input_names)
    varying = [{axis: str(size) for axis, size in enumerate(s.shape) if size.names} for s in subject.spec]
    if exporter != "trace":
        shapes = tuple(dict.fromkeys(axes, torch.export.Dim.DYNAMIC) for axes in varying)
        torch.onnx.export(model, tensors, out, dynamo=True, dynamic_shapes=shapes, input_names=names, verbose=False)
    else:
        axes = dict(zip(names, varying, strict=True))
        torch.onnx.export(model, tensors, out, dynamo=False, dynamic_axes=axes, input_names=names)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4])
