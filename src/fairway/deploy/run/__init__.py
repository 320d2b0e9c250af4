"""Inference over recordings of any length: windows, stitching, carried state, output written as it goes."""

from fairway.deploy.run.whole import run

__all__ = ["run"]
