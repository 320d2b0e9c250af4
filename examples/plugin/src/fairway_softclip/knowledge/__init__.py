"""Bugs of the operator, as Fairway's own knowledge is written."""
