"""A module left in training mode is captured in eval mode.

Dropout and batch norm behave differently in training, and a file is for inference. Exporters keep the mode they find,
so torch.export writes dropout that is random at run time. The TorchScript exporter sets the root to eval mode, and
afterwards all modules below it to the root's old mode. Here all modules are set to eval mode for the capture, and each
gets its own mode back.

Only `training` is set, without calling `eval()`, because a `train` method of the user may do more and has been called
already. Refuses if every module in training mode is one of torch's that computes the same in both modes. There is no
upstream issue, since exporters do not promise more.
"""

from __future__ import annotations

from contextlib import contextmanager

from torch import nn

from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy
from fairway.diagnostics import Code, Where
from fairway.torch_internals import DropoutNd, NormBase

MODE_DEPENDENT_LAYERS = (
    DropoutNd,
    NormBase,
    nn.RReLU,
    nn.RNNBase,
    nn.MultiheadAttention,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
)
"""torch's layers that depend on the mode. Any class outside torch may depend on it too."""


def depends_on_mode(module: nn.Module) -> bool:
    return isinstance(module, MODE_DEPENDENT_LAYERS) or not type(module).__module__.startswith("torch.nn.")


def detect(case: Case) -> Match | Refusal:
    training = [(name, m) for name, m in case.model.named_modules() if m.training]
    if not training:
        return Refusal("every module is in eval mode")
    dependent = [name or type(m).__name__ for name, m in training if depends_on_mode(m)]
    if not dependent:
        return Refusal("the modules in training mode compute the same in both modes")
    shown = ", ".join(dependent[:3]) + (", …" if len(dependent) > 3 else "")
    places = tuple(Where(module=name) for name in dependent)
    return Match(f"captured in eval mode; in training mode were {shown}", places)


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    modes = [(module, module.training) for module in case.model.modules()]
    try:
        for module, _ in modes:
            module.training = False
        yield
    finally:
        for module, mode in modes:
            module.training = mode


REMEDY = Remedy(
    name="training_mode",
    cures=Code.TRAINING_MODE,
    title="Captures in eval mode",
    stage="model",
    affected={"torch": ">=2.9"},
    upstream=(),
    safety="Eval mode is what the model computes in inference; it is judged against eager PyTorch in eval mode.",
    detect=detect,
    apply=apply,
    order=10,
)
