"""Twenty models whose first rung succeeds, as recipes: what `fairway export` and the bare exporter are timed on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import fairway

IDS = ["input_ids: int64[batch, seq] < 99", "attention_mask: int64[batch, seq] = keep-right-padded"]
TEXT = {"batch": (1, 4), "seq": (2, 64)}
SMALL: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
}


class First(nn.Module):
    """The first output of a transformers model, as people wrap them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask)[0]


class Pixels(First):
    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        return self.model(pixel_values=pixel_values)[0]


def _text(kind: str, **more: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import transformers

        torch.manual_seed(0)
        config = getattr(transformers, f"{kind}Config")(**{**SMALL, **more}, attn_implementation="eager")
        config.use_cache = False
        return First(getattr(transformers, f"{kind}Model")(config)).eval()

    return build


def _image(kind: str, **config: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import transformers

        torch.manual_seed(0)
        made = getattr(transformers, f"{kind}Config")(**config)
        return Pixels(getattr(transformers, f"{kind}Model")(made)).eval()

    return build


def _plain(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        torch.manual_seed(0)
        return make().eval()

    return build


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 8), nn.Softmax(-1))


def _deep_mlp() -> nn.Module:
    return nn.Sequential(*[layer for _ in range(20) for layer in (nn.Linear(16, 16), nn.GELU())])


def _convnet() -> nn.Module:
    blocks: list[nn.Module] = []
    for a, b in ((3, 16), (16, 32), (32, 64)):
        blocks += [nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.ReLU()]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def _conv1d() -> nn.Module:
    return nn.Sequential(nn.Conv1d(6, 32, 7, 3, 3), nn.GELU(), nn.Conv1d(32, 64, 7, 3, 3), nn.GELU())


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 24, 3, padding=1)
        blocks = (nn.Sequential(nn.Conv2d(24, 24, 3, padding=1), nn.BatchNorm2d(24)) for _ in range(8))
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = torch.relu(x + block(x))
        return x.mean((2, 3))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.reshape(x.shape[0], -1, 4, 8).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        y = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1) @ v
        return self.out(y.transpose(1, 2).reshape(x.shape))


class Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(500, 16), nn.Embedding(900, 16)
        self.top = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, user: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
        return self.top(torch.cat([self.user(user), self.item(item)], -1)).squeeze(-1)


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)


ROWS, SEQUENCE = {"batch": (1, 16)}, {"batch": (1, 8), "time": (8, 200)}
IMAGES = ["pixel_values: float32[batch, 3, 32, 32]"]
VISION: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}


def _recipe(model: Any, inputs: list[str], bounds: dict[str, tuple[int, int]]) -> fairway.Recipe:
    return fairway.Recipe(model=model, inputs=inputs, bounds=bounds)


MODELS: dict[str, fairway.Recipe] = {
    "mlp": _recipe(_plain(_mlp), ["input: float32[batch, 16]"], ROWS),
    "deep_mlp": _recipe(_plain(_deep_mlp), ["input: float32[batch, 16]"], ROWS),
    "convnet": _recipe(_plain(_convnet), ["input: float32[batch, 3, 32, 32]"], ROWS),
    "conv1d": _recipe(_plain(_conv1d), ["input: float32[batch, 6, time]"], SEQUENCE),
    "residual": _recipe(_plain(Residual), ["x: float32[batch, 3, 16, 16]"], ROWS),
    "attention": _recipe(_plain(Attention), ["x: float32[batch, time, 32]"], SEQUENCE),
    "recommender": _recipe(_plain(Recommender), ["user: int64[batch] < 500", "item: int64[batch] < 900"], ROWS),
    "encoder": _recipe(_plain(_encoder), ["src: float32[batch, time, 32]"], SEQUENCE),
    "bert": _recipe(_text("Bert"), IDS, TEXT),
    "roberta": _recipe(_text("Roberta", pad_token_id=0), IDS, TEXT),
    "electra": _recipe(_text("Electra", embedding_size=32), IDS, TEXT),
    "distilbert": _recipe(_text("DistilBert", dim=32, n_layers=2, n_heads=4, hidden_dim=64), IDS, TEXT),
    "llama": _recipe(_text("Llama", num_key_value_heads=2), IDS, TEXT),
    "qwen2": _recipe(_text("Qwen2", num_key_value_heads=2), IDS, TEXT),
    "mistral": _recipe(_text("Mistral", num_key_value_heads=2), IDS, TEXT),
    "gpt_neox": _recipe(_text("GPTNeoX"), IDS, TEXT),
    "vit": _recipe(_image("ViT", **VISION), IMAGES, ROWS),
    "deit": _recipe(_image("DeiT", **VISION), IMAGES, ROWS),
    "dinov2": _recipe(_image("Dinov2", **VISION), IMAGES, ROWS),
    "convnext": _recipe(_image("ConvNext", depths=[1, 1, 2, 1], hidden_sizes=[8, 16, 32, 64]), IMAGES, ROWS),
}
globals().update(MODELS)
