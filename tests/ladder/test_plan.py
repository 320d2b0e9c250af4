"""The order of the ladder, moved by what earlier rungs found."""

from types import SimpleNamespace

from fairway.convert.ladder.plan import choose_next_step
from fairway.convert.ladder.route import parse_route
from fairway.convert.types import PlannedRung, Settings
from fairway.diagnostics import Finding


def _rung(name, *codes, rewrites=False, evidence=None):
    step = PlannedRung(parse_route(name, None), rewrites)
    findings = [Finding(code, "seen") for code in codes]
    seen = {"findings": findings, "evidence": evidence, "verdict": "failed"}
    return SimpleNamespace(step=step, route=step.route, remedies=(), tried=(), candidate=None, **seen)


def test_a_branch_in_the_users_code_goes_to_scripting_next():
    rungs = [_rung("export-dynamic", "FW207", "FW303", rewrites=True)]
    assert choose_next_step(rungs, Settings(), ["a suspect"]).name == "script"


def test_what_failed_for_another_reason_climbs_in_order():
    rungs = [_rung("export-dynamic", "FW305", rewrites=True)]
    assert choose_next_step(rungs, Settings(), ["a suspect"]).name == "trace with rewrites"


def test_no_step_is_walked_twice_and_the_ladder_ends():
    rungs, names = [], []
    while (step := choose_next_step(rungs, Settings(), ["a suspect"])) is not None:
        names.append(step.name)
        rungs.append(_rung(step.route.name, "FW207", rewrites=step.rewrites))
        assert len(names) < 20
    assert len(names) == len(set(names))
    assert "script" in names[:2]


def test_a_file_wrong_at_larger_sizes_is_exported_from_those_twice():
    rungs = [_rung("export-dynamic", "FW408", evidence=SimpleNamespace(wrong_at={"seq": (9, 12)}))]
    for wrong_at in ((9, 12), (11, 13)):
        step = choose_next_step(rungs, Settings(), [])
        assert (step.name, step.wrong_at) == ("export-dynamic from a larger example", (("seq", wrong_at),))
        rungs.append(_rung("export-dynamic", "FW408", evidence=SimpleNamespace(wrong_at={"seq": (11, 13)})))
        rungs[-1].step = step
    assert choose_next_step(rungs, Settings(), []).name == "export-auto"


def test_a_larger_example_that_is_right_is_not_followed_by_another():
    rungs = [_rung("export-dynamic", "FW408", evidence=SimpleNamespace(wrong_at={"seq": (9, 12)}))]
    rungs.append(_rung("export-dynamic", "FW408", evidence=SimpleNamespace(wrong_at={})))
    rungs[-1].step = choose_next_step(rungs[:1], Settings(), [])
    assert choose_next_step(rungs, Settings(), []).name == "export-auto"


def test_a_loop_is_not_unrolled_further_from_a_larger_example():
    rungs = [_rung("export-dynamic", "FW206", evidence=SimpleNamespace(wrong_at={"seq": (9, 1999)}))]
    assert not choose_next_step(rungs, Settings(), []).wrong_at


def test_a_trace_has_every_size_in_it_whatever_the_example():
    rungs = [_rung("trace", "FW408", evidence=SimpleNamespace(wrong_at={"seq": (9,)}))]
    assert not choose_next_step(rungs, Settings(), []).wrong_at


def test_a_route_tried_with_rewrites_is_also_tried_without_them():
    first = _rung("export-dynamic", "FW303", rewrites=True)
    first.remedies = (("loop_unrolled", ""),)
    second = _rung("export-dynamic", rewrites=True)
    second.step = choose_next_step([first], Settings(), ["a suspect"])
    assert second.step.decided
    third = _rung("trace", rewrites=True)
    assert choose_next_step([first, second, third], Settings(), ["a suspect"]).name == "export-dynamic"


def test_a_decision_on_a_value_is_made_beforehand_once():
    rungs = [_rung("export-dynamic", "FW303")]
    step = choose_next_step(rungs, Settings(), [])
    assert step.name == "export-dynamic with branches decided"
    again = _rung("export-dynamic", "FW303")
    again.step = step
    assert not choose_next_step([*rungs, again], Settings(), []).decided
    assert not choose_next_step(rungs, Settings(remedies=False), []).decided


def _wrong(name, wrong_by_size=True, points=()):
    evidence = SimpleNamespace(wrong_at={}, wrong_by_size=wrong_by_size, wrong_points=points)
    rung = _rung(name, "FW401", evidence=evidence)
    rung.verdict = "wrong"
    return rung


def test_a_file_wrong_at_some_sizes_is_captured_in_pieces_next():
    assert choose_next_step([_wrong("export-dynamic")], Settings(), []).name == "pieces"


def test_a_file_wrong_at_all_sizes_is_not_captured_in_pieces():
    assert choose_next_step([_wrong("export-dynamic", wrong_by_size=False)], Settings(), []).name == "export-auto"


def test_a_fixed_dim_is_captured_in_pieces_once_torch_had_its_way():
    rungs = [_rung("export-dynamic", "FW302")]
    assert choose_next_step(rungs, Settings(), []).name == "export-auto"
    rungs.append(_rung("export-auto", "FW301"))
    assert choose_next_step(rungs, Settings(), []).name == "pieces"


def test_wrong_pieces_are_made_again_twice_with_the_wrong_points():
    rungs = [_wrong("export-dynamic")]
    for points in ((), ((("time", 7),),), ((("time", 9),),)):
        step = choose_next_step(rungs, Settings(), [])
        assert (step.route.name, step.wrong_points) == ("pieces", points)
        rungs.append(_wrong("pieces", points=((("time", 7 if not points else 9),),)))
        rungs[-1].step = step
    assert choose_next_step(rungs, Settings(), []).name == "export-auto"


def test_an_operator_that_no_capture_can_run_ends_torch_export():
    rungs = [_rung("export-dynamic", "FW301")]
    rungs[0].findings[0] = Finding("FW301", "seen", data={"lacks_kernel": True})
    names = []
    while (step := choose_next_step(rungs, Settings(), [])) is not None:
        names.append(step.name)
        rungs.append(_rung(step.route.name, "FW301"))
    assert names == ["trace", "script"]
