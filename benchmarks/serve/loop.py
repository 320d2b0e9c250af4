"""An onnxruntime loop with no server: the same batch, over and over. Prints batches a second.

python loop.py MODEL.onnx INPUTS.npz SECONDS
"""

from __future__ import annotations

import sys
import time

import numpy as np
import onnxruntime

path, inputs, seconds = sys.argv[1:]
session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
feeds = dict(np.load(inputs))
for _ in range(3):
    session.run(None, feeds)
count, began = 0, time.monotonic()
while time.monotonic() - began < float(seconds):
    session.run(None, feeds)
    count += 1
print(count / (time.monotonic() - began))
