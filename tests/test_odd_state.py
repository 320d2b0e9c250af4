"""Models that hold more than dense tensors: the work is done, and its record is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fairway
from fairway.diagnostics.errors import UserError
from fairway.model.checkpoint import load_checkpoint
from fairway.record.files import hash_model

LINES = ["x: float32[batch, 4]"]


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)  # type: ignore[no-any-return]


class Sparse(Plain):
    """openai-whisper registers its alignment heads so."""

    def __init__(self) -> None:
        super().__init__()
        heads = torch.zeros(2, 3, dtype=torch.bool)
        heads[1] = True
        self.register_buffer("heads", heads.to_sparse(), persistent=False)
        self.register_buffer("kept", heads.float().to_sparse())
        self.register_buffer("rows", heads.float().to_sparse_csr())


class Settings(Plain):
    """neuraloperator puts the settings of a model among its weights."""

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return {**super().state_dict(*args, **kwargs), "_metadata": {"n_modes": (4, 4)}}

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        state = {name: value for name, value in state_dict.items() if name != "_metadata"}
        return super().load_state_dict(state, *args, **kwargs)


class ExtraState(Plain):
    def get_extra_state(self) -> Any:
        return {"version": 2}

    def set_extra_state(self, state: Any) -> None:
        assert state == {"version": 2}


class NoExtraState(ExtraState):
    def get_extra_state(self) -> Any:
        return None


class Mixture(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("nothing", None)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        state = super().state_dict(*args, **kwargs)
        return {**state, "none": None, "pair": (1, torch.ones(2)), "name": "x", "object": object()}


class Nested(Plain):
    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return {"model": super().state_dict(*args, **kwargs), "epoch": 3}


class Raises(Plain):
    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


class LateBuffer(Plain):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "table"):
            self.register_buffer("table", torch.arange(4.0))
        return self.linear(x) + self.table  # type: ignore[no-any-return]


class SharedAndWhole(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.twin = nn.Linear(4, 4)
        self.twin.weight = self.linear.weight
        self.order = nn.Parameter(torch.tensor([3, 2, 1, 0]), requires_grad=False)
        self.small = nn.Parameter(torch.tensor([3, 2, 1, 0], dtype=torch.uint8), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.twin(self.linear(x))[:, self.order] * self.small.float()  # type: ignore[no-any-return]


class Quantized(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("levels", torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8))
        self.register_buffer("turned", torch.ones(4, dtype=torch.complex64).conj())


@pytest.mark.parametrize(
    "kind", [Sparse, Settings, ExtraState, NoExtraState, Mixture, Nested, Raises, LateBuffer, SharedAndWhole, Quantized]
)
def test_odd_state_is_exported_recorded_and_verified(kind: type[Plain], tmp_path: Path) -> None:
    model, asked = kind().eval(), {"bounds": {"batch": (1, 4)}, "level": "quick"}
    found = fairway.export(model, LINES, tmp_path / "a.onnx", **asked)  # type: ignore[arg-type]
    assert found.verdict == "verified"
    assert len(found.record.subject.sha256) == 64
    assert fairway.verify(tmp_path / "a.onnx", model, LINES, **asked).verdict == "verified"  # type: ignore[arg-type]


def test_the_fingerprint_follows_values_of_every_kind() -> None:
    for kind, name in ((Sparse, "kept"), (Sparse, "rows"), (Quantized, "levels"), (Quantized, "turned")):
        model = kind()
        before = hash_model(model)
        assert hash_model(kind()) == before
        value = getattr(model, name)
        dense = value.dequantize() if value.is_quantized else value.to_dense() if name != "turned" else value
        changed = dense * 2
        if name == "kept":
            changed = changed.to_sparse()
        elif name == "rows":
            changed = changed.to_sparse_csr()
        elif name == "levels":
            changed = torch.quantize_per_tensor(changed, 0.1, 0, torch.qint8)
        setattr(model, name, changed)
        assert hash_model(model) != before, name


def test_the_fingerprint_of_a_model_of_dense_tensors_stays() -> None:
    model = nn.Linear(1, 1)
    with torch.no_grad():
        model.weight.fill_(1.0)
        model.bias.fill_(2.0)
    assert hash_model(model) == "7637660545956cd8d86c81432f538c064258d284a16fe16f8b6fedb9c21ee6bb"


def test_settings_beside_the_tensors_of_a_checkpoint_are_passed_over(tmp_path: Path) -> None:
    saved, model = Settings(), Settings()
    with torch.no_grad():
        saved.linear.bias.fill_(7.0)
    torch.save(saved.state_dict(), tmp_path / "weights.pt")
    load_checkpoint(model, tmp_path / "weights.pt", trust=False)
    assert model.linear.bias.tolist() == [7.0] * 4


def test_a_lazy_module_that_was_never_run_is_reported(tmp_path: Path) -> None:
    model = nn.Sequential(nn.LazyLinear(4))
    with pytest.raises(UserError) as caught:
        fairway.export(model, ["input: float32[batch, 4]"], tmp_path / "a.onnx")
    assert caught.value.finding.code == "FW012"
    assert caught.value.finding.seen == "0.weight of the model has no values yet: its lazy module has never run"
    assert caught.value.finding.todo == ("Run the model once on example inputs before it is exported.",)
