"""What rewritten functions call, under the one name they see it by."""

from fairway.rewrite.indexing import Chosen, Cut, Span, get, put
from fairway.rewrite.repeat import (
    Rows,
    cat,
    collect,
    enumerate_,
    extend,
    len_,
    loop,
    nested,
    over,
    reversed_,
    rows,
    stack,
    steps,
    sum_,
    zip_,
)
from fairway.rewrite.scalars import (
    UNBOUND,
    Unrewritable,
    abs_,
    any_of,
    astype,
    both,
    branch,
    ceil,
    choose,
    float_,
    floor,
    inside,
    int_,
    item,
    max_,
    min_,
    negate,
    number,
    tensor,
    text,
    tolist,
    whole,
)

__all__ = [
    "UNBOUND", "Chosen", "Cut", "Rows", "Span", "Unrewritable", "abs_", "any_of", "astype", "both", "branch", "cat", "ceil",
    "choose", "collect", "enumerate_", "extend", "float_", "floor", "get", "inside", "int_", "item", "len_", "loop", "max_", "min_",
    "negate", "nested", "number", "over", "put", "reversed_", "rows", "stack", "steps", "sum_", "tensor", "text", "tolist",
    "whole", "zip_",
]
