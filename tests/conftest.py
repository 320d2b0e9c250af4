"""Warnings of torch's own deprecations are not ours to act on, and torch's debug log drowns every failure."""

import logging

from documented import documented, out  # noqa: F401  # fixtures

logging.getLogger("torch").setLevel(logging.ERROR)
logging.getLogger("torch.__trace").setLevel(logging.CRITICAL)
