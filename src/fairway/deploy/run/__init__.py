"""Inference on recordings of any length: windows, stitching, carried state, and output that is written meanwhile."""

from fairway.deploy.run.runner import run

__all__ = ["run"]
