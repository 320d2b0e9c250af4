"""Quantized variants of a file, judged on held-back data and delivered only if they are worth it."""
