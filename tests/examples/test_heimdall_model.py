"""Heimdall's models, in eager PyTorch alone: what an export of them has to live up to."""

import importlib
import itertools
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "examples" / "heimdall"
MODULES = ("heimdall_net", "localization_net", "make_weights", "patched")
CORNERS = list(itertools.product((1, 2, 8), (1, 2, 10)))


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def project():
    """The example's own modules, put away afterwards: other examples have modules of the same names."""
    pytest.importorskip("transformers")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        for name in MODULES:
            patch.delitem(sys.modules, name, raising=False)
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
        for name in MODULES:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module", params=["heimdall_net", "heimdall_net_pro"])
def net(request, project):
    return getattr(project.make_weights, request.param)()


def recordings(project, batch, receivers, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return list(project.make_weights.random_recordings(batch, receivers))


@torch.no_grad()
def run(model, *inputs):
    return model(*inputs)


def furthest(one, other):
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.mark.parametrize(("batch", "receivers"), CORNERS)
def test_every_corner_of_the_domain_is_legal(project, net, batch, receivers):
    outputs = run(net, *recordings(project, batch, receivers))
    assert list(outputs) == ["positions", "uncertainties"]
    for value in outputs.values():
        assert value.shape == (batch, 2)
        assert value.isfinite().all()
    assert (outputs["uncertainties"] > 0).all()


def test_masked_receivers_do_not_matter(project, net):
    inputs = recordings(project, 4, 6)
    hidden = ~inputs[4]
    assert hidden.any()
    before = run(net, *inputs)
    noise = recordings(project, 4, 6, seed=1)
    for index in range(4):
        inputs[index] = torch.where(hidden.reshape(4, 6, *[1] * (inputs[index].ndim - 2)), noise[index], inputs[index])
    # Pro sums over the receivers in matrix products, where a hidden one adds an exact zero.
    assert furthest(before, run(net, *inputs)) < 1e-6


def test_one_active_receiver_among_ten_equals_that_receiver_alone(project, net):
    inputs = recordings(project, 2, 10)
    inputs[4] = torch.zeros(2, 10, dtype=torch.bool)
    inputs[4][:, 0] = True
    assert furthest(run(net, *inputs), run(net, *[value[:, :1].contiguous() for value in inputs])) < 1e-6


@pytest.mark.parametrize("index", range(4), ids=["iq_data", "features", "positions", "receiver_ids"])
def test_every_input_matters(project, net, index):
    # Weights under which an input hardly counts would hide whatever an export does to it.
    inputs = recordings(project, 4, 4)
    before = run(net, *inputs)
    inputs[index] = inputs[index].roll(1, 0)
    assert furthest(before, run(net, *inputs)) > 1e-2


@pytest.mark.parametrize(("batch", "receivers"), CORNERS)
def test_the_patch_equals_the_loop(project, net, monkeypatch, batch, receivers):
    inputs = recordings(project, batch, receivers)
    loop = run(net, *inputs)
    monkeypatch.setattr(project.heimdall_net.HeimdallNet, "_calibrate", project.patched.calibrate_all)
    # A vector times a matrix and a batch times a matrix sum in different orders.
    assert furthest(loop, run(net, *inputs)) < 1e-6


def test_two_builds_are_the_same_to_the_bit(project):
    build = project.make_weights.heimdall_net
    one, other = build().state_dict(), build().state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_batch_norm_has_seen_data(net):
    norms = [m for m in net.modules() if isinstance(m, torch.nn.BatchNorm1d)]
    assert norms
    for norm in norms:
        assert norm.running_mean.abs().max() > 1e-3
        assert (norm.running_var - 1).abs().max() > 1e-2


@pytest.mark.parametrize("backbone_size", ["narrow", "tiny"])
def test_localization_net_takes_any_batch(project, backbone_size):
    model = project.make_weights.localization_net(backbone_size)
    for batch in (1, 2, 8):
        outputs = run(model, torch.randn(batch, 3, 128, 32))
        assert outputs["positions"].shape == outputs["uncertainties"].shape == (batch, 2)
        assert outputs["positions"].isfinite().all()
        assert outputs["uncertainties"].ge(0.01).all()
        assert outputs["uncertainties"].le(1).all()


def test_the_blocks_of_the_backbone_are_not_silent(project):
    model = project.make_weights.localization_net("narrow")
    spectrogram = torch.randn(2, 3, 128, 32)
    before = run(model, spectrogram)
    for name, parameter in model.named_parameters():
        if name.endswith("layer_scale_parameter"):
            parameter.data.zero_()
    assert furthest(before, run(model, spectrogram)) > 1e-2


def test_the_mistaken_width_is_refused_by_pytorch(project):
    model = project.localization_net.LocalizationNet("narrow", backbone_dim=2048).eval()
    with pytest.raises(RuntimeError, match=r"mat1 and mat2 shapes .* \(1x1536 and 2048x128\)"):
        run(model, torch.randn(1, 3, 128, 32))


def test_the_published_sizes_have_the_published_widths(project):
    net = project.localization_net
    with torch.device("meta"):
        for size in ("tiny", "small", "base", "large"):
            model = net.LocalizationNet(size)
            assert model.backbone.config.hidden_sizes[-1] == net.BACKBONE_DIM[size]
    assert sum(p.numel() for p in model.parameters()) == 196_641_348
