"""Each idiom is rewritten, equal in eager PyTorch, and right in the runtime at sizes other than the example's."""

from __future__ import annotations

import pytest
import torch

from fairway.convert.remedies.contract import Refusal
from fairway.convert.rewrite.candidates import compile_blocks, make_candidates
from fairway.convert.rewrite.find import find_sites

from .harness import case_of, copies, export, largest_difference, outputs
from .idioms import IDIOMS, Idiom

ROUNDING = 5e-6  # float32 sums over at most 40 numbers of size 10
CASES = [pytest.param(idiom, route, id=f"{idiom.name}-{route}") for idiom in IDIOMS for route in idiom.routes]


@pytest.mark.parametrize(("idiom", "route"), CASES)
def test_rewritten_idiom_is_equal_in_eager_and_right_in_the_file(idiom: Idiom, route: str) -> None:
    torch.manual_seed(0)
    model, example = idiom.model().eval(), idiom.inputs(2, 5)
    points = [example, idiom.inputs(3, 7), idiom.inputs(4, 6)]
    before = [outputs(model, point) for point in points]
    found = tuple(site for site in find_sites(model) if site.suspect.kind != "branch")
    made = make_candidates(model, found, traced=route == "trace")
    assert not isinstance(made, Refusal), made
    with made[0].install():
        compile_blocks(case_of(model, example, route))
        after = [outputs(model, point) for point in points]
        file = export(model, copies(example), idiom.dims, route)
    for want, got in zip(before, after, strict=True):
        for a, b in zip(want, got, strict=True):
            assert a.shape == b.shape
            torch.testing.assert_close(b, a, rtol=0, atol=ROUNDING)
    assert largest_difference(model, file, points) < ROUNDING


@pytest.mark.parametrize("idiom", [pytest.param(i, id=i.name) for i in IDIOMS if i.routes == ("trace",)])
def test_the_steps_of_an_idiom_are_equal_in_eager(idiom: Idiom) -> None:
    """The rewrite for torch.export, for those whose file is only checked as traced."""
    torch.manual_seed(0)
    model = idiom.model().eval()
    points = [idiom.inputs(2, 5), idiom.inputs(3, 7)]
    before = [outputs(model, point) for point in points]
    made = make_candidates(model, tuple(s for s in find_sites(model) if s.suspect.kind != "branch"), traced=False)
    assert not isinstance(made, Refusal), made
    with made[0].install():
        after = [outputs(model, point) for point in points]
    for want, got in zip(before, after, strict=True):
        for a, b in zip(want, got, strict=True):
            torch.testing.assert_close(b, a, rtol=0, atol=ROUNDING)
