"""Findings: coded diagnoses with what was seen, where, why, and what to do."""

from fairway.diagnostics.codes import CODES, Code, CodeEntry, exit_status
from fairway.diagnostics.finding import Finding, Where

__all__ = ["CODES", "Code", "CodeEntry", "Finding", "Where", "exit_status"]
