"""Exports CodeNet the way its team did, twice (h0 left out, h0 given), and runs both files at other lengths.

    python examples/airimu/what_the_team_did.py [--seq-len 109]

The team's own setting was `--seq-len 1009`. It shows the same in several minutes: unrolled, the loop leaves some
71,000 nodes.
"""

import argparse
import tempfile
import warnings
from pathlib import Path

import onnxruntime
import torch
from imu import recording
from model import CodeNet, CodeNetExplicitH0
from safetensors.torch import load_file

INPUTS = ["acc", "gyro"]
OUTPUTS = ["correction_acc", "correction_gyro", "acc_cov", "gyro_cov"]


def stock_export(net, seq_len, path):
    """As in the write-up: traced once at `seq_len`, batch and time declared dynamic."""
    acc, gyro, _, _ = recording(1, 1, seq_len)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # among them: that .item() and range() are frozen
        torch.onnx.export(
            net,
            (acc, gyro),
            path,
            dynamo=False,
            input_names=INPUTS,
            output_names=OUTPUTS,
            dynamic_axes={name: {0: "batch", 1: "time"} for name in INPUTS + OUTPUTS},
        )


def largest_difference(net, session, length):
    """Over all four outputs; None where the runtime refuses the input."""
    acc, gyro, _, _ = recording(2, 1, length)
    with torch.no_grad():
        expected = net(acc, gyro)
    try:
        actual = session.run(None, {"acc": acc.numpy(), "gyro": gyro.numpy()})
    except Exception:  # onnxruntime has no narrower type for "this node failed on these shapes"
        return None
    return max((torch.from_numpy(got) - want).abs().max().item() for got, want in zip(actual, expected, strict=True))


def column(net_class, seq_len, lengths):
    net = net_class()
    net.load_state_dict(load_file(Path(__file__).with_name("codenet.safetensors")))
    net.eval()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "codenet.onnx"
        stock_export(net, seq_len, path)
        session = onnxruntime.InferenceSession(path)
        return [largest_difference(net, session, length) for length in lengths]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seq-len", type=int, default=109)
    seq_len = parser.parse_args().seq_len
    torch.set_num_threads(1)
    onnxruntime.set_default_logger_severity(4)  # the refusals are counted below, not logged

    lengths = [10, 19, seq_len - 9, seq_len - 4, seq_len - 1, seq_len, seq_len + 1, 2 * seq_len]
    columns = [column(cls, seq_len, lengths) for cls in (CodeNet, CodeNetExplicitH0)]

    print(f"exported at length {seq_len}; largest difference from PyTorch")
    print(f"{'length':>8}  {'h0 left out':>12}  {'h0 given':>12}")
    for length, *cells in zip(lengths, *columns, strict=True):
        print(f"{length:>8}  " + "  ".join(f"{'refused' if c is None else format(c, '.1e'):>12}" for c in cells))


if __name__ == "__main__":
    main()
