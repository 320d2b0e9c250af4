"""The script route compiles the user's module inside a trace, so that its control flow is kept."""

import torch

import fairway


class LoopsAndBranches(torch.nn.Module):
    def forward(self, x):
        h = torch.zeros_like(x[:, 0])
        for i in range(x.shape[1]):
            h = torch.tanh(h * 0.5 + x[:, i])
        if x.shape[1] > 3:
            h = h * 2.0
        return h


def test_a_loop_and_a_branch_on_a_size_are_kept(tmp_path):
    result = fairway.export(
        LoopsAndBranches(),
        ["x: float32[batch, n, 3]"],
        tmp_path / "net.onnx",
        bounds={"batch": (1, 3), "n": (1, 6)},
        routes=["script"],
        level="quick",
    )
    assert result.verdict == "verified", str(result)
