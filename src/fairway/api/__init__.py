"""The Python functions behind the commands. `import fairway` offers all of them as `fairway.NAME`.

`from_model` has the functions that take a model and its inputs, `from_file` those that take an ONNX file.
"""

from fairway.api.from_file import bench, optimize, publish, pull, quantize, run, sensitivity, serve
from fairway.api.from_model import export, export_generation, locate, reduce, verify

__all__ = [
    "bench",
    "export",
    "export_generation",
    "locate",
    "optimize",
    "publish",
    "pull",
    "quantize",
    "reduce",
    "run",
    "sensitivity",
    "serve",
    "verify",
]
