"""Branches on sizes through the whole pipeline: several captures joined in one judged file."""

import json

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from torch.nn.functional import pad

import fairway
from fairway.convert.pieces import assemble

LINE = ["x: float32[batch, time, 3]"]
BOUNDS = {"batch": (1, 3), "time": (1, 30)}
WITHOUT_SOURCE: dict = {}
exec(
    "def every_fifth(x):\n    t = x.shape[1]\n    return x * 2 if t > 12 and t % 5 == 0 else x + 1\n"
    "def once(x):\n    return x * 2 if x.shape[1] == 1001 else x + 1\n",
    WITHOUT_SOURCE,
)


class Padded(torch.nn.Module):
    """Pads time to a multiple of 8, and doubles its output above 20 steps."""

    def __init__(self, width=4):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.Linear(width, 2))

    def forward(self, x):
        t = x.shape[1]
        missing = -t % 8
        if missing:
            x = pad(x, (0, 0, 0, missing))
        y = self.linear(x)[:, :t]
        return y * 2 if t > 20 else y


class Calls(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.gru = torch.nn.GRU(3, 4, batch_first=True)

    def forward(self, x):
        y, last = self.gru(x)
        return y + last.transpose(0, 1) if x.shape[1] % 2 else y


def squeezes(x):
    y = x.mean(-1).squeeze()
    return y * 3 if y.dim() == 1 else y * 2


def gives_two(x):
    return (x * 2, x[:, ::2], x) if x.shape[1] > 10 else (x * 2, x[:, :1] + 1, x)


def loops(x):
    for i in range(x.shape[1] // 12):
        x = torch.sin(x) + i
    return x


def unrolls(x):
    y = x[:, 0]
    for i in range(x.shape[1]):
        y = torch.tanh(y + x[:, i] * (i + 1))
    return y


def nested(x):
    t = x.shape[1]
    if t > 16:
        return x * 2 if x.shape[0] == 2 else x * 3
    if t % 3 == 0:
        return x.cumsum(1)
    return x + 9 if t == 7 else torch.tanh(x)


def branches_inside(x):
    y = torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))
    return y * 3 if x.shape[1] > 20 else y


def other_dtype(x):
    return x.argmax(1) if x.shape[1] > 20 else x.mean(1)


def export(model, path, routes=("pieces",), bounds=BOUNDS, **more):
    model = model if isinstance(model, torch.nn.Module) else Calls(model)
    return fairway.export(model, LINE, path, bounds=bounds, routes=routes, **more)


def regions(result):
    return [piece.region for piece in result.record.pieces]


def test_a_model_that_pads_and_doubles_is_verified_in_two_pieces(tmp_path):
    model = Padded()
    result = export(model, tmp_path / "p.onnx", routes=())
    assert (result.verdict, result.route, len(regions(result))) == ("verified", "pieces", 2)
    assert "pieces    2: time <= 20; otherwise" in str(result)
    assert result.evidence.differential.same
    sizes = result.evidence.sizes
    assert (sizes.points, sizes.excluded, sizes.excluded_run) == (90, sizes.excluded, sizes.excluded)
    assert {20, 21} <= {t.point["time"] for t in result.evidence.tested}
    session = onnxruntime.InferenceSession(result.path, providers=["CPUExecutionProvider"])
    for time in (7, 8, 20, 21, 24):
        x = torch.randn(2, time, 3)
        (got,) = session.run(None, {"x": x.numpy()})
        np.testing.assert_allclose(got, model(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_the_record_has_the_point_and_the_guards_of_each_piece(tmp_path):
    export(Padded(), tmp_path / "p.onnx", level="quick")
    pieces = json.loads((tmp_path / "p.fairway.json").read_text())["pieces"]
    assert [piece["region"] for piece in pieces] == ["time <= 20", "otherwise"]
    assert [piece["points"] for piece in pieces] == [60, 30]
    assert pieces[1]["captured_at"]["time"] > 20
    assert any("20" in guard or "21" in guard for guard in pieces[1]["guards"])


def test_code_that_has_no_source_is_captured_in_pieces_too(tmp_path):
    result = export(WITHOUT_SOURCE["every_fifth"], tmp_path / "f.onnx", routes=())
    assert (result.verdict, result.route) == ("verified", "pieces")
    assert regions(result) == ["time % 5 == 0 and time > 12", "otherwise"]


def test_a_single_size_of_a_large_domain_is_found_by_the_guards(tmp_path):
    result = export(WITHOUT_SOURCE["once"], tmp_path / "f.onnx", bounds={"batch": (1, 8), "time": (1, 1500)})
    assert (result.verdict, regions(result)) == ("verified", ["time == 1001", "otherwise"])
    assert str(result.evidence.sizes) == "all 12,000 points satisfy the guards of their piece"


def test_outputs_may_have_other_ranks_in_other_regions(tmp_path):
    result = export(squeezes, tmp_path / "s.onnx")
    assert result.verdict == "verified"
    shapes = {t.point["batch"] == 1 or t.point["time"] == 1 for t in result.evidence.tested}
    assert shapes == {True, False}


def test_several_outputs_may_have_other_lengths_in_other_regions(tmp_path):
    result = export(gives_two, tmp_path / "t.onnx")
    assert (result.verdict, len(regions(result))) == ("verified", 2)


def test_a_loop_with_few_steps_is_one_piece_for_each_count(tmp_path):
    result = export(loops, tmp_path / "l.onnx")
    assert (result.verdict, len(regions(result))) == ("verified", 3)
    assert str(result.evidence.sizes) == "all 90 points satisfy the guards of their piece"


def test_branches_within_branches_are_separated(tmp_path):
    result = export(nested, tmp_path / "n.onnx")
    assert (result.verdict, len(regions(result))) == ("verified", 5)


def test_a_piece_may_hold_a_branch_on_values(tmp_path):
    result = export(branches_inside, tmp_path / "b.onnx", level="quick")
    assert (result.verdict, regions(result)) == ("verified", ["time <= 20", "otherwise"])


def test_remedies_apply_in_each_capture(tmp_path):
    result = export(Recurrent(), tmp_path / "r.onnx", level="quick")
    assert (result.verdict, regions(result)) == ("verified", ["time % 2 == 0", "otherwise"])
    assert "rnn_time_baked" in result.remedies


@pytest.mark.parametrize("weights", ["embed", "copy"])
def test_weights_that_all_pieces_use_are_stored_once(tmp_path, weights):
    result = export(
        Padded(width=20_000),
        tmp_path / "w.onnx",
        level="quick",
        weights=weights,
        bounds={"batch": (1, 2), "time": (8, 24)},
    )
    assert (result.verdict, len(regions(result))) == ("verified", 2)
    size = sum(file.stat().st_size for file in tmp_path.glob("w.onnx*"))
    assert 20_000 * 6 * 4 < size < 20_000 * 6 * 4 * 1.2
    assert [node.op_type for node in ir.load(result.path).graph].count("If") == 1


def test_arms_that_are_swapped_are_refused_by_the_judge(tmp_path, monkeypatch):
    plain = assemble.join_models
    monkeypatch.setattr(assemble, "join_models", lambda models, *rest: plain(models[::-1], *rest))
    result = export(Padded(), tmp_path / "p.onnx")
    assert result.verdict == "wrong"
    assert not (tmp_path / "p.onnx").exists()


def test_too_many_regions_are_refused_with_a_list_of_them(tmp_path):
    result = export(unrolls, tmp_path / "u.onnx", remedies=False)
    assert result.verdict == "failed"
    (finding,) = [one for one in result.findings if one.code == "FW329"]
    assert "more than 12 pieces are needed. Regions found: time == 5; time == " in finding.seen
    assert "--dim time=1..20" in str(result)


def test_regions_with_outputs_of_other_dtypes_are_named(tmp_path):
    result = export(other_dtype, tmp_path / "d.onnx", level="quick")
    assert (result.verdict, result.findings[0].code) == ("failed", "FW330")
    assert "output is FLOAT in one region of sizes and INT64 in another" in result.findings[0].seen


def test_a_model_without_branches_on_sizes_is_captured_once(tmp_path):
    result = export(lambda x: x.cumsum(1), tmp_path / "c.onnx", routes=(), level="quick")
    assert [rung.route for rung in result.record.ladder] == ["export-dynamic"]
    assert result.record.pieces == ()
