"""A training run's best weights, not its last, are what is exported and published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from fairway.deploy.callbacks import ExportOnBest
from fairway.deploy.publish import pull
from fairway.diagnostics.errors import UserError

INPUTS = ["x: float32[batch, 4]"]
HOW: dict[str, Any] = {"bounds": {"batch": (1, 8)}, "level": "quick", "routes": ["trace"]}


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.5), torch.nn.Linear(3, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)  # type: ignore[no-any-return]


def net() -> torch.nn.Module:
    torch.manual_seed(0)
    return Net()


def answer(path: Path, x: torch.Tensor) -> Any:
    session: Any = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]


def spoil(model: torch.nn.Module, by: float) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(by)


@pytest.mark.parametrize(("mode", "values"), [("min", [3.0, 1.0, float("nan"), 2.0]), ("max", [1.0, 3.0, 2.0])])
def test_the_best_weights_are_published_and_the_model_keeps_its_last(
    tmp_path: Path, mode: Any, values: list[float]
) -> None:
    model, x = net(), torch.randn(3, 4)
    best = ExportOnBest(tmp_path / "m.onnx", INPUTS, mode=mode, publish_to=[str(tmp_path / "shop")], **HOW)
    right = None
    for number, value in enumerate(values):
        spoil(model, 0.1)
        if best.update(model, value):
            right = model.eval()(x).detach().numpy()
            model.train()
            assert number < 2
    last = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert best.finish(model).verified
    assert right is not None
    assert np.allclose(answer(tmp_path / "m.onnx", x), right, atol=1e-6)
    assert all(torch.equal(tensor, last[name]) for name, tensor in model.state_dict().items())
    assert all(module.training for module in model.modules())
    pulled = pull(str(tmp_path / "shop"), tmp_path / "back")
    assert pulled.model.read_bytes() == (tmp_path / "m.onnx").read_bytes()


class Narrow(torch.nn.Module):
    """Does not take all that is declared."""

    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 3:
            raise RuntimeError("no more than three")
        return self.line(x)  # type: ignore[no-any-return]


def test_what_is_not_verified_is_not_published_and_said(tmp_path: Path) -> None:
    model = Narrow()
    best = ExportOnBest(tmp_path / "m.onnx", INPUTS, publish_to=[str(tmp_path / "shop")], **HOW)
    best.update(model, 1.0)
    with pytest.warns(UserWarning, match="nothing was sent to"):
        assert not best.finish(model).verified
    assert best.published == ()
    assert not (tmp_path / "shop").exists()


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"inputs": ["y: float32[batch, 4]"]}, "FW002"),
        ({"path": "not/there.onnx"}, "FW009"),
        ({"publish_to": ["ftp://there"]}, "FW006"),
        ({"part": "layers"}, "FW002"),
    ],
)
def test_what_cannot_end_well_is_refused_at_the_first_value(tmp_path: Path, said: dict[str, Any], code: str) -> None:
    best = ExportOnBest(**{"path": tmp_path / "m.onnx", "inputs": INPUTS, **HOW, **said})
    with pytest.raises(UserError, match=code):
        best.update(net(), 1.0)


def test_without_a_value_there_is_nothing_to_export(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="FW006"):
        ExportOnBest(tmp_path / "m.onnx", INPUTS).finish(net())
    with pytest.raises(UserError, match="FW006"):
        ExportOnBest(tmp_path / "m.onnx", INPUTS, mode="least")  # type: ignore[arg-type]


def fit(tmp_path: Path, *callbacks: ExportOnBest) -> Any:
    import pytorch_lightning

    class Trained(pytorch_lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)  # type: ignore[no-any-return]

        def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
            return torch.nn.functional.mse_loss(self(batch[0]), batch[0].sum(1, keepdim=True))

        def validation_step(self, batch: list[torch.Tensor], number: int) -> None:
            self.log("worth", float([0.0, 1.0, 5.0, 2.0][self.current_epoch]))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    class Watch(pytorch_lightning.Callback):
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            self.seen.append(pl_module.net.eval()(torch.ones(2, 4)).detach().numpy())
            pl_module.train()

    watch = Watch()
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8, 4)), 4)
    trainer = pytorch_lightning.Trainer(
        max_epochs=4,
        callbacks=[watch, *callbacks],
        logger=False,
        enable_checkpointing=False,
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(Trained(), data, data)
    return watch.seen


@pytest.mark.parametrize("part", ["", "net"])
@pytest.mark.filterwarnings("ignore")
def test_lightning_s_trainer_calls_it(tmp_path: Path, part: str) -> None:
    best = ExportOnBest(tmp_path / "m.onnx", INPUTS, monitor="worth", mode="max", part=part, **HOW)
    seen = fit(tmp_path, best)
    assert best.best == 5.0
    assert best.result is not None
    assert best.result.verified
    got = answer(tmp_path / "m.onnx", torch.ones(2, 4))
    assert np.allclose(got, seen[-2], atol=1e-6), "the best epoch was the last but one"
    assert not np.allclose(got, seen[-1], atol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_a_value_that_is_not_logged_is_named_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="logged are: worth"):
        fit(tmp_path, ExportOnBest(tmp_path / "m.onnx", INPUTS, **HOW))
