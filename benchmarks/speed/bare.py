"""One bare torch.onnx.export call, as a user would write it: `python bare.py NAME OUT`."""

import sys

import torch
from models import MODELS

from fairway.model.subject import build_subject

recipe = MODELS[sys.argv[1]]
subject = build_subject(recipe.model(), recipe.inputs, bounds=recipe.bounds)
tensors = dict(zip(subject.input_names, subject.make(subject.example, 1, "normal"), strict=True))
axes = {s.name: {a: torch.export.Dim.DYNAMIC for a, d in enumerate(s.shape) if d.names} for s in subject.spec}
torch.onnx.export(subject.model, (), sys.argv[2], kwargs=tensors, dynamic_shapes=axes, dynamo=True, verbose=False)
