"""Qwen2.5-VL's towers, in eager PyTorch alone: what an export of them has to live up to."""

import importlib
import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "examples" / "qwen_vl"
FLOAT32, FLOAT16 = torch.float32, torch.float16


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def towers():
    pytest.importorskip("transformers")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        patch.delitem(sys.modules, "towers", raising=False)
        yield importlib.import_module("towers")
        sys.modules.pop("towers", None)


@pytest.fixture(scope="module", params=["eager", "sdpa"])
def attention(request):
    return request.param


@pytest.fixture(scope="module", params=[FLOAT32, FLOAT16], ids=["fp32", "fp16"])
def dtype(request):
    return request.param


@pytest.fixture(scope="module")
def model(towers, attention, dtype):
    return towers.build_model(attention=attention, dtype=dtype)


@torch.no_grad()
def run(module, *inputs):
    return module(*inputs)


def tokens(batch, seq, seed=0):
    return torch.randint(500, (batch, seq), generator=torch.Generator().manual_seed(seed))


# Logits here are up to 4: float32 keeps seven digits of them, float16 three.
TOLERANCE = {FLOAT32: 2e-5, FLOAT16: 3e-2}


@pytest.mark.parametrize(("batch", "seq"), [(1, 1), (1, 128), (4, 1), (4, 128), (3, 7)])
@pytest.mark.parametrize("side", ["none", "left", "right"])
def test_every_corner_of_the_domain_is_legal(towers, model, dtype, batch, seq, side):
    mask = torch.ones(batch, seq, dtype=torch.int64)
    if side == "left":
        mask[0, : seq - 1] = 0
    elif side == "right":
        mask[0, 1:] = 0
    logits = run(towers.Qwen25VLTextWrapper(model), tokens(batch, seq), mask)
    assert logits.shape == (batch, seq, 512)
    assert logits.dtype == dtype
    assert logits.isfinite().all()


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_does_not_change_the_real_logits(towers, model, dtype, side):
    wrapper = towers.Qwen25VLTextWrapper(model)
    real, pads = tokens(2, 11), tokens(2, 6, seed=1)
    alone = run(wrapper, real, torch.ones_like(real))
    parts, masks = [pads, real], [torch.zeros_like(pads), torch.ones_like(real)]
    if side == "right":
        parts, masks = parts[::-1], masks[::-1]
    padded = run(wrapper, torch.cat(parts, 1), torch.cat(masks, 1))
    kept = padded[:, 6:] if side == "left" else padded[:, :11]
    assert (kept - alone).abs().max() < TOLERANCE[dtype]


def test_a_token_does_not_see_the_next(towers, model, dtype):
    wrapper = towers.Qwen25VLTextWrapper(model)
    one = tokens(1, 12)
    other = one.clone()
    other[0, 8:] = (other[0, 8:] + 1) % 500
    everything = torch.ones_like(one)
    difference = (run(wrapper, one, everything) - run(wrapper, other, everything)).abs()
    assert difference[:, :8].max() < TOLERANCE[dtype]
    assert difference[:, 8:].max() > 1


def test_image_embeds_count_only_at_image_tokens(towers, model, dtype):
    wrapper = towers.Qwen25VLTextImageWrapper(model)
    ids, mask = tokens(2, 9), torch.ones(2, 9, dtype=torch.int64)
    one, other = torch.randn(2, 2, 9, 64, generator=torch.Generator().manual_seed(0)).to(dtype)
    text = run(towers.Qwen25VLTextWrapper(model), ids, mask)
    assert (run(wrapper, ids, mask, one) - text).abs().max() < TOLERANCE[dtype]
    ids[:, 3:6] = towers.TINY["image_token_id"]
    difference = (run(wrapper, ids, mask, one) - run(wrapper, ids, mask, other)).abs()
    assert difference[:, :3].max() < TOLERANCE[dtype]
    assert difference[:, 3:].max() > 0.5


def test_the_vision_tower_for_one_size_equals_the_one_for_any(towers, model, dtype):
    pixels = torch.randn(1, 3, 672, 672, generator=torch.Generator().manual_seed(0)).to(dtype)
    expected = run(towers.Qwen25VLVisionWrapper(model), pixels)
    found = run(towers.Qwen25VLVision672Wrapper(model), pixels)
    assert found.shape == (576, 64)
    assert found.isfinite().all()
    assert torch.equal(found, expected)


def test_patches_come_in_the_order_in_which_the_tower_merges_them(towers):
    # Each pixel carries its own number, so a wrong order cannot go unseen.
    pixels = torch.arange(3 * 56 * 84, dtype=torch.float32).reshape(1, 3, 56, 84)
    patches, grid_thw = towers.build_patches_and_grid(pixels)
    assert grid_thw.tolist() == [[1, 4, 6]]
    rows_and_columns = towers.get_vision_position_ids(grid_thw, spatial_merge_size=2).tolist()
    for patch, (row, column) in zip(patches.reshape(24, 3, 2, 14, 14), rows_and_columns, strict=True):
        cut = pixels[0, :, 14 * row : 14 * row + 14, 14 * column : 14 * column + 14]
        assert torch.equal(patch[:, 0], cut)
        assert torch.equal(patch[:, 1], cut)


def test_two_builds_are_the_same_to_the_bit(towers):
    one, other = towers.build_model().state_dict(), towers.build_model().state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_reference_numbers_are_those_of_3b(towers):
    with torch.device("meta"):
        model = towers.Qwen2_5_VLForConditionalGeneration(towers.Qwen2_5_VLConfig(**towers.QWEN_3B))
    assert sum(p.numel() for p in model.parameters()) == 3_754_622_976
