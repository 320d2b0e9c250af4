"""Warnings of torch's own deprecations are not ours to act on, and torch's debug log drowns every failure."""

import logging

from browsing import browser, look  # noqa: F401  # fixtures
from documented import documented, out  # noqa: F401  # fixtures
from of_libraries import library  # noqa: F401  # a fixture

logging.getLogger("torch").setLevel(logging.ERROR)
logging.getLogger("torch.__trace").setLevel(logging.CRITICAL)
