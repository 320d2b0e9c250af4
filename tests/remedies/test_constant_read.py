"""Values that no input reaches are read while the model is captured; those that one reaches are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from harness import EXPORT, STRICT, TRACE, applied, make_case
from torch import nn

import fairway
from fairway.convert.remedies.constant_read import REMEDY
from fairway.convert.remedies.constants import Constants
from fairway.convert.remedies.contract import Match, Refusal

LINES = ["x: float32[batch, 4]"]
TABLE = torch.tensor([1.0, 2.0, 0.0, 1.0])
WRITTEN, WRITTEN_AS_OUT = torch.zeros(4), torch.zeros(4)


class Holds(nn.Module):
    """Holds tensors of every kind."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("zeros", torch.zeros(4))
        self.register_buffer("count", torch.tensor(3))
        self.register_buffer("sizes", torch.tensor([1, 3]))
        self.register_buffer("mask", torch.tensor([True, False, True, True]))
        self.weight = nn.Parameter(torch.tensor([2.0, 3.0, 1.0, 1.0]))
        self.plain = torch.tensor([1, 3])
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    def branch(self, x: Any) -> Any:
        return self.linear(x) if torch.all(self.zeros == 0) else x

    def item(self, x: Any) -> Any:
        return x[:, : self.count.item()] * 2

    def whole_number(self, x: Any) -> Any:
        return x.repeat(1, int(self.weight.max())) * float(self.weight[0])

    def steps(self, x: Any) -> Any:
        return sum((x * i for i in range(self.count)), torch.zeros(4))

    def to_list(self, x: Any) -> Any:
        first, second = torch.split(x, self.sizes.tolist(), dim=1)
        return torch.cat([second, first], 1) * self.plain[1].item()

    def created_list(self, x: Any) -> Any:
        return torch.stack([x * i for i in torch.arange(1, 4).tolist()]).sum(0)

    def created(self, x: Any) -> Any:
        height, width = torch.tensor([[2, 2]])[0]
        return x.view(-1, int(height), int(width)).transpose(1, 2).reshape(-1, 4)

    def spaced(self, x: Any) -> Any:
        return sum((x * rate.item() for rate in torch.linspace(0, 0.5, 3)), torch.zeros(4))

    def numpy_array(self, x: Any) -> Any:
        return x * float(np.cumsum(self.weight.detach().cpu().numpy())[-1])

    def compared(self, x: Any) -> Any:
        if torch.equal(self.zeros, torch.ones(4)):
            return x
        return x + 1 if torch.allclose(self.zeros, torch.zeros(4)) else x

    def places(self, x: Any) -> Any:
        return x[:, self.mask.nonzero()[:, 0]] * len(torch.unique(self.sizes))

    def masked(self, x: Any) -> Any:
        return torch.cat([x[:, self.mask], x[:, ~self.mask]], 1).view(x.shape[0], 4)

    def repeated(self, x: Any) -> Any:
        return x.repeat_interleave(torch.tensor([1, 2, 1, 0]), dim=1).view(x.shape[0], 4)

    def written(self, x: Any) -> Any:
        table = torch.zeros(3)
        table[1] = 2
        table += 1
        return x * table[1].item() if table.sum() > 4 else x

    def of_the_module(self, x: Any) -> Any:
        return x * 2 if TABLE.sum() > 3 else x


def reading(how: Any) -> nn.Module:
    """A model whose forward is that method."""
    kind = type("Reading", (Holds,), {"forward": lambda self, x: how(self, x)})
    return kind().eval()


READS = (
    Holds.branch,
    Holds.item,
    Holds.whole_number,
    Holds.steps,
    Holds.to_list,
    Holds.created_list,
    Holds.created,
    Holds.spaced,
    Holds.numpy_array,
    Holds.compared,
    Holds.places,
    Holds.masked,
    Holds.repeated,
    Holds.written,
    Holds.of_the_module,
)


@pytest.mark.parametrize("how", READS, ids=lambda how: how.__name__)
def test_a_value_that_no_input_reaches_is_read(how: Any, tmp_path: Any) -> None:
    found = fairway.export(
        reading(how), LINES, tmp_path / "a.onnx", bounds={"batch": (1, 9)}, level="quick", routes=("export-dynamic",)
    )
    assert found.verdict == "verified"
    assert "constant_read" in found.remedies
    # Nothing is said of a decision on a value, nor of a branch that no sample could take.
    assert {finding.code for finding in found.findings} <= {"FW423"}
    assert [rung.verdict for rung in found.record.ladder] == ["verified"]


def test_a_model_without_such_reads_is_not_told_of_the_remedy(tmp_path: Any) -> None:
    found = fairway.export(
        nn.Sequential(nn.Linear(4, 4)),
        ["input: float32[batch, 4]"],
        tmp_path / "a.onnx",
        bounds={"batch": (1, 9)},
        level="quick",
    )
    assert found.verdict == "verified"
    assert "constant_read" not in found.remedies


class Leaks(Holds):
    """Each asks for a value that an input, its size, or chance reaches."""

    def view(self, x: Any, t: Any) -> Any:
        t[1:].copy_(x[0, 1:])
        return t

    def view_of_buffer(self, x: Any, t: Any) -> Any:
        view = self.zeros[1:]
        view.copy_(x[0, 1:])
        return self.zeros

    def data_of_buffer(self, x: Any, t: Any) -> Any:
        self.zeros.data.copy_(x[0])
        return self.zeros

    def data_of_created(self, x: Any, t: Any) -> Any:
        data = t.data
        t.copy_(x[0])
        return data

    def new_data(self, x: Any, t: Any) -> Any:
        t.data = x[0]
        return t

    def detached(self, x: Any, t: Any) -> Any:
        t.detach().copy_(x[0])
        return t

    def out(self, x: Any, t: Any) -> Any:
        torch.mul(x[0], 2, out=t)
        return t

    def element(self, x: Any, t: Any) -> Any:
        t[1] = x.sum()
        return t

    def part(self, x: Any, t: Any) -> Any:
        first, _ = torch.chunk(t, 2)
        t.add_(x[0])
        return first

    def size(self, x: Any, t: Any) -> Any:
        return torch.arange(x.shape[0])

    def slice_by_size(self, x: Any, t: Any) -> Any:
        return self.weight[: x.shape[0]]

    def written_by_size(self, x: Any, t: Any) -> Any:
        self.zeros[: x.shape[0]].fill_(x.sum())
        return self.zeros

    def stacked(self, x: Any, t: Any) -> Any:
        return torch.stack([self.weight.sum(), x.sum()])

    def indexed(self, x: Any, t: Any) -> Any:
        return self.weight[x[0].argmax()]

    def put(self, x: Any, t: Any) -> Any:
        return t.index_put_((torch.tensor([1]),), x.sum())

    def of_the_module(self, x: Any, t: Any) -> Any:
        WRITTEN[0] = x.sum()
        return WRITTEN

    def of_the_module_as_out(self, x: Any, t: Any) -> Any:
        torch.mul(x[0], 2, out=WRITTEN_AS_OUT)
        return WRITTEN_AS_OUT

    def plain_attribute(self, x: Any, t: Any) -> Any:
        self.plain[0] = x.sum().long()
        return self.plain

    def parameter(self, x: Any, t: Any) -> Any:
        with torch.no_grad():
            self.weight.copy_(x[0])
        return self.weight

    def replaced(self, x: Any, t: Any) -> Any:
        self.zeros = self.zeros + x[0]
        return self.zeros

    def statistics(self, x: Any, t: Any) -> Any:
        nn.functional.batch_norm(x, self.norm.running_mean, self.norm.running_var, training=True)
        return self.norm.running_mean

    def chance(self, x: Any, t: Any) -> Any:
        return torch.rand(3)

    def operator(self, x: Any, t: Any) -> Any:
        return torch.ops.aten.copy_.default(t, x[0])

    def several(self, x: Any, t: Any) -> Any:
        torch._foreach_add_([t], [x[0]])
        return t

    def unseen(self, x: Any, t: Any) -> Any:
        with torch._C.DisableTorchFunction():
            t.add_(x[0])
        return t

    def unseen_in_view(self, x: Any, t: Any) -> Any:
        view = t[1:]
        with torch._C.DisableTorchFunction():
            view.add_(x[0, 1:])
        t.add_(1)
        return t

    def mapped(self, x: Any, t: Any) -> Any:
        return torch.vmap(lambda row: (row * self.weight).sum())(x)

    def created_from_value(self, x: Any, t: Any) -> Any:
        return torch.full((3,), x.sum().item())

    def one_part_of_complex(self, x: Any, t: Any) -> Any:
        number = torch.zeros(4, dtype=torch.complex64)
        number.real.copy_(x[0])
        return torch.view_as_real(number)


LEAKS = [how for name, how in vars(Leaks).items() if not name.startswith("_")]


def answers_to(model: nn.Module) -> list[bool]:
    """Return for each question that torch.export asked, as far as it came, whether it was answered."""
    asked: list[bool] = []
    with Constants(model, lambda origins: asked.append(origins is not None)).follow_calls(), torch.no_grad():
        try:
            torch.export.export(model, (torch.randn(3, 4),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
        except Exception:
            return asked
    return asked


@pytest.mark.parametrize("how", LEAKS, ids=lambda how: how.__name__)
def test_a_value_that_an_input_reaches_is_never_answered(how: Any) -> None:
    def forward(self: Any, x: Any) -> Any:
        return x * 2 if how(self, x, torch.zeros(4)).sum() > 0 else x

    asked = answers_to(type("Leaking", (Leaks,), {"forward": forward})().eval())
    assert asked
    assert not any(asked)


def test_writes_of_known_numbers_are_followed_through_views() -> None:
    def forward(self: Any, x: Any) -> Any:
        view, whole = self.zeros[1:], self.zeros.detach()
        view += 2
        whole.mul_(self.count)
        return x * self.zeros.sum().item()

    model = type("Written", (Holds,), {"forward": forward})().eval()
    with Constants(model).follow_calls(), torch.no_grad():
        program = torch.export.export(model, (torch.ones(3, 4),), strict=False)
    assert model.zeros.tolist() == [0.0] * 4  # the model itself is left alone
    assert program.module()(torch.ones(3, 4)).unique().tolist() == [18.0]


class Block(nn.Module):
    def __init__(self, kind: int) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("kind", torch.tensor(kind))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        return x + (torch.tanh(y) if self.kind.item() > 1 else y)  # type: ignore[no-any-return]


class Blocks(nn.Module):
    def __init__(self, *kinds: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(map(Block, kinds))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize("differs", [False, True])
def test_blocks_stand_for_others_only_if_their_values_agree(differs: bool, tmp_path: Any) -> None:
    model = Blocks(*(0, 0, 0, 0, 0, 2 if differs else 0, 0)).eval()
    # At this level nothing is judged, so nothing else would notice.
    found = fairway.export(model, LINES, tmp_path / "a.onnx", bounds={"batch": (1, 9)}, level="none")
    assert found.route == "export-dynamic"
    assert bool(found.record.blocks) is not differs
    checked = fairway.verify(tmp_path / "a.onnx", model, LINES, bounds={"batch": (1, 9)}, level="quick")
    assert checked.verdict == "verified", checked


class Two(nn.Module):
    """A branch on a buffer, and one that only saves work."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("flag", torch.tensor([True]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.flag.all():
            x = x + 1
        low = x < 0
        if low.any():
            x = x.masked_fill(low, 0.0)
        return x


def test_a_branch_on_an_input_beside_it_is_still_decided(tmp_path: Any) -> None:
    asked: dict[str, Any] = {"bounds": {"batch": (1, 4)}, "level": "quick", "routes": ("export-dynamic",)}
    found = fairway.export(Two().eval(), LINES, tmp_path / "a.onnx", **asked)
    assert found.verdict == "verified"
    assert {"shortcut_branch", "constant_read"} <= set(found.remedies)


def test_large_tensors_and_large_results_are_not_computed() -> None:
    def forward(self: Any, x: Any) -> Any:
        large = torch.zeros(2**21).sum() > 0
        outer = (torch.zeros(2**12)[:, None] * torch.zeros(2**12)).sum() > 0
        torch._assert_async(large)
        return x * 2 if outer else x

    asked = answers_to(type("Large", (Holds,), {"forward": forward})().eval())
    assert asked == [False]


def test_it_is_refused_under_strict_capture_and_for_traces() -> None:
    for route in (STRICT, TRACE):
        assert isinstance(REMEDY.detect(make_case(Holds(), (torch.ones(2, 4),), route)), Refusal)
    assert isinstance(REMEDY.detect(make_case(Holds(), (torch.ones(2, 4),), EXPORT)), Match)


def test_applying_it_twice_answers_as_well_and_leaves_no_hooks() -> None:
    model = reading(Holds.branch)
    case = make_case(model, (torch.ones(2, 4),))
    with applied(case, REMEDY, REMEDY), torch.no_grad():
        program = torch.export.export(model, case.args)
    x = torch.randn(2, 4)
    assert torch.equal(program.module()(x), model(x))
    assert not model._forward_pre_hooks
    assert not model._forward_hooks
