"""Measure the memory that `locate` takes, next to plain inference: `python benchmarks/locate/memory.py`.

A model of more than a thousand nodes with activations of 2 MB each, one defect planted in the middle. Each way runs in
a separate process; peak resident memory, imports and the PyTorch model included.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
WAYS = ("plain", "locate", "everything")
BLOCKS, CHANNELS, SIDE = 150, 32, 128


def subject_of():  # type: ignore[no-untyped-def]  # torch is imported below, in the measured process only
    import torch
    from torch import nn

    from fairway.model.subject import build_subject

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.Conv2d(CHANNELS, CHANNELS, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 0.1 * torch.tanh(self.mix(x)) * torch.sigmoid(x) - 0.01 * x.abs()

    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(BLOCKS))).eval()
    lines = [f"input: float32[batch, {CHANNELS}, {SIDE}, {SIDE}]"]
    return build_subject(model, lines, bounds={"batch": (1, 2)}, example={"batch": 1})


def make(path: Path) -> int:
    """The file with one weight changed in the middle; answers the number of its nodes."""
    import onnx
    import torch
    from onnx import numpy_helper

    subject = subject_of()
    x = torch.zeros(1, CHANNELS, SIDE, SIDE)
    torch.onnx.export(subject.model, (x,), path, dynamo=False, input_names=["input"], dynamic_axes={"input": {0: "b"}})
    proto = onnx.load(path)
    weight = next(t for t in proto.graph.initializer if t.name == f"{BLOCKS // 2}.mix.weight")
    array = numpy_helper.to_array(weight).copy()
    array[0, 0] += 1
    weight.CopyFrom(numpy_helper.from_array(array, weight.name))
    onnx.save(proto, path)
    return len(proto.graph.node)


def run(way: str, path: Path) -> dict[str, object]:
    import numpy as np
    import onnx
    import onnxruntime
    import torch

    from fairway.judge.locate.locate import locate_error
    from fairway.judge.runtimes.eager import run_eager
    from fairway.model.sample import make_sample

    torch.set_num_threads(1)
    subject = subject_of()
    here = make_sample({"batch": 1})
    tensors = subject.make(here.sizes, 1, "normal")
    said = ""
    if way == "locate":
        got = locate_error(subject, str(path), here, tensors)
        said = f"{got.node}, module {got.where.module if got.where else '?'}"
    else:
        run_eager(subject, tensors)
        proto = onnx.load(path)
        if way == "everything":
            known = {output.name for output in proto.graph.output}
            more = [name for node in proto.graph.node for name in node.output if name not in known]
            proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in more)
        session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        session.run(None, {"input": np.asarray(tensors[0])})
    # Not getrusage, whose maximum a process inherits from the one that started it.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {"way": way, "peak_mb": int(status["VmHWM"].split()[0]) // 1024, "named": said}


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(run(sys.argv[1], Path(sys.argv[2]))))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "wrong.onnx"
        nodes = make(path)
        rows = []
        for way in WAYS:
            command = [sys.executable, __file__, way, str(path)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            rows.append(json.loads(done.stdout.splitlines()[-1]))
    plain = rows[0]["peak_mb"]
    result = {"nodes": nodes, "rows": rows, "locate over plain": round(rows[1]["peak_mb"] / plain, 2)}
    (HERE / "memory.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
