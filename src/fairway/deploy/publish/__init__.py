"""Publishing a file with its weights, record and checksums, together or not at all; and bringing it back, checked."""

from fairway.deploy.publish.places import publish, pull

__all__ = ["publish", "pull"]
