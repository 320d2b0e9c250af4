"""Five models at the size that people have, in float32, with random weights, as recipes.

`REAL_SIZES_TINY=1` in the environment shrinks every config; classes, inputs and kinds of dims stay the same.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from torch import nn
from transformers import (
    BertConfig,
    BertModel,
    ResNetConfig,
    ResNetForImageClassification,
    ViTConfig,
    ViTForImageClassification,
    WhisperConfig,
    WhisperModel,
)

import fairway

sys.path[:0] = [str(Path(__file__).parent)]

from unet import UNet  # noqa: E402  # from this folder

TINY = os.environ.get("REAL_SIZES_TINY") == "1"
WEIGHT_SEED = 2025
VOCABULARY_SIZE = 200 if TINY else 30522
SEQUENCE_LENGTH = 32 if TINY else 512
IMAGE_SIZE = 32 if TINY else 224
MEL_FRAMES = 60 if TINY else 3000

_SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64} if TINY else {}


def build_bert() -> nn.Module:
    config = BertConfig(vocab_size=VOCABULARY_SIZE, max_position_embeddings=SEQUENCE_LENGTH, **_SMALL)
    return finish(lambda: BertModel(config))


def build_vit() -> nn.Module:
    config = ViTConfig(image_size=IMAGE_SIZE, patch_size=8 if TINY else 16, num_labels=1000, **_SMALL)
    return finish(lambda: ViTForImageClassification(config))


def build_resnet() -> nn.Module:
    small = {"embedding_size": 8, "hidden_sizes": [16, 32, 64, 128], "depths": [2, 2, 2, 2]} if TINY else {}
    model = finish(lambda: ResNetForImageClassification(ResNetConfig(num_labels=1000, **small)))
    settle_batch_norms(model, torch.randn(4, 3, 64, 64, generator=torch.Generator().manual_seed(WEIGHT_SEED)))
    return model


def build_whisper() -> nn.Module:
    small = (
        {"d_model": 32, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 64}
        if TINY
        else {
            "d_model": 512,
            "encoder_layers": 6,
            "encoder_attention_heads": 8,
            "encoder_ffn_dim": 2048,
        }
    )
    config = WhisperConfig(
        **small,
        decoder_layers=1,
        decoder_attention_heads=4,
        decoder_ffn_dim=32,
        vocab_size=8,
        pad_token_id=0,
        max_source_positions=MEL_FRAMES // 2,
    )
    return finish(lambda: WhisperModel(config).encoder)


def build_unet() -> nn.Module:
    return finish(lambda: UNet(8 if TINY else 112))


def finish(build) -> nn.Module:
    torch.manual_seed(WEIGHT_SEED)
    model = build().eval()
    redraw_constants(model)
    return model


def redraw_constants(model: nn.Module) -> None:
    """Biases of 0 and norms of 1 would hide their own loss: adds 0.1 of normal noise to every constant parameter."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.numel() > 1 and bool((parameter == parameter.flatten()[0]).all()):
                parameter += 0.1 * torch.randn_like(parameter)


def settle_batch_norms(model: nn.Module, images: torch.Tensor) -> None:
    """Set the running statistics to those of the images, so that signals keep their scale as in a trained model.

    One thread: the same bits in every process.
    """
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for norm in norms:
        norm.train()
        norm.momentum = 1.0
    with torch.no_grad():
        model(images)
    for norm in norms:
        norm.eval()
        norm.momentum = 0.1
    torch.set_num_threads(threads)


bert = fairway.Recipe(
    model=build_bert,
    inputs=[
        f"input_ids: int64[batch, seq] < {VOCABULARY_SIZE}",
        "attention_mask: int64[batch, seq] = keep-right-padded",
    ],
    bounds={"batch": (1, 8), "seq": (1, SEQUENCE_LENGTH)},
)
vit = fairway.Recipe(
    model=build_vit, inputs=[f"pixel_values: float32[batch, 3, {IMAGE_SIZE}, {IMAGE_SIZE}]"], bounds={"batch": (1, 8)}
)
resnet = fairway.Recipe(
    model=build_resnet,
    inputs=[f"pixel_values: float32[batch, 3, {IMAGE_SIZE}, {IMAGE_SIZE}]"],
    bounds={"batch": (1, 8)},
)
whisper = fairway.Recipe(
    model=build_whisper, inputs=[f"input_features: float32[batch, 80, {MEL_FRAMES}]"], bounds={"batch": (1, 4)}
)
unet = fairway.Recipe(
    model=build_unet,
    inputs=["image: float32[batch, 3, height, width]"],
    bounds={"batch": (1, 4), "height": (64, 128 if TINY else 256), "width": (64, 128 if TINY else 256)},
    multiples={"height": 16, "width": 16},
)
RECIPES = {"bert": bert, "vit": vit, "resnet": resnet, "whisper": whisper, "unet": unet}
