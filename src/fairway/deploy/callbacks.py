"""What a training run calls: the best weights it has seen are exported and published when it ends."""

from __future__ import annotations

import copy
import inspect
import math
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fairway.convert.export import export
from fairway.diagnostics.errors import UserError, complain
from fairway.model.subject import build_subject
from fairway.record.delivery import check_target

if TYPE_CHECKING:
    import torch

    from fairway.convert.result import Result
    from fairway.deploy.publish.destination import Published


def _base() -> Any:
    """Lightning's callback where Lightning is installed, under either of its names: its trainer calls every hook."""
    for name in ("lightning", "pytorch_lightning"):
        if find_spec(name) is not None:
            module = "lightning.pytorch" if name == "lightning" else name
            return import_module(f"{module}.callbacks").Callback
    return object


_Base: Any = _base()


class ExportOnBest(_Base):  # type: ignore[misc]  # which one it is depends on what is installed
    """Keeps the weights of the best value seen; at the end they are exported, and published where the file is verified.

    `inputs` and what follows it by name are those of `fairway.export`. In a loop of your own call
    `update(model, value)` and, at the end, `finish(model)`. In Lightning's trainer it is a callback, which watches the
    logged value `monitor`.
    `part` names the submodule to export, where the trained module wraps it. The model keeps its last weights.
    """

    def __init__(
        self,
        path: str | Path,
        inputs: Any,
        *,
        monitor: str = "val_loss",
        mode: Literal["min", "max"] = "min",
        part: str = "",
        publish_to: Sequence[str] = (),
        **how: Any,
    ) -> None:
        if mode not in ("min", "max"):
            raise complain("FW006", f"mode {mode!r:.40}; there are min, max")
        super().__init__()
        self.path, self.monitor, self.mode, self.part = Path(path), monitor, mode, part
        self.inputs, self.publish_to, self.how = inputs, tuple(publish_to), how
        self.best: float | None = None
        self.result: Result | None = None
        self.published: tuple[Published, ...] = ()
        self.weights: dict[str, torch.Tensor] = {}
        """The best ones."""

    def update(self, model: torch.nn.Module, value: float) -> bool:
        """Whether `value` is the best so far; then the weights of now are kept. What is no number is never the best."""
        value = float(value)
        if math.isnan(value) or (self.best is not None and not self._better(value, self.best)):
            return False
        if self.best is None:
            self._check(model)
        self.best = value
        # A copy, also of what is on the CPU already: the optimiser writes into the model's own tensors.
        self.weights = {name: _copied(value, "cpu") for name, value in model.state_dict().items()}
        return True

    def finish(self, model: torch.nn.Module) -> Result:
        """Exports the best weights and publishes the file. What is not verified is not published, with a warning."""
        if self.best is None:
            raise complain("FW006", f"no value of {self.monitor} was seen, so no weights are the best")
        last = {name: _copied(value) for name, value in model.state_dict().items()}
        training = [module for module in model.modules() if module.training]
        model.load_state_dict(self.weights)
        model.eval()
        try:
            self.result = export(model.get_submodule(self.part), self.inputs, self.path, **self.how)
            self.published = tuple(self._publish(self.result))
        finally:
            model.load_state_dict(last)
            for module in training:
                module.training = True
        return self.result

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Lightning's: a validation is over."""
        if trainer.sanity_checking or not trainer.is_global_zero:
            return
        if self.monitor not in trainer.callback_metrics:
            known = ", ".join(sorted(trainer.callback_metrics)) or "nothing"
            raise complain("FW006", f"monitor {self.monitor!r:.80} is not logged; {known} is")
        self.update(pl_module, float(trainer.callback_metrics[self.monitor]))

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Lightning's: the training is over. An export that fails does not fail the training."""
        if not trainer.is_global_zero:
            return
        try:
            self.finish(pl_module)
        except UserError as error:
            warnings.warn(f"{self.path.name}: {error}", stacklevel=2)

    def _check(self, model: torch.nn.Module) -> None:
        """What could not be exported or published is refused at the first value, not after days of training."""
        from fairway.deploy.publish.places import find

        known = inspect.signature(build_subject).parameters
        about = {name: value for name, value in self.how.items() if name in known}
        build_subject(model.get_submodule(self.part), self.inputs, **about)
        check_target(self.path, self.how.get("overwrite", False))
        for where in self.publish_to:
            find(where)

    def _better(self, value: float, than: float) -> bool:
        return value < than if self.mode == "min" else value > than

    def _publish(self, result: Result) -> list[Published]:
        if result.path is None or not result.verified:
            left = f"; nothing went to {', '.join(self.publish_to)}" if self.publish_to else ""
            warnings.warn(f"{self.path.name}: the export is {result.verdict}{left}\n{result}", stacklevel=4)
            return []
        from fairway.deploy.publish import publish

        return [publish(result.path, where) for where in self.publish_to]


def _copied(value: Any, device: str | None = None) -> Any:
    """A copy of an entry of a state dict, which need not be a tensor."""
    import torch

    if not isinstance(value, torch.Tensor):
        return copy.deepcopy(value)
    return value.detach().to(device or value.device, copy=True)
