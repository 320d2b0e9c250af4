"""Repeats the team's export with stock torch.onnx, then asks two questions that the team did not ask.

The call is the one in their write-up: `dynamo=False`, opset 14, ten receivers in the dummy batch, the
batch dimension dynamic. `onnx.checker` passes. Then the same file is run on receivers other than the
dummy's, and on fewer of them.
"""

import contextlib
import io
import os
import sys
import tempfile
import warnings

import numpy as np
import onnx
import onnxruntime as ort
import torch
from make_weights import heimdall_net, heimdall_net_pro, random_recordings

INPUTS = ["iq_data", "features", "positions", "receiver_ids", "mask"]
OUTPUTS = ["positions", "uncertainties"]


def export(model, recordings, path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.onnx.export(
            model,
            recordings,
            path,
            dynamo=False,
            opset_version=14,
            input_names=INPUTS,
            output_names=OUTPUTS,
            dynamic_axes={name: {0: "batch"} for name in INPUTS + OUTPUTS},
        )
    onnx.checker.check_model(path)
    return sum("Converting a tensor to a Python number" in str(w.message) for w in caught)


def shape(value):
    return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]


def distance(model, session, recordings):
    """The largest difference between the file and PyTorch, or what the runtime said instead."""
    with torch.no_grad():
        expected = model(*recordings)
    feeds = {i.name: t.numpy() for i, t in zip(session.get_inputs(), recordings, strict=True)}
    try:
        actual = session.run(None, feeds)
    except Exception as error:  # onnxruntime's own classes share no public base
        return f"onnxruntime refuses ({type(error).__name__})"
    for name, found in zip(OUTPUTS, actual, strict=True):
        if found.shape != expected[name].shape:
            return f"{name} has shape {found.shape}, PyTorch's has {tuple(expected[name].shape)}"
    return f"{max(np.abs(expected[name].numpy() - found).max() for name, found in zip(OUTPUTS, actual)):.1g}"


def refusal(model, recordings):
    """Return the message of the new exporter, which the team gave up on, about the same model."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # on failure torch prints the whole graph, 200 kB
            torch.export.export(model, recordings, strict=False)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    return "nothing"


def look_at(name, build):
    model = build()
    torch.manual_seed(0)
    dummy = random_recordings(batch=1, receivers=10)
    other_ids = (*dummy[:3], (dummy[3] + 3) % 10, dummy[4])
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "team.onnx")
        frozen = export(model, dummy, path)
        graph = onnx.load(path).graph
        session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])

    print(f"{name}: exported, onnx.checker passed")
    print(f"  values frozen by the trace, warned of: {frozen}")
    print(f"  torch.export says: {refusal(model, dummy)}")
    print("  inputs:")
    for value in graph.input:
        print(f"    {value.name} {shape(value)}")
    print(f"  outputs: {', '.join(v.name for v in graph.output)}")
    with torch.no_grad():
        size = float(model(*random_recordings(16, 10))["positions"].std())
    print(f"  distance from PyTorch (positions vary by {size:.1g}):")
    print(f"    the dummy's own receivers     {distance(model, session, dummy)}")
    print(f"    other receiver ids            {distance(model, session, other_ids)}")
    for batch, receivers in ((4, 10), (1, 5)):
        answer = distance(model, session, random_recordings(batch, receivers))
        print(f"    batch {batch}, {receivers:2} receivers         {answer}")


def main():
    torch.set_num_threads(1)
    ort.set_default_logger_severity(4)
    for name, build in {"HeimdallNet": heimdall_net, "HeimdallNetPro": heimdall_net_pro}.items():
        look_at(name, build)
    return 0


if __name__ == "__main__":
    sys.exit(main())
