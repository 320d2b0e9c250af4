"""Operators that torch.onnx has no translation of, or a wrong one, are translated here.

torch 2.13 ends with "No ONNX function found" for some sixty operators that ONNX can express, and gets a dozen others
wrong for some arguments; `fairway.translations` has them. Where torch's own is right for a call, torch's own is used.
Fake quantisation lacks even the shapes to be captured with, and gets them here; functions that fix sizes while they are
captured are computed otherwise.

The plug-ins' translations come with them. First of its kind, so that the others' entries win.

Refuses under the TorchScript exporter, which has no such hook.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext

from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy, noting, translating


def detect(case: Case) -> Match | Refusal:
    if case.route.traced:
        return Refusal("the TorchScript exporter takes no translations")
    return Match("operators translated here that torch.onnx lacks or gets wrong")


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    # Imports onnxscript, which takes its time: only where an export is made.
    from fairway.convert.remedies.plugin_remedies import plugged_translations
    from fairway.convert.translations import TRANSLATIONS
    from fairway.convert.translations.better import BETTER, torchs_own, where_better
    from fairway.convert.translations.fake_quantize import captured
    from fairway.convert.translations.substitutes import StandingIn

    table = {}
    for operator, ours in TRANSLATIONS.items():
        theirs = torchs_own(operator)
        if theirs is None:
            table[operator] = ours
        elif operator in BETTER:
            table[operator] = where_better(noting(case, ours), theirs, BETTER[operator].here)
    table |= plugged_translations()
    name = case.applying
    # Strict capture reads a mode's own code as part of the model.
    standing_in = nullcontext() if case.route.capture == "strict" else StandingIn(lambda: case.used.add(name))
    with captured(), standing_in, translating(case, table):
        yield


REMEDY = Remedy(
    name="missing_translation",
    cures="FW304",
    title="Translates operators that the exporter lacks",
    stage="translation",
    affected={"torch": "==2.13.*"},
    upstream=(),
    safety="Each translation is tested against PyTorch over sizes, types and odd values, and the file is judged.",
    detect=detect,
    apply=apply,
)
