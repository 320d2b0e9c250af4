"""Beam search over the two ONNX files must spell the words that PyTorch spells, on 200 swipes.

    python examples/swipe/compare.py encoder.onnx decoder.onnx

Exits with 1 if one word differs.
"""

import sys
import warnings

import torch
from beam import OnnxStepper, TorchStepper, beam_search
from model import trained
from traces import held_out


def main(encoder_path, decoder_path):
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # nested tensors, and a float mask beside a bool one: once each per run
    net = trained()
    eager, onnx = TorchStepper(net.encoder, net.decoder), OnnxStepper(encoder_path, decoder_path)

    same = eager_right = onnx_right = 0
    traces = held_out()
    for word, points in traces:
        by_eager, by_onnx = beam_search(eager, *points), beam_search(onnx, *points)
        same += by_eager == by_onnx
        eager_right += by_eager == word
        onnx_right += by_onnx == word
        if by_eager != by_onnx:
            print(f"{word}: PyTorch spells {by_eager!r}, ONNX {by_onnx!r}")

    print(f"{same} of {len(traces)} words the same")
    print(f"right: PyTorch {eager_right}, ONNX {onnx_right}")
    return 0 if same == len(traces) else 1


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2]))
