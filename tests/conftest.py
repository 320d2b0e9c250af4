"""Fixtures for all tests. Torch's debug log is silenced, because it hides every failure."""

import logging
import sys
from collections.abc import Iterator

import pytest

from browsing import browser, look  # noqa: F401  # fixtures
from documented import documented, out  # noqa: F401  # fixtures
from of_libraries import library  # noqa: F401  # a fixture

logging.getLogger("torch").setLevel(logging.ERROR)
logging.getLogger("torch.__trace").setLevel(logging.CRITICAL)


@pytest.fixture(autouse=True)
def torch_settings_stay() -> Iterator[None]:
    """Fail a test that leaves a setting of torch changed, before it makes another test of the same process fail."""
    before = _torch_settings()
    yield
    after = _torch_settings()
    if before and after != before:
        sys.modules["torch"].backends.mha.set_fastpath_enabled(before["fast path of attention"])
        pytest.fail(f"torch's settings were {before} before this test and are {after} after it")


def _torch_settings() -> dict[str, object]:
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    return {
        "fast path of attention": torch.backends.mha.get_fastpath_enabled(),
        "default dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
    }
