"""A callback for training runs: it exports and publishes the best weights when the training ends."""

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

from fairway.api import export
from fairway.diagnostics import Code
from fairway.diagnostics.errors import UserError, complain
from fairway.model.subject import build_subject
from fairway.record.delivery import check_target

if TYPE_CHECKING:
    import torch

    from fairway.convert.result import Result
    from fairway.deploy.publish.destination import Published


def _find_base_class() -> Any:
    """Return Lightning's callback class if Lightning is installed, under either name. Its trainer calls every hook."""
    for name in ("lightning", "pytorch_lightning"):
        if find_spec(name) is not None:
            module = "lightning.pytorch" if name == "lightning" else name
            return import_module(f"{module}.callbacks").Callback
    return object


_Base: Any = _find_base_class()


class ExportOnBest(_Base):  # type: ignore[misc]  # the class depends on what is installed
    """Keeps the weights with the best value. At the end they are exported, and published if the file is verified.

    `inputs` and the further keyword arguments are those of `fairway.export`. In your training loop call
    `update(model, value)` and, at the end, `finish(model)`. In Lightning's trainer it is a callback that watches the
    logged value `monitor`.
    `part` names the submodule to export if the trained module wraps it. The model keeps its last weights.
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
        **settings: Any,
    ) -> None:
        if mode not in ("min", "max"):
            raise complain(Code.UNKNOWN_OPTION, f"mode: expected min or max, got {mode!r:.40}")
        super().__init__()
        self.path, self.monitor, self.mode, self.part = Path(path), monitor, mode, part
        self.inputs, self.publish_to, self.settings = inputs, tuple(publish_to), settings
        self.best: float | None = None
        self.result: Result | None = None
        self.published: tuple[Published, ...] = ()
        self.weights: dict[str, torch.Tensor] = {}
        """The best weights."""

    def update(self, model: torch.nn.Module, value: float) -> bool:
        """Keep the weights if `value` is the best so far. Returns whether it is; NaN never is."""
        value = float(value)
        if math.isnan(value) or (self.best is not None and not self._is_better(value, self.best)):
            return False
        if self.best is None:
            self._check(model)
        self.best = value
        # Tensors on the CPU are copied too, because the optimizer writes into those of the model.
        self.weights = {name: _copy_value(value, "cpu") for name, value in model.state_dict().items()}
        return True

    def finish(self, model: torch.nn.Module) -> Result:
        """Export the best weights and publish the file. An unverified file is not published; a warning says so."""
        if self.best is None:
            raise complain(
                Code.UNKNOWN_OPTION,
                f"finish: no value of {self.monitor} was given to update, so there are no best weights",
            )
        last = {name: _copy_value(value) for name, value in model.state_dict().items()}
        training = [module for module in model.modules() if module.training]
        model.load_state_dict(self.weights)
        model.eval()
        try:
            self.result = export(model.get_submodule(self.part), self.inputs, self.path, **self.settings)
            self.published = tuple(self._publish(self.result))
        finally:
            model.load_state_dict(last)
            for module in training:
                module.training = True
        return self.result

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Update with the monitored value. Lightning calls it after each validation."""
        if trainer.sanity_checking or not trainer.is_global_zero:
            return
        if self.monitor not in trainer.callback_metrics:
            known = ", ".join(sorted(trainer.callback_metrics)) or "nothing"
            raise complain(Code.UNKNOWN_OPTION, f"monitor {self.monitor!r:.80} is not logged; logged are: {known}")
        self.update(pl_module, float(trainer.callback_metrics[self.monitor]))

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Finish, with a warning if the export fails. Lightning calls it after the training."""
        if not trainer.is_global_zero:
            return
        try:
            self.finish(pl_module)
        except UserError as error:
            warnings.warn(f"{self.path.name}: {error}", stacklevel=2)

    def _check(self, model: torch.nn.Module) -> None:
        """Refuse at the first value what could not be exported or published, not after days of training."""
        from fairway.deploy.publish.places import find_destination

        known = inspect.signature(build_subject).parameters
        arguments = {name: value for name, value in self.settings.items() if name in known}
        build_subject(model.get_submodule(self.part), self.inputs, **arguments)
        check_target(self.path, self.settings.get("overwrite", False))
        for where in self.publish_to:
            find_destination(where)

    def _is_better(self, value: float, best: float) -> bool:
        return value < best if self.mode == "min" else value > best

    def _publish(self, result: Result) -> list[Published]:
        if result.path is None or not result.verified:
            note = f"; nothing was sent to {', '.join(self.publish_to)}" if self.publish_to else ""
            warnings.warn(f"{self.path.name}: the export is {result.verdict}{note}\n{result}", stacklevel=4)
            return []
        from fairway.deploy.publish import publish

        return [publish(result.path, where) for where in self.publish_to]


def _copy_value(value: Any, device: str | None = None) -> Any:
    """Copy an entry of a state dict, which may be something other than a tensor."""
    import torch

    if not isinstance(value, torch.Tensor):
        return copy.deepcopy(value)
    return value.detach().to(device or value.device, copy=True)
