"""PyTorch is watched inside its own control flow too, and its refusals prove nothing."""

import pytest
import torch
from torch._higher_order_ops import while_loop
from torch._higher_order_ops.scan import scan

import fairway
from fairway.judge.runtimes import large_weights as huge
from fairway.judge.runtimes.eager import run_eager
from fairway.judge.runtimes.liberties import PlainArithmetic
from fairway.judge.runtimes.truth import run_truth
from fairway.model.subject import build_subject


class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.up = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.up(x), lambda x: x.cumsum(1), (x,))


class Loop(torch.nn.Module):
    def forward(self, x):
        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x.cumsum(1)), (torch.tensor(0), x))[1]


class Scan(torch.nn.Module):
    def forward(self, x):
        return scan(lambda c, x: (c + x, (c * x).cumsum(0)), torch.zeros(4, dtype=x.dtype), x, dim=0)[1]


class Moody(torch.nn.Module):
    """Runs a few times, and then never again: not a matter of the shape."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += not torch.compiler.is_exporting()
        if self.calls > 12:
            raise RuntimeError("not today")
        return x * 2


def test_truth_and_liberties_reach_into_branches_and_loops():
    for model in (Gate(), Loop(), Scan()):
        subject = build_subject(model.eval(), ["x: float32[batch, 4]"])
        for batch in (2, 3, 1, 7):  # the second shape is where a compiler inside a dispatch mode gave up
            tensors = [-torch.rand(batch, 4)]
            (ours,) = run_eager(subject, tensors)
            (truth,) = run_truth(subject, tensors)
            assert truth.dtype == torch.float64
            torch.testing.assert_close(ours.double(), truth, rtol=1e-5, atol=1e-6)
            with PlainArithmetic() as plain:
                run_eager(subject, tensors)
            assert plain.used, f"{type(model).__name__}: the cumsum inside was not seen"


def test_a_model_with_a_branch_in_the_graph_is_exported(tmp_path):
    done = fairway.export(Gate().eval(), ["x: float32[batch, 4]"], tmp_path / "gate.onnx", level="quick")
    assert done.verdict == "verified"
    assert all(t.right for t in done.evidence.tested)


def test_a_file_is_unproven_where_pytorch_refuses_nearly_every_sample(tmp_path):
    done = fairway.export(Moody().eval(), ["x: float32[batch, 4]"], tmp_path / "moody.onnx")
    assert done.verdict == "unproven"
    (finding,) = [f for f in done.findings if f.code == "FW504"]
    assert "PyTorch refuses" in finding.seen
    assert "not today" in finding.seen


class Experts(torch.nn.Module):
    """Rows of a batch, each multiplied with the matrix of its group."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(3, 16, 8))

    def forward(self, x):
        return torch._grouped_mm(x, self.weight, offs=torch.tensor([2, 2, 5], dtype=torch.int32))


def test_grouped_products_have_a_truth_though_torch_has_them_in_no_float64():
    subject = build_subject(Experts().eval(), ["x: float32[5, 16]"])
    tensors = subject.make({}, 1, "normal")
    (ours,), (truth,) = run_eager(subject, tensors), run_truth(subject, tensors)
    assert truth.dtype == torch.float64
    weight = subject.model.weight.double()
    x = tensors[0].double()
    torch.testing.assert_close(truth, torch.cat([x[:2] @ weight[0], x[2:] @ weight[2]]))
    torch.testing.assert_close(ours.double(), truth, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        *((getattr(torch.nn, f"Conv{n}d")(2, 3, 3), ["input: float32[1, 2" + ", 5" * n + "]"]) for n in (1, 2, 3)),
        (torch.nn.ConvTranspose2d(2, 3, 3), ["input: float32[1, 2, 5, 5]"]),
        (torch.nn.Bilinear(4, 5, 3), ["input1: float32[2, 4]", "input2: float32[2, 5]"]),
        (torch.nn.PReLU(), ["input: float32[2, 4]"]),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, torch.nn.Module) else "",
)
def test_functions_that_compare_dtypes_have_a_truth_one_weight_at_a_time(model, inputs):
    """They do so before anybody can watch."""
    subject = build_subject(model.eval(), inputs)
    tensors = subject.make({}, 1, "normal")
    (whole,), (truth,) = run_truth(subject, tensors), run_truth(subject, tensors, piecewise=True)
    assert truth.dtype == torch.float64
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    torch.testing.assert_close(truth, whole, rtol=1e-12, atol=1e-12)


class Tied(torch.nn.Module):
    """A vocabulary that is read from, and multiplied with."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(300, 16)
        self.middle = torch.nn.Linear(16, 16)
        self.last = torch.nn.Linear(16, 300, bias=bias)
        self.last.weight = self.words.weight

    def forward(self, ids):
        return self.last(self.middle(self.words(ids)))


@pytest.mark.parametrize("bias", [False, True])
def test_a_large_weight_is_never_wide_as_a_whole(bias, monkeypatch):
    model = Tied(bias).eval()
    subject = build_subject(model, ["ids: int64[2, 3] < 300"])
    tensors = subject.make({}, 1, "normal")
    (whole,) = run_truth(subject, tensors)
    monkeypatch.setattr(huge, "PART_BYTES", model.words.weight.nbytes // 2)
    made = []
    plain = torch.Tensor.double

    def double(tensor):
        made.append(tensor.numel())
        return plain(tensor)

    monkeypatch.setattr(torch.Tensor, "double", double)
    room = huge._allocate_room
    monkeypatch.setattr(huge, "_allocate_room", lambda numbers: made.append(numbers) or room(numbers))
    (truth,) = run_truth(subject, tensors, piecewise=True)
    assert truth.dtype == torch.float64
    torch.testing.assert_close(truth, whole, rtol=1e-12, atol=1e-12)
    assert max(made) == model.words.weight.numel() / 4


class Turned(torch.nn.Module):
    """The weight stands on the left, or on both sides."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(48, 48))

    def forward(self, x):
        return torch.mm(self.weight, x), torch.mm(self.weight, self.weight), torch.bmm(self.weight[None], x[None])


def test_a_large_weight_may_stand_on_either_side(monkeypatch):
    subject = build_subject(Turned().eval(), ["x: float32[48, 3]"])
    tensors = subject.make({}, 1, "normal")
    whole = run_truth(subject, tensors)
    monkeypatch.setattr(huge, "PART_BYTES", 48 * 48 * 4)
    for part, one in zip(run_truth(subject, tensors, piecewise=True), whole, strict=True):
        torch.testing.assert_close(part, one, rtol=1e-12, atol=1e-12)
