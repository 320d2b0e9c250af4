"""The judge refuses wrong files. Each of these files was made wrong on purpose."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import fairway
from fairway.judge.gather import _take_samples
from fairway.judge.judge import ENOUGH_FAILURES, Judge
from fairway.judge.lattice import build_lattice
from fairway.judge.runtimes.eager import find_roundoff, run_eager, to_array
from fairway.judge.runtimes.liberties import PlainArithmetic
from fairway.judge.runtimes.truth import run_truth
from fairway.judge.sample_result import SUMS_EXCUSE, TIES_EXCUSE
from fairway.model.sample import Sample, Touch, make_sample
from fairway.model.subject import build_subject


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
    for one in build_lattice(subject.domain, subject.example, {"batch": 3, "time": 7}, "standard"):
        judge.take(one)
    return judge


def _eager(subject, change=lambda outputs: outputs):
    def run(names, tensors):
        return change([to_array(t) for t in run_eager(subject, tensors)])

    return run


def test_the_model_itself_is_right_everywhere():
    subject = _subject()
    judge = _judge(subject, _eager(subject))
    assert judge.find_failures() == []
    assert judge.no_truth is None


def test_a_second_implementation_that_rounds_differently_is_right():
    subject = _subject()
    model = subject.model

    def other(names, tensors):
        x = tensors[0]
        hidden = torch.nn.functional.gelu(x @ model.first.weight.T + model.first.bias)
        with torch.no_grad():
            return [to_array(hidden @ model.second.weight.T + model.second.bias), to_array(hidden.mean(-1).argmax(-1))]

    assert _judge(subject, other).find_failures() == []


@pytest.mark.parametrize("scale", [1e-2, 1e-3])
def test_one_perturbed_weight_is_found(scale):
    subject = _subject()
    wrong = Net().eval()
    with torch.no_grad():
        wrong.first.weight[3, 2] *= 1 + scale

    def run(names, tensors):
        with torch.no_grad():
            return [to_array(t) for t in wrong(*tensors)]

    assert _judge(subject, run).find_failures()


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
    assert _judge(subject, _eager(subject, change)).find_failures()


class TopOfTied(torch.nn.Module):
    """The two largest values differ by less than float32 can tell, so which one wins is a matter of rounding."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor([1.0, 1.0 + 1e-7, 0.5]))

    def forward(self, x):
        return (x.sum(-1, keepdim=True) * self.w).argmax(-1)


def test_a_decision_that_a_rounding_moves_is_right_without_an_excuse():
    subject = _subject(TopOfTied())

    def flipped(names, tensors):
        ours = run_eager(subject, tensors)[0].numpy()
        hair = (ours < 2) & (tensors[0].sum(-1).numpy() != 0)
        return [np.where(hair, 1 - ours, ours)]

    judge = _judge(subject, flipped)
    assert judge.find_failures() == []
    assert any(t.undecided for t in judge.trials)
    assert not any(t.excused for t in judge.trials)


def test_a_clear_winner_decided_otherwise_is_not():
    class Clear(TopOfTied):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.tensor([1.0, 2.0, 0.5]))

    subject = _subject(Clear())

    def wrong(names, tensors):
        return [np.zeros_like(run_eager(subject, tensors)[0].numpy()) + 2]

    assert _judge(subject, wrong).find_failures()


class TopOfRounded(torch.nn.Module):
    """Rounded numbers are equal in many places, and no rounding error of the inputs moves them apart."""

    def forward(self, x):
        return torch.round(x).flatten(1).topk(3, -1).indices


def _lowest_first(x):
    ordered = torch.sort(torch.round(x).flatten(1), dim=-1, descending=True, stable=True)
    return [to_array(ordered.indices[:, :3])]


def test_equal_elements_in_another_order_are_excused():
    subject = _subject(TopOfRounded())
    judge = _judge(subject, lambda names, tensors: _lowest_first(*tensors))
    assert judge.find_failures() == []
    assert {t.excused for t in judge.trials} == {"", TIES_EXCUSE}


def test_a_file_that_breaks_ties_differently_is_unproven_with_the_number(tmp_path):
    result = fairway.export(TopOfRounded(), ["x: float32[batch, 9]"], tmp_path / "top.onnx", bounds={"batch": (1, 4)})
    assert result.verdict == "unproven"
    found = {finding.code: finding for finding in result.findings}
    assert "FW413" in found
    excused = sum(bool(t.excused) for t in result.evidence.tested)
    assert found["FW422"].seen == f"{excused} of {len(result.evidence.tested)} samples: {TIES_EXCUSE} {excused}"
    assert f"{excused} right by an excuse ({TIES_EXCUSE} {excused})" in str(result)
    assert max(o.ratio for o in result.evidence.outputs) <= 1


def test_unequal_elements_in_another_order_are_not():
    subject = _subject(TopOfRounded())
    judge = _judge(subject, lambda names, tensors: [_lowest_first(*tensors)[0][:, ::-1]])
    assert judge.find_failures()


def test_samples_that_are_excused_do_not_end_the_sampling():
    """Three hopeless samples end it; excused ones are not hopeless, and what comes after them may be wrong."""
    subject = _subject(TopOfRounded())

    def late(names, tensors):
        found = _lowest_first(*tensors)[0]
        return [found + 1 if tensors[0].shape[0] == 4 else found]

    judge = Judge(subject, late, ("y0",))
    _take_samples(judge, [make_sample({"batch": 3, "time": 9}, seed) for seed in range(6)], lambda event: None)
    assert sum(bool(t.difference) for t in judge.trials) >= ENOUGH_FAILURES
    assert len(judge.trials) == 6
    judge.take(make_sample({"batch": 4, "time": 9}))
    assert len(judge.find_failures()) == 1


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
    subject = _subject(Net())
    before = {n: (p.data_ptr(), p.dtype) for n, p in subject.model.named_parameters()}
    assert run_truth(subject, subject.make({"batch": 2, "time": 30}, 1, "normal"))[0].dtype == torch.float64
    assert {n: (p.data_ptr(), p.dtype) for n, p in subject.model.named_parameters()} == before


@torch.library.custom_op("fairway_tests::single", mutates_args=())
def single(x: torch.Tensor) -> torch.Tensor:
    """An operator whose kernel has no float64."""
    if x.dtype == torch.float64:
        raise RuntimeError("float64 is not for me")
    return x * 2


class NoDouble(torch.nn.Module):
    def forward(self, x):
        return single(x)


def test_without_float64_the_judge_says_so_and_still_finds_errors():
    subject = _subject(NoDouble())
    judge = _judge(subject, _eager(subject))
    assert judge.no_truth == "RuntimeError: float64 is not for me"
    assert judge.find_failures() == []
    assert _judge(subject, _eager(subject, lambda o: [o[0] * np.float32(1.01)])).find_failures()


class KeptInBrain(torch.nn.Module):
    """Weights are kept in bfloat16, and every number is computed in float32."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.w = torch.nn.Parameter(torch.randn(6, 4).bfloat16())

    def forward(self, x):
        return x @ self.w.float()


class ComputedInBrain(KeptInBrain):
    def forward(self, x):
        return (x.bfloat16() @ self.w).float()


def test_roundoff_is_that_of_the_arithmetic_not_of_stored_weights():
    subject = _subject(KeptInBrain())
    tensors = subject.make(subject.example, 1, "normal")
    assert find_roundoff(subject, tensors) == torch.finfo(torch.float32).eps
    assert find_roundoff(_subject(ComputedInBrain()), tensors) == torch.finfo(torch.bfloat16).eps


def test_weights_of_few_bits_do_not_excuse_an_error():
    subject = _subject(KeptInBrain())
    assert _judge(subject, _eager(subject)).find_failures() == []
    assert _judge(subject, _eager(subject, lambda o: [o[0] * np.float32(1.001)])).find_failures()


class LogAddExp(torch.nn.Module):
    def forward(self, x):
        return torch.logaddexp(x, x * 0.5)


def test_an_exponential_that_overflows_on_the_way_is_found():
    """As onnxscript writes logaddexp: right wherever exp stays within float32, and infinite beyond. Few elements, so
    that chance does not find it."""
    subject = build_subject(LogAddExp(), ["x: float32[batch, n]"], bounds={"batch": (1, 2), "n": (1, 4)})

    def naive(names, tensors):
        return [to_array(torch.log(torch.exp(tensors[0]) + torch.exp(tensors[0] * 0.5)))]

    judge = Judge(subject, naive, ("y0",))
    for one in build_lattice(subject.domain, subject.example, {"batch": 1, "n": 3}, "standard"):
        judge.take(one)
    assert judge.find_failures()


def _two(model, run, n, seed=1):
    """The judge after one sample of ordinary and one of large values."""
    subject = build_subject(model.eval(), ["x: float32[n]"], bounds={"n": (1, 2_000_000)})
    judge = Judge(subject, run, ("y0",))
    for flavor in ("normal", "large"):
        judge.take(make_sample({"n": n}, seed, flavor))
    return judge


class Running(torch.nn.Module):
    def forward(self, x):
        return x.cumsum(-1)


def test_a_running_sum_in_float32_is_right_though_pytorch_accumulates_in_float64():
    """With this seed it passes close by 0, where PyTorch is exact and plain float32 is thousands of times as far."""

    def plain(names, tensors):
        return [np.add.accumulate(tensors[0].numpy())]

    judge = _two(Running(), plain, 8765, 10_009)
    assert judge.compute_ratio(judge.trials[0]) > 1000
    assert judge.find_failures() == []


class Total(torch.nn.Module):
    def forward(self, x):
        return x.abs().sum(-1)


@pytest.mark.parametrize(("factor", "wrong"), [(1.0, False), (1.01, True)])
def test_a_long_sum_in_plain_order_is_an_excuse_and_nothing_beyond(factor, wrong):
    def plain(names, tensors):
        return [np.add.accumulate(np.abs(tensors[0].numpy()))[-1] * np.float32(factor)]

    judge = _two(Total(), plain, 2_000_000)
    assert bool(judge.find_failures()) is wrong
    assert any(t.excused == SUMS_EXCUSE for t in judge.trials) is not wrong


def test_a_running_sum_that_skips_an_element_is_not():
    def skips(names, tensors):
        x = tensors[0].numpy().copy()
        x[700] = 0
        return [np.add.accumulate(x)]

    assert len(_two(Running(), skips, 9000).find_failures()) == 2


class Gate(torch.nn.Module):
    def forward(self, x):
        return torch.sigmoid(x * 40).unsqueeze(-1) * torch.sigmoid(x * 40 - 20).unsqueeze(-1)


def test_a_sigmoid_without_digits_in_its_tail_is_right_without_an_excuse():
    """As ONNX Runtime's: 0 from -18 on."""

    def clipped(names, tensors):
        x = tensors[0] * 40
        gates = [torch.where(t < -18, 0.0, torch.sigmoid(t)) for t in (x, x - 20)]
        return [to_array((gates[0] * gates[1]).unsqueeze(-1))]

    judge = _two(Gate(), clipped, 50)
    assert max(map(judge.compute_ratio, judge.trials)) > 1
    assert judge.find_failures() == []


def test_a_sigmoid_that_is_clipped_too_early_is_not():
    def early(names, tensors):
        x = tensors[0] * 40
        gates = [torch.where(t < -6, 0.0, torch.sigmoid(t)) for t in (x, x - 20)]
        return [to_array((gates[0] * gates[1]).unsqueeze(-1))]

    assert _two(Gate(), early, 50).find_failures()


class DoubleSilu(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x.double() * 30)


@pytest.mark.parametrize(("error", "wrong"), [(9e-17, False), (1e-12, True)])
def test_a_float64_sigmoid_has_few_digits_in_its_tail(error, wrong):
    """ONNX Runtime's silu(-30) is right to three digits in float64."""
    subject = _subject(DoubleSilu(), "x: float32[batch, time] in -1.05..-0.95")

    def coarse(names, tensors):
        x = tensors[0].double() * 30
        return [to_array(x * (torch.sigmoid(x) + error))]

    judge = _judge(subject, coarse)
    assert max(map(judge.compute_ratio, judge.trials)) > 1
    assert bool(judge.find_failures()) == wrong


class Elu(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.elu(x)


@pytest.mark.parametrize(("offset", "wrong"), [(0.0, False), (3e-6, True)])
def test_an_elu_written_with_an_exponential_is_excused_and_nothing_beyond(offset, wrong):
    subject = _subject(Elu(), "x: float32[batch, time] in -0.002..-0.0001")

    def plain(names, tensors):
        return [to_array(tensors[0].exp() - 1 + offset)]

    judge = _judge(subject, plain)
    assert max(map(judge.compute_ratio, judge.trials)) > 1
    assert bool(judge.find_failures()) == wrong


class HalfThroughout(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Sigmoid(), torch.nn.Linear(8, 4)).half()

    def forward(self, x):
        return self.layers(x)


def test_a_wrong_file_of_a_half_precision_model_is_found():
    subject = _subject(HalfThroughout(), "x: float16[batch, time, 6]")
    assert _judge(subject, _eager(subject)).find_failures() == []
    assert _judge(subject, _eager(subject, lambda o: [o[0] * np.float16(1.2)])).find_failures()


class SmallLog(torch.nn.Module):
    def forward(self, x):
        return torch.log1p(x.abs() * 1e-3) ** 2


@pytest.mark.parametrize(("offset", "wrong"), [(0.0, 0), (1e-4, 2)])
def test_a_log1p_written_as_a_logarithm_is_excused_and_nothing_beyond(offset, wrong):
    def plain(names, tensors):
        return [to_array(torch.log(1 + tensors[0].abs() * 1e-3 + offset) ** 2)]

    judge = _two(SmallLog(), plain, 50)
    assert max(map(judge.compute_ratio, judge.trials)) > 1
    assert len(judge.find_failures()) == wrong


def test_an_in_place_sigmoid_has_few_digits_in_its_tail():
    with PlainArithmetic() as plain:
        moved = torch.full((100,), -25.0).sigmoid_()
    assert plain.used
    assert moved.min() < 0 < moved.max()


class Spectrum(torch.nn.Module):
    def forward(self, x):
        return torch.view_as_real(torch.fft.rfft(x[..., 0]))


@pytest.mark.parametrize(("error", "wrong"), [(2e-7, False), (1e-4, True)])
def test_a_transform_summed_otherwise_is_excused_and_nothing_beyond(error, wrong):
    subject = _subject(Spectrum())

    def off(names, tensors):
        (found,) = run_eager(subject, tensors)
        return [to_array(found + error * tensors[0][..., 0].abs().sum(-1)[:, None, None])]

    assert bool(_judge(subject, off).find_failures()) is wrong


class AboveHalf(torch.nn.Module):
    def forward(self, x):
        return x >= 0.5, (x >= 0.5).float()


@pytest.mark.parametrize("output", [0, 1])
def test_a_comparison_of_the_input_itself_has_no_rounding_to_hide_behind(output):
    """`>` for `>=` differs only at 0.5 exactly; moving the input by a rounding would make that look like chance."""
    subject = _subject(AboveHalf(), "x: float32[batch, time]")
    halves = torch.full((2, 3), 0.5)

    def strict(names, tensors):
        right = [to_array(t) for t in run_eager(subject, tensors)]
        right[output] = to_array((tensors[0] > 0.5).to(torch.from_numpy(right[output]).dtype))
        return right

    judge = Judge(subject, strict, ("y0", "y1"), [[halves]])
    for seed in range(8):
        judge.take(make_sample({"batch": 3, "time": 9}, seed))
    judge.take(Sample((), data=0))
    assert [t.sample.data for t in judge.find_failures()] == [0]


class Whole(torch.nn.Module):
    def forward(self, x):
        return (x * 1e12).long()


@pytest.mark.parametrize(("answer", "wrong"), [(lambda x: (x * 1e12).long(), False), (lambda x: x.long() * 0, True)])
def test_whole_numbers_beyond_float32_are_not_free(answer, wrong):
    subject = _subject(Whole(), "x: float32[batch, time]")
    judge = _judge(subject, lambda names, tensors: [to_array(answer(tensors[0]))])
    assert bool(judge.find_failures()) is wrong


class SignOfSum(torch.nn.Module):
    """The sum of numbers that cancel: which side of 0 it is on is decided by rounding at some elements."""

    def forward(self, x):
        sums = (x - x.mean(-1, keepdim=True)).sum(-1)
        return (sums > 0).long(), torch.sign(sums)


def test_decisions_after_a_long_sum_are_right_in_another_order():
    subject = build_subject(SignOfSum(), ["x: float32[batch, n]"], bounds={"batch": (1, 40), "n": (1, 3000)})

    def backwards(names, tensors):
        return [to_array(t) for t in run_eager(subject, [tensors[0].flip(-1)])]

    judge = Judge(subject, backwards, ("y0", "y1"))
    for seed in range(6):
        judge.take(make_sample({"batch": 40, "n": 2999}, seed))
    tensors = judge.make_inputs(judge.trials[0].sample)
    assert (backwards((), tensors)[0] != to_array(run_eager(subject, tensors)[0])).any()
    assert judge.find_failures() == []


@pytest.mark.parametrize("output", [0, 1])
def test_decisions_that_are_wrong_throughout_are_found(output):
    class OneSum(SignOfSum):
        def forward(self, x):
            return (x.sum(-1) > 0).long(), torch.sign(x.sum(-1))

    subject = build_subject(OneSum(), ["x: float32[batch, n]"], bounds={"batch": (1, 40), "n": (1, 300)})

    def wrong(names, tensors):
        right = [to_array(t) for t in run_eager(subject, tensors)]
        right[output] = right[output] * 0
        return right

    judge = Judge(subject, wrong, ("y0", "y1"))
    for seed in range(4):
        judge.take(make_sample({"batch": 40, "n": 299}, seed))
    assert judge.find_failures()


def test_a_frozen_judge_gives_the_same_ratio_whatever_it_saw_since():
    subject = _subject()
    judge = _judge(subject, _eager(subject, lambda o: [np.nextafter(o[0], np.float32(9)), o[1]]))
    one, harsh = make_sample({"batch": 2, "time": 9}, 77), make_sample({"batch": 5, "time": 60}, 78, "large")
    judge.freeze()
    before = judge.compute_ratio(judge.measure(one))
    known = {key: yardstick.cells for key, yardstick in judge.yardsticks.items()}
    for seed in range(5):
        judge.take(make_sample({"batch": 5, "time": 60}, seed))
    judge.take(harsh)
    assert judge.compute_ratio(judge.measure(one)) == before
    assert all(judge.yardsticks[key].cells is cells for key, cells in known.items())


class Lost(torch.nn.Module):
    def forward(self, x):
        return (x + 1e8) - 1e8, x / (x - x)


def test_results_that_mean_nothing_in_pytorch_are_named(tmp_path):
    result = fairway.export(Lost(), ["x: float32[batch, 4] in 0.1..1"], tmp_path / "l.onnx", bounds={"batch": (1, 4)})
    found = {finding.code: finding.seen for finding in result.findings}
    assert "off by their own size" in found["FW423"]
    assert result.verdict == "verified"
    assert "FW423 note" in str(result)


def test_outputs_that_are_nan_throughout_are_named(tmp_path):
    class Nought(torch.nn.Module):
        def forward(self, x):
            return x * float("nan")

    result = fairway.export(Nought(), ["x: float32[batch, 4]"], tmp_path / "n.onnx", bounds={"batch": (1, 4)})
    assert "NaN throughout at" in next(f.seen for f in result.findings if f.code == "FW423")


class QuietGate(torch.nn.Module):
    """In float32 the energy of tiny values is 0; in float64 it is not, and the other side is taken."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x) if 0 < x.pow(2).mean() < 1e-3 else torch.ones_like(x)


def test_a_sample_whose_truth_is_another_answer_frees_no_other_sample():
    subject = build_subject(QuietGate(), ["x: float32[batch, 6]"], bounds={"batch": (1, 4)})
    judge = Judge(subject, lambda names, tensors: [to_array(torch.ones_like(tensors[0]))], ["y"])
    tiny = replace(make_sample({"batch": 2}, 1), touch=Touch("scale", 1e-30))
    quiet = replace(make_sample({"batch": 2}, 1), touch=Touch("scale", 1e-2))
    first, second = judge.take(tiny), judge.take(quiet)
    assert judge.compute_ratio(first) <= 1
    assert judge.compute_ratio(second) > 1
