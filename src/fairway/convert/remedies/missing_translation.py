"""Adds translations of operators that torch.onnx lacks or translates wrongly.

torch 2.13 ends with "No ONNX function found" for some sixty operators that ONNX can express, and translates a dozen
others wrongly for some arguments. `fairway.convert.translations` has all of them. If torch's own translation is right
for a call, it is used. Fake quantization has no shapes to be captured with, and gets them here. Functions that fix
sizes while they are captured are computed by other functions.

The plug-ins' translations are added too. This is the first remedy of its stage, so that entries of the others win.

Refuses under the TorchScript exporter, which takes no translations.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext

from fairway.convert.remedies.contract import (
    Applied,
    Case,
    Match,
    Refusal,
    Remedy,
    Translation,
    add_translations,
    track_use,
)
from fairway.diagnostics import Code


def detect(case: Case) -> Match | Refusal:
    if case.route.is_traced:
        return Refusal("the TorchScript exporter takes no translations")
    return Match("translations added for operators that torch.onnx lacks or translates wrongly")


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    # These import onnxscript, which is slow, so they are imported only when an export is made.
    from fairway.convert.remedies.plugin_remedies import load_plugin_translations
    from fairway.convert.translations import TRANSLATIONS
    from fairway.convert.translations.better import DEFECTS, choose_translation, find_torch_translation
    from fairway.convert.translations.fake_quantize import register_shapes
    from fairway.convert.translations.substitutes import SubstituteMode

    table: dict[object, Translation] = {}
    for operator, ours in TRANSLATIONS.items():
        theirs = find_torch_translation(operator)
        if theirs is None:
            table[operator] = ours
        elif operator in DEFECTS:
            table[operator] = choose_translation(track_use(case, ours), theirs, DEFECTS[operator].is_present)
    table |= load_plugin_translations()
    name = case.applying
    # Strict capture reads a mode's own code as part of the model.
    substitutes = nullcontext() if case.route.capture == "strict" else SubstituteMode(lambda: case.used.add(name))
    with register_shapes(), substitutes, add_translations(case, table):
        yield


REMEDY = Remedy(
    name="missing_translation",
    cures=Code.NO_TRANSLATION,
    title="Translates operators that the exporter lacks",
    stage="translation",
    affected={"torch": "==2.13.*"},
    upstream=(),
    safety="Each translation is tested against PyTorch over sizes, types and odd values, and the file is judged.",
    detect=detect,
    apply=apply,
    order=10,
)
