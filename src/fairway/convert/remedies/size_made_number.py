"""Sizes that the model makes plain numbers, by `int`, `float`, `len` or `math`, stay symbolic under torch.export.

`int(x.shape[1])` asks the size for its number, and torch.export answers with the example's: the dim is fixed, or the
export raises. While the model is captured, its functions load others in place of `int`, `float`, `len`, `divmod`,
`map`, `isinstance`, and of some functions of `math` and numpy. These keep a size as it is, and hand all else on.

Refuses under the TorchScript exporter, where sizes are tensors, under strict capture, which keeps sizes itself, and
where no function of the model calls any of these. It can go once a `SymInt` survives `int()`, which Python forbids now.
"""

from __future__ import annotations

from contextlib import contextmanager

from fairway.convert.remedies.contract import Applied, Case, Match, Refusal, Remedy
from fairway.convert.rewrite.global_overrides import loading, own_functions, with_loads
from fairway.convert.rewrite.size_numbers import SizeNumbers


def detect(case: Case) -> Match | Refusal:
    if case.route.capture != "export":
        return Refusal(f"the {case.route.capture} capture makes no plain numbers of sizes by these functions")
    aliases = {id(original): "_" for original in SizeNumbers(lambda: None).table()}
    if not any(with_loads(f.__code__, f.__globals__, aliases) for f in own_functions(case.model)):
        return Refusal("no function of the model calls int, float, len, divmod or math")
    return Match("sizes that int, float, len, divmod or math would have made plain numbers stay symbolic")


@contextmanager
def apply(case: Case, match: Match) -> Applied:
    name = case.applying
    case.waiting.add(name)
    with loading(own_functions(case.model), SizeNumbers(lambda: case.used.add(name)).table()):
        yield


REMEDY = Remedy(
    name="size_made_number",
    cures="FW225",
    title="Keeps sizes symbolic that the model makes plain numbers",
    stage="library",
    affected={"torch": ">=2.9"},
    upstream=(),
    safety="Outside a capture there is no symbolic size, and then each function is the original.",
    detect=detect,
    apply=apply,
)
"""The entry of the catalogue."""
