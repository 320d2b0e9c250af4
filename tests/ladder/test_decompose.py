"""Node by node a program comes to the operators that torch makes of the whole of it, and computes the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.fx import Node
from torch.nn import functional
from torch.onnx._internal.exporter import _decomp, _fx_passes, _registration
from torch.onnx._internal.fx.passes import type_promotion

import fairway
from fairway.convert.ladder.decompose import decompose_by_node, reuse_captured_values
from fairway.workers.attempt import describe_failure

Forward = Callable[..., Any]


@pytest.fixture(scope="module")
def registry() -> Any:
    return _registration.ONNXRegistry.from_torchlib(opset_version=20)


class Net(nn.Module):
    """Layers, and what is done with them."""

    def __init__(self, forward: Forward, **layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleDict(layers)
        self.does = forward

    def forward(self, x: torch.Tensor) -> Any:
        return self.does(x, **self.layers)


def capture(model: nn.Module, x: torch.Tensor) -> ExportedProgram:
    with torch.no_grad():
        return torch.export.export(model.eval(), (x,), dynamic_shapes=({0: Dim.DYNAMIC},))


def ours(program: ExportedProgram, registry: Any) -> ExportedProgram:
    with decompose_by_node():
        return _fx_passes.decompose_with_registry(program, registry)


def operators(program: ExportedProgram) -> list[Node]:
    """In order; sizes and assertions, which torch.onnx drops, are not among them."""
    return [
        node
        for node in program.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload) and not node.name.startswith(("sym_", "_assert"))
    ]


def told(program: ExportedProgram) -> list[tuple[str, str]]:
    return sorted((str(node.target), str(node.meta["val"])) for node in operators(program))


def twice(x: torch.Tensor) -> torch.Tensor:
    """The second of two inputs of one node is the first, once it is seen that nothing is to be done."""
    return torch.cat([x.to(torch.float32), x, x.contiguous()]).reshape(-1)


def heads(x: torch.Tensor, qkv: nn.Module) -> torch.Tensor:
    q, k, v = qkv(x).reshape(x.shape[0], 3, 2, 4).unbind(1)
    return functional.scaled_dot_product_attention(q, k, v).flatten(1)


def masked(x: torch.Tensor) -> torch.Tensor:
    return torch.where((x > 0).__and__(x < 1), x.to(torch.float64), 0.5).to(x.dtype)


def drawn(x: torch.Tensor, drop: nn.Module) -> torch.Tensor:
    torch.rand([])
    return drop(x) + 1


PROGRAMS: dict[str, Net] = {
    "views and dtypes": Net(twice),
    "attention": Net(heads, qkv=nn.Linear(8, 24)),
    "a comparison's both sides": Net(masked),
    "a batch norm, which is one of three": Net(lambda x, norm: norm(x), norm=nn.BatchNorm1d(8)),
    "a product, which is made of one that stays": Net(lambda x: torch.linalg.matmul(x[:, None], x[..., None])),
    "a group norm": Net(lambda x, norm: norm(x.reshape(-1, 4, 2)).mT, norm=nn.GroupNorm(2, 4)),
    "a dropout, and an unused number": Net(drawn, drop=nn.Dropout(0.5)),
    "several outputs": Net(lambda x: tuple(part.contiguous() for part in x.chunk(2, 1))),
    "an input handed on": Net(lambda x: (x.contiguous(), x.contiguous() + 1)),
    "an equation": Net(lambda x: torch.einsum("bi,bj->ij", x, x)),
    "rows by value": Net(lambda x: x[x[:, 0] > 0].reshape(-1)),
    "a padded picture": Net(lambda x: functional.pad(x[None], (1, 1, 1, 1), mode="reflect").squeeze(0)),
    "a distance": Net(lambda x: functional.huber_loss(x, x.flip(0))),
}


@pytest.mark.parametrize("which", PROGRAMS)
def test_the_operators_are_those_that_torch_comes_to(which: str, registry: Any) -> None:
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
    theirs = _fx_passes.decompose_with_registry(capture(PROGRAMS[which], x), registry)
    program = capture(PROGRAMS[which], x)
    made = ours(program, registry)
    assert made is program, "left to torch"
    made.graph.lint()
    assert told(made) == told(theirs)
    assert [spec.arg.name for spec in made.graph_signature.output_specs] == [
        node.name for node in made.graph.output_node().args[0]
    ]


@pytest.mark.parametrize("which", PROGRAMS)
def test_what_is_computed_is_the_same_at_another_size(which: str, registry: Any) -> None:
    draw = torch.Generator().manual_seed(1)
    x, other = torch.randn(5, 8, generator=draw), torch.randn(7, 8, generator=draw)
    net = PROGRAMS[which].eval()
    made = ours(capture(net, x), registry)
    with torch.no_grad():
        torch.testing.assert_close(made.module()(other), net(other), rtol=1e-6, atol=1e-6)


def test_nothing_is_left_that_cannot_be_translated(registry: Any) -> None:
    net = Net(lambda x, norm: norm(x).reshape(-1).to(torch.float64), norm=nn.BatchNorm1d(8))
    program = capture(net, torch.ones(5, 8))
    known = {*_decomp.get_onnx_implemented_overloads(registry)}
    used = {node.target for node in operators(program)}
    assert torch.ops.aten.batch_norm.default in used
    assert torch.ops.aten.reshape.default in used
    made = ours(program, registry)
    used = {node.target for node in operators(made)}
    assert used <= known
    assert torch.ops.aten.reshape.default not in used


def test_what_a_node_is_made_of_knows_its_line_and_its_module(registry: Any) -> None:
    net = Net(lambda x, norm: norm(x), norm=nn.BatchNorm1d(8))
    made = ours(capture(net, torch.ones(5, 8)), registry)
    node = next(node for node in made.graph.nodes if "native_batch_norm" in str(node.target))
    assert "batchnorm.py" in node.meta["stack_trace"]
    assert "layers.norm" in [path for path, _ in node.meta["nn_module_stack"].values()]


def in_place(x: torch.Tensor) -> torch.Tensor:
    total = x * 2
    total[:, 0] += 1
    return total.reshape(-1)


def in_a_graph(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: x.reshape(-1) + 1, lambda x: x.reshape(-1) - 1, (x,))


def copied(x: torch.Tensor) -> torch.Tensor:
    total = x * 2
    total.copy_(x[:, :1])
    return total


def by_value(x: torch.Tensor) -> torch.Tensor:
    return torch.repeat_interleave(x, (x[:, 0] > 0).long() + 1, dim=0)


def by_number(x: torch.Tensor) -> torch.Tensor:
    """The number of elements of a tensor is needed on the way, and has no translation."""
    return x.T.reshape(-1, 4)


def in_its_parts(x: torch.Tensor) -> torch.Tensor:
    return functional.cosine_similarity(x, x.flip(0))


def in_a_batch(x: torch.Tensor) -> torch.Tensor:
    return torch.vmap(lambda row: row * row.sum())(x)


@pytest.mark.parametrize("forward", [in_place, copied, by_value, by_number, in_a_graph, in_its_parts, in_a_batch])
def test_what_looks_beyond_one_node_is_left_to_torch(forward: Forward, registry: Any) -> None:
    net, x = Net(forward), torch.ones(6, 8)
    program = capture(net, x)
    before = [(node.name, node.target) for node in program.graph.nodes]
    made = ours(program, registry)
    assert made is not program
    assert [(node.name, node.target) for node in program.graph.nodes] == before
    torch.testing.assert_close(made.module()(x), net(x), rtol=0, atol=0)


def test_torch_decomposes_a_norm_in_training_that_changes_its_statistics(registry: Any) -> None:
    net, x = Net(lambda x, norm: norm(x), norm=nn.BatchNorm1d(8)), torch.randn(5, 8)
    with torch.no_grad():
        program = torch.export.export(net.train(), (x,), dynamic_shapes=({0: Dim.DYNAMIC},))
    assert ours(program, registry) is not program
    net.eval()


def test_a_program_of_which_something_is_not_known_is_left_to_torch(registry: Any) -> None:
    net, x = Net(lambda x: x.abs() + 1), torch.ones(5, 8)
    program = capture(net, x)
    del next(node for node in program.graph.nodes if node.name == "abs_1").meta["val"]
    assert ours(program, registry) is not program


def test_an_error_of_torchs_own_way_stands_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(program: Any, registry: Any) -> None:
        raise ValueError("torch's own error")

    monkeypatch.setattr(_fx_passes, "decompose_with_registry", fail)
    with pytest.raises(ValueError, match="torch's own error") as caught:
        ours(capture(Net(in_a_batch), torch.ones(6, 8)), None)
    assert describe_failure(caught.value).cause == ""


def test_an_export_does_without_torchs_own_way(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_if_traced(*args: Any, **settings: Any) -> None:
        raise AssertionError("the entire program is traced again")

    monkeypatch.setattr(ExportedProgram, "run_decompositions", fail_if_traced)
    net = Net(lambda x, qkv: heads(x, qkv), qkv=nn.Linear(8, 24)).eval()
    result = fairway.export(net, ["x: float32[batch, 8]"], tmp_path / "out.onnx", level="quick")
    assert (result.verdict, result.route) == ("verified", "export-dynamic")


def whole_and_half(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Casts that are implied: of whole numbers, of half floats, of what is counted."""
    count = (x > 0).sum(1)
    half = x.half()
    return count / 2, count + x[:, 0], half + x, torch.where(x > 0, half, 1.5), torch.pow(2, count), half.softmax(1)


def promoted(program: ExportedProgram) -> int:
    """Makes its casts explicit, and answers how many nodes were computed for that."""
    computed: list[Any] = []
    plain = torch.fx.Interpreter.call_function

    def call(self: torch.fx.Interpreter, *what: Any) -> Any:
        computed.append(what)
        return plain(self, *what)

    with patch.object(torch.fx.Interpreter, "call_function", call):
        _fx_passes.insert_type_promotion_nodes(program.graph_module)
    return len(computed)


def shown(program: ExportedProgram) -> list[str]:
    return [f"{node.name} {node.target} {node.args} {node.meta.get('val')}" for node in program.graph.nodes]


def test_implied_casts_come_out_as_torchs_while_only_new_nodes_are_computed(registry: Any) -> None:
    theirs, ours_too = (ours(capture(Net(whole_and_half), torch.randn(5, 8)), registry) for _ in range(2))
    captured = sum(node.op == "call_function" for node in theirs.graph.nodes)
    asked = promoted(theirs)
    with reuse_captured_values():
        few = promoted(ours_too)
    assert shown(ours_too) == shown(theirs)
    casts = sum("convert_element_type" in str(node.target) for node in operators(ours_too))
    assert casts >= 3
    assert asked - few == captured


def test_torch_is_as_before_afterwards() -> None:
    promotion = type_promotion._TypePromotionInterpreter
    before = _fx_passes.decompose_with_registry, promotion.run_node
    with decompose_by_node(), reuse_captured_values():
        assert _fx_passes.decompose_with_registry is not before[0]
        assert promotion.run_node is not before[1]
    assert (_fx_passes.decompose_with_registry, promotion.run_node) == before
