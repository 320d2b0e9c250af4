"""A size stays symbolic under torch.export if the model passes it through `int`, `float`, `len` or `math`.

While torch.export captures, `int(x.shape[1])` returns the example's size. That fixes the dim, or the export fails. The
remedy replaces `int`, `float`, `len`, `divmod`, `map`, `isinstance`, and some functions of `math` and numpy in the
model's functions during the capture. The replacements keep a size symbolic, and call the original for everything else.

Refuses under the TorchScript exporter, where sizes are tensors, under strict capture, which keeps sizes itself, and if
no function of the model calls any of these. Can be removed once a `SymInt` survives `int()`, which Python forbids now.
"""

from __future__ import annotations

from contextlib import contextmanager

from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy
from fairway.convert.rewrite.global_overrides import find_own_functions, override_globals, replace_loads
from fairway.convert.rewrite.size_numbers import SizeNumbers
from fairway.diagnostics import Code


def detect(case: Case) -> Match | Refusal:
    if case.route.capture != "export":
        return Refusal(f"the {case.route.capture} capture makes no plain numbers of sizes by these functions")
    aliases = {id(original): "_" for original in SizeNumbers(lambda: None).make_table()}
    if not any(replace_loads(f.__code__, f.__globals__, aliases) for f in find_own_functions(case.model)):
        return Refusal("no function of the model calls int, float, len, divmod or math")
    return Match("sizes stay symbolic that int, float, len, divmod or math would have made plain numbers")


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    with override_globals(find_own_functions(case.model), SizeNumbers(case.list_if_used()).make_table()):
        yield


REMEDY = Remedy(
    name="size_made_number",
    cures=Code.SIZE_MADE_NUMBER,
    title="Keeps sizes symbolic that the model makes plain numbers",
    stage="library",
    affected={"torch": ">=2.9"},
    upstream=(),
    safety="Outside a capture there is no symbolic size, and then each function is the original.",
    detect=detect,
    apply=apply,
    order=60,
)
