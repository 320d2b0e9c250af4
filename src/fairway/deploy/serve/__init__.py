"""Serving verified files over the Open Inference Protocol, within the domain that their records verified."""

from fairway.deploy.serve.server import serve
from fairway.deploy.serve.settings import ServerSettings

__all__ = ["ServerSettings", "serve"]
