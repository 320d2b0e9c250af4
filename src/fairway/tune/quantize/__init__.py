"""Quantised variants of a file, each judged on data it was not made with, and shipped only where it is worth it."""
