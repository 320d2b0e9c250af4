"""Writes a checkpoint of random weights in shards, as transformers lays them out, holding one shard at a time.

`python benchmarks/large/checkpoint.py text_3b FOLDER`
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE)]

SHARD = 1_500_000_000


def drawn(name: str, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Numbers under which signals neither vanish nor grow; ones around 1 for norms, nothing below 0 for variances."""
    if not like.dtype.is_floating_point:
        return torch.zeros(like.shape, dtype=like.dtype)
    if "running_var" in name or (like.dim() == 1 and "norm" in name and name.endswith("weight")):
        return (1 + 0.1 * torch.rand(like.shape, generator=generator)).to(like.dtype)
    if like.dim() > 1:
        fan = like[0].numel()
        return (torch.randn(like.shape, generator=generator) * fan**-0.5).to(like.dtype)
    return (0.05 * torch.randn(like.shape, generator=generator)).to(like.dtype)


def write(recipe: str, folder: Path) -> None:
    import models

    from fairway.model.meta_build import build_without_parameters, find_tied_names

    with build_without_parameters():
        model = getattr(models, recipe).model()
    own = model.state_dict()
    names = [
        next(name for name in group if name in own) for group in find_tied_names(model) if any(n in own for n in group)
    ]
    generator = torch.Generator().manual_seed(17)
    shards: list[dict[str, torch.Tensor]] = [{}]
    where: dict[str, str] = {}
    folder.mkdir(parents=True, exist_ok=True)
    held = 0
    for name in names:
        tensor = drawn(name, own[name], generator)
        if held and held + tensor.nbytes > SHARD:
            _save(shards, folder)
            held = 0
        shards[-1][name] = tensor
        where[name] = _title(len(shards))
        held += tensor.nbytes
    _save(shards, folder)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))


def _title(number: int) -> str:
    return f"model-{number:05}.safetensors"


def _save(shards: list[dict[str, torch.Tensor]], folder: Path) -> None:
    save_file(shards[-1], folder / _title(len(shards)))
    shards[-1] = {}
    shards.append({})


if __name__ == "__main__":
    torch.set_num_threads(2)
    write(sys.argv[1], Path(sys.argv[2]))
