"""Publish a file with its weights, record and checksums, all or nothing, and pull it back with every file checked."""

from fairway.deploy.publish.places import publish, pull

__all__ = ["publish", "pull"]
