"""The judge refuses wrong files. Each of these files was made wrong on purpose."""

import numpy as np
import pytest
import torch

from fairway.evidence.judge import Judge
from fairway.evidence.lattice import lattice
from fairway.runtimes.eager import run_eager, run_truth, to_array, widened
from fairway.subject.subject import build_subject


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Linear(6, 32), torch.nn.Linear(32, 4)

    def forward(self, x):
        hidden = torch.nn.functional.gelu(self.first(x))
        return self.second(hidden), hidden.mean(-1).argmax(-1)


def _subject(model=None, line="x: float32[batch, time, 6]"):
    return build_subject((model or Net()).eval(), [line], bounds={"batch": (1, 5), "time": (1, 60)})


def _judge(subject, run):
    names = tuple(f"y{i}" for i in range(len(run_eager(subject, subject.make(subject.example, 1, "normal")))))
    judge = Judge(subject, run, names)
    for one in lattice(subject.domain, subject.example, {"batch": 3, "time": 7}, "standard"):
        judge.take(one)
    return judge


def _eager(subject, change=lambda outputs: outputs):
    def run(names, tensors):
        return change([to_array(t) for t in run_eager(subject, tensors)])

    return run


def test_the_model_itself_is_right_everywhere():
    subject = _subject()
    judge = _judge(subject, _eager(subject))
    assert judge.failures() == []
    assert judge.no_truth is None


def test_a_second_implementation_that_rounds_differently_is_right():
    subject = _subject()
    model = subject.model

    def other(names, tensors):
        x = tensors[0]
        hidden = torch.nn.functional.gelu(x @ model.first.weight.T + model.first.bias)
        with torch.no_grad():
            return [to_array(hidden @ model.second.weight.T + model.second.bias), to_array(hidden.mean(-1).argmax(-1))]

    assert _judge(subject, other).failures() == []


@pytest.mark.parametrize("scale", [1e-2, 1e-3])
def test_one_perturbed_weight_is_found(scale):
    subject = _subject()
    wrong = Net().eval()
    with torch.no_grad():
        wrong.first.weight[3, 2] *= 1 + scale

    def run(names, tensors):
        with torch.no_grad():
            return [to_array(t) for t in wrong(*tensors)]

    assert _judge(subject, run).failures()


@pytest.mark.parametrize(
    "change",
    [
        lambda o: [o[0][..., ::-1].copy(), o[1]],
        lambda o: [o[0], o[1] + 1],
        lambda o: [o[0]],
        lambda o: [o[0].astype(np.float64), o[1]],
        lambda o: [o[0][:, :-1] if o[0].shape[1] > 40 else o[0], o[1]],
        lambda o: [np.where(np.arange(o[0].shape[1])[:, None] > 50, 0, o[0]).astype(np.float32), o[1]],
        lambda o: [np.where(o[0] > 1.5, np.nan, o[0]).astype(np.float32), o[1]],
        lambda o: [o[0].astype(np.float16).astype(np.float32), o[1]],
    ],
    ids=["permuted", "off by one", "one missing", "dtype", "cut when long", "zero beyond 50", "nan", "cast narrowed"],
)
def test_a_wrong_output_is_found(change):
    subject = _subject()
    assert _judge(subject, _eager(subject, change)).failures()


class TopOfTied(torch.nn.Module):
    """The two largest values differ by less than float32 can tell, so which one wins is a matter of rounding."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor([1.0, 1.0 + 1e-7, 0.5]))

    def forward(self, x):
        return (x.sum(-1, keepdim=True) * self.w).argmax(-1)


def test_a_tie_decided_otherwise_is_excused():
    subject = _subject(TopOfTied())

    def flipped(names, tensors):
        ours = run_eager(subject, tensors)[0].numpy()
        hair = (ours < 2) & (tensors[0].sum(-1).numpy() != 0)
        return [np.where(hair, 1 - ours, ours)]

    judge = _judge(subject, flipped)
    assert judge.failures() == []
    assert any(t.excused for t in judge.trials)


def test_a_clear_winner_decided_otherwise_is_not():
    class Clear(TopOfTied):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.tensor([1.0, 2.0, 0.5]))

    subject = _subject(Clear())

    def wrong(names, tensors):
        return [np.zeros_like(run_eager(subject, tensors)[0].numpy()) + 2]

    assert _judge(subject, wrong).failures()


class AsksForFloat(torch.nn.Module):
    def forward(self, x):
        y = x.float() + torch.zeros(x.shape[-1], dtype=torch.float32)
        return torch.cumsum(y, -1) / 3


def test_truth_is_float64_also_where_forward_asks_for_float32():
    subject = _subject(AsksForFloat())
    tensors = subject.make({"batch": 2, "time": 30}, 1, "normal")
    truth = run_truth(subject, tensors)[0]
    assert truth.dtype == torch.float64
    exact = torch.cumsum(tensors[0].double(), -1) / 3
    assert torch.equal(truth, exact)


def test_weights_are_the_very_same_tensors_after_the_truth_was_computed():
    net = Net()
    before = {n: p.data_ptr() for n, p in net.named_parameters()}
    with widened(net):
        assert net.first.weight.dtype == torch.float64
    assert {n: p.data_ptr() for n, p in net.named_parameters()} == before
    assert net.first.weight.dtype == torch.float32


class NoDouble(torch.nn.Module):
    def forward(self, x):
        if x.dtype == torch.float64:
            raise RuntimeError("float64 is not for me")
        return x * 2


def test_without_float64_the_judge_says_so_and_still_finds_errors():
    subject = _subject(NoDouble())
    judge = _judge(subject, _eager(subject))
    assert judge.no_truth == "RuntimeError: float64 is not for me"
    assert judge.failures() == []
    assert _judge(subject, _eager(subject, lambda o: [o[0] * np.float32(1.01)])).failures()
