"""Compare the cost of a linear layer as Gemm with `transB` beside MatMul with a weight turned over.

By `python benchmarks/large/gemm.py`. Sizes are those of the text towers' layers, at one token and at many.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
from onnx_ir import tape

from fairway.tune.bench.paired_timing import Arm, time_in_rounds

HERE = Path(__file__).parent
LAYERS = ((896, 896), (896, 4864), (4864, 896), (2048, 2048), (2048, 11008), (11008, 2048))
TOKENS = (1, 16, 256)


def save(path: Path, width: int, features: int, gemm: bool) -> None:
    weight = np.random.default_rng(1).standard_normal((features, width), dtype=np.float32)
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["batch", "seq", width]))
    made = tape.Tape()
    if gemm:
        flat = made.op("Reshape", [x, made.initializer(ir.tensor([-1, width], name="flat"))])
        product = made.op("Gemm", [flat, made.initializer(ir.tensor(weight, name="w"))], {"transB": 1})
        leading = made.op("Shape", [x], {"start": 0, "end": -1})
        shape = made.op("Concat", [leading, made.initializer(ir.tensor([features], name="features"))], {"axis": 0})
        y = made.op("Reshape", [product, shape])
    else:
        y = made.op("MatMul", [x, made.initializer(ir.tensor(weight.T.copy(), name="w"))])
    y.name, y.dtype, y.shape = "y", ir.DataType.FLOAT, ir.Shape(["batch", "seq", features])
    graph = ir.Graph([x], [y], nodes=made.nodes, initializers=made.initializers, opset_imports={"": 20}, name="linear")
    ir.save(ir.Model(graph, ir_version=10), path)


def arm(name: str, path: Path, feeds: dict[str, Any]) -> Arm:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return Arm(name, lambda: session.run(None, feeds))


def main() -> None:
    lines = ["# A linear layer as Gemm", "", (__doc__ or "").strip().replace("\n", " "), ""]
    lines += ["| width | features | tokens | MatMul, ms | Gemm: times as fast |", "|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        for width, features in LAYERS:
            paths = {name: Path(folder) / f"{name}.onnx" for name in ("MatMul", "Gemm")}
            for name, path in paths.items():
                save(path, width, features, name == "Gemm")
            for tokens in TOKENS:
                x = np.random.default_rng(2).standard_normal((1, tokens, width), dtype=np.float32)
                seen = time_in_rounds([arm(name, path, {"x": x}) for name, path in paths.items()], seconds=3)
                milliseconds = 1000 * seen.percentiles("MatMul")[0]
                ratio = seen.ratio("Gemm", "MatMul")
                lines.append(f"| {width} | {features} | {tokens} | {milliseconds:.2f} | {ratio} |")
                print(lines[-1], flush=True)
    (HERE / "gemm.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
