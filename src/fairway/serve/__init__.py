"""Serving verified files over the Open Inference Protocol, within the domain that their records verified."""

from fairway.serve.server import serve
from fairway.serve.settings import Settings

__all__ = ["Settings", "serve"]
