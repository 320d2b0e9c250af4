"""Coded diagnoses: what was seen, where, why, and what to do about it."""

from fairway.diagnostics.codes import CODES, Code, exit_status
from fairway.diagnostics.finding import Finding, Where

__all__ = ["CODES", "Code", "Finding", "Where", "exit_status"]
