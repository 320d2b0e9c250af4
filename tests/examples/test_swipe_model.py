"""The swipe example means what its README says, before any exporter is involved."""

import importlib
import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "examples" / "swipe"
NAMES = ["model", "traces", "beam"]


def load():
    """The modules import each other by plain names, which other examples use too; so the names are handed back."""
    others = {name: sys.modules.pop(name) for name in NAMES if name in sys.modules}
    sys.path.insert(0, str(FOLDER))
    try:
        return [importlib.import_module(name) for name in NAMES]
    finally:
        sys.path.remove(str(FOLDER))
        for name in NAMES:
            sys.modules.pop(name, None)
        sys.modules.update(others)


model, traces, beam = load()

pytestmark = [
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
    pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask"),
]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def net():
    return model.trained()


def encoder_inputs(batch, length, real):
    torch.manual_seed(batch * 1000 + length)
    padding = (torch.arange(length) >= real).expand(batch, length).clone()
    return torch.rand(batch, length, 6) * 2 - 1, torch.randint(0, 30, (batch, length)), padding


def decoder_inputs(beams, length, letters):
    torch.manual_seed(beams * 1000 + length + letters)
    return (
        torch.randn(beams, length, 64),
        torch.zeros(beams, length, dtype=torch.bool),
        torch.randint(4, 30, (beams, letters)),
        torch.zeros(beams, letters, dtype=torch.bool),
    )


def test_the_full_size_is_the_one_on_the_phones():
    assert sum(p.numel() for p in model.SwipeModel(model.FULL).parameters()) == 8_972_958


def test_there_are_two_hundred_words_that_can_be_swiped():
    assert len(set(traces.WORDS)) == 200
    assert max(len(traces.tokens(word)) for word in traces.WORDS) <= model.LONGEST_WORD
    lengths = [len(keys) for _, (_, keys) in traces.held_out()]
    assert min(lengths) >= 4
    assert max(lengths) <= model.LONGEST_TRACE


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("length", [4, 5, 250])
@pytest.mark.parametrize("all_real", [True, False])
@torch.no_grad()
def test_every_corner_of_the_encoder_is_legal(net, batch, length, all_real):
    memory = net.encoder(*encoder_inputs(batch, length, length if all_real else 1))
    assert memory.shape == (batch, length, 64)
    assert torch.isfinite(memory).all()


@pytest.mark.parametrize("beams", [1, 8])
@pytest.mark.parametrize("length", [4, 250])
@pytest.mark.parametrize("letters", [1, 2, 20])
@torch.no_grad()
def test_every_corner_of_the_decoder_is_legal(net, beams, length, letters):
    logits = net.decoder(*decoder_inputs(beams, length, letters))
    assert logits.shape == (beams, letters, 30)
    assert torch.isfinite(logits).all()


@torch.no_grad()
def test_padding_a_trace_does_not_change_its_memory(net):
    trajectory, keys, padding = encoder_inputs(2, 30, 30)
    wider = encoder_inputs(2, 47, 30)
    wider[0][:, :30], wider[1][:, :30] = trajectory, keys
    plain, padded = net.encoder(trajectory, keys, padding), net.encoder(*wider)
    torch.testing.assert_close(padded[:, :30], plain, rtol=0, atol=1e-5)


@torch.no_grad()
def test_the_decoder_does_not_read_padded_memory(net):
    memory, padding, target, target_padding = decoder_inputs(2, 30, 6)
    padding[:, 20:] = True
    scribbled = memory.clone()
    scribbled[:, 20:] = 1e3
    plain = net.decoder(memory, padding, target, target_padding)
    torch.testing.assert_close(net.decoder(scribbled, padding, target, target_padding), plain, rtol=0, atol=1e-5)


@torch.no_grad()
def test_the_decoder_does_not_look_ahead_nor_at_padded_letters(net):
    memory, padding, target, target_padding = decoder_inputs(2, 30, 9)
    plain = net.decoder(memory, padding, target[:, :5], target_padding[:, :5])
    longer = net.decoder(memory, padding, target, target_padding)
    target_padding[:, 5:] = True
    padded = net.decoder(memory, padding, target, target_padding)
    torch.testing.assert_close(longer[:, :5], plain, rtol=0, atol=1e-5)
    torch.testing.assert_close(padded[:, :5], plain, rtol=0, atol=1e-5)


def test_pytorch_itself_gives_two_answers_at_padded_points(net):
    """Fails when the fast path stops writing zeros, for which the recipe ships its own encoder."""
    inputs = encoder_inputs(2, 12, 7)
    with torch.no_grad():
        fast = net.encoder(*inputs)
    ordinary = net.encoder(*inputs).detach()  # gradients on: no fast path
    torch.testing.assert_close(fast[:, :7], ordinary[:, :7], rtol=0, atol=1e-5)
    assert (fast[:, 7:] == 0).all()
    assert (ordinary[:, 7:] != 0).any()


def test_beam_search_finds_the_words(net):
    stepper = beam.TorchStepper(net.encoder, net.decoder)
    held_out = traces.held_out()
    right = sum(beam.beam_search(stepper, *points) == word for word, points in held_out)
    assert right > 0.7 * len(held_out)
