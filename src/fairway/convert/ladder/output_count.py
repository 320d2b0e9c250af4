"""Report a model whose number of outputs depends on its input."""

from __future__ import annotations

import types

from fairway.convert.rewrite.call_graph import find_method
from fairway.diagnostics import Code, Finding, Where
from fairway.judge.runtimes.eager import run_eager
from fairway.model.call_trace import TraceFunction, trace_calls
from fairway.model.dims import Point, describe_point
from fairway.model.source import make_where
from fairway.model.subject import Subject


def report_output_count(subject: Subject, here: tuple[Point, int], there: tuple[Point, int]) -> Finding:
    """Report different numbers of outputs at two points, with the line that returns them."""
    counts = " and ".join(f"{count} at {describe_point(point)}" for point, count in (here, there))
    return Finding(Code.OUTPUT_COUNT_VARIES, counts, where=_find_return_line(subject, there[0]))


def _find_return_line(subject: Subject, point: Point) -> Where | None:
    """Return the line at which `forward` returns, or None if it is not written in Python."""
    forward = find_method(subject.model, "forward")
    if not isinstance(forward, types.FunctionType):
        return None
    code, lines = forward.__code__, list[int]()

    def trace_call(frame: types.FrameType, event: str, _: object) -> TraceFunction | None:
        return trace_return if frame.f_code is code else None

    def trace_return(frame: types.FrameType, event: str, _: object) -> TraceFunction:
        if event == "return":
            lines.append(frame.f_lineno)
        return trace_return

    with trace_calls(trace_call):
        run_eager(subject, subject.make(point, 1, "normal"))
    return make_where(code.co_filename, lines[-1], code.co_qualname) if lines else None
