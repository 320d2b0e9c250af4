"""Qwen2.5-VL's towers at a tiny size, with both kinds of attention and in both precisions.

Sequences may be padded on the left, as for generation, or on the right. On the left, the first rows of the
causal mask are masked altogether: those logits are not used, and exporters differ there.
"""

from functools import partial

import torch
from towers import (
    TINY,
    Qwen25VLTextImageWrapper,
    Qwen25VLTextWrapper,
    Qwen25VLVision672Wrapper,
    Qwen25VLVisionWrapper,
    build_model,
)

import fairway

IMAGE_TOKEN = TINY["image_token_id"]
HIDDEN = TINY["text_config"]["hidden_size"]
VOCABULARY = TINY["text_config"]["vocab_size"]

SEQUENCES = {"bounds": {"batch": (1, 4), "seq": (1, 128)}, "example": {"batch": 2, "seq": 9}}

TOKENS = [f"input_ids: int64[batch, seq] < {VOCABULARY}", "attention_mask: int64[batch, seq] = keep"]
TOKENS_RIGHT_PADDED = [TOKENS[0], "attention_mask: int64[batch, seq] = keep-right-padded"]


def build(wrapper, attention, dtype=torch.float32):
    return wrapper(build_model(attention=attention, dtype=dtype))


def tokens_with_an_image(seed, batch, seq):
    """Sequences of which the middle third is one image, padded on either side."""
    generator = torch.Generator().manual_seed(seed)
    input_ids = torch.randint(IMAGE_TOKEN, (batch, seq), generator=generator)
    input_ids[:, seq // 3 : seq // 3 + max(1, seq // 3)] = IMAGE_TOKEN

    real = torch.randint(1, seq + 1, (batch, 1), generator=generator)
    attention_mask = (torch.arange(seq) < real).long()
    if seed % 2:
        attention_mask = attention_mask.flip(-1)
    image_embeds = torch.randn(batch, seq, HIDDEN, generator=generator)
    return (input_ids, attention_mask, image_embeds), {}


text_eager = fairway.Recipe(
    model=partial(build, Qwen25VLTextWrapper, "eager"), inputs=TOKENS, output_names=["logits"], **SEQUENCES
)
text_sdpa = fairway.Recipe(
    model=partial(build, Qwen25VLTextWrapper, "sdpa"), inputs=TOKENS, output_names=["logits"], **SEQUENCES
)
text_eager_fp16 = fairway.Recipe(
    model=partial(build, Qwen25VLTextWrapper, "eager", torch.float16),
    inputs=TOKENS,
    output_names=["logits"],
    **SEQUENCES,
)
text_eager_fp16_right_padded = fairway.Recipe(
    model=partial(build, Qwen25VLTextWrapper, "eager", torch.float16),
    inputs=TOKENS_RIGHT_PADDED,
    output_names=["logits"],
    **SEQUENCES,
)
text_sdpa_fp16 = fairway.Recipe(
    model=partial(build, Qwen25VLTextWrapper, "sdpa", torch.float16),
    inputs=TOKENS,
    output_names=["logits"],
    **SEQUENCES,
)

text_image = fairway.Recipe(
    model=partial(build, Qwen25VLTextImageWrapper, "eager"),
    inputs=tokens_with_an_image,
    dims={
        "input_ids": "batch seq",
        "attention_mask": "batch seq",
        "image_embeds": f"batch seq {HIDDEN}",
    },
    output_names=["logits"],
    **SEQUENCES,
)

PIXELS = ["pixel_values: float32[1, 3, 672, 672]"]
PIXELS_FP16 = ["pixel_values: float16[1, 3, 672, 672]"]

# As the team wrote it: the grid is worked out inside.
vision_672_as_written = fairway.Recipe(
    model=partial(build, Qwen25VLVisionWrapper, "sdpa"), inputs=PIXELS, output_names=["image_embeds"]
)
vision_672 = fairway.Recipe(
    model=partial(build, Qwen25VLVision672Wrapper, "sdpa"), inputs=PIXELS, output_names=["image_embeds"]
)
vision_672_eager = fairway.Recipe(
    model=partial(build, Qwen25VLVision672Wrapper, "eager"), inputs=PIXELS, output_names=["image_embeds"]
)
vision_672_fp16 = fairway.Recipe(
    model=partial(build, Qwen25VLVision672Wrapper, "sdpa", torch.float16),
    inputs=PIXELS_FP16,
    output_names=["image_embeds"],
)
