"""Models whose code lies where libraries do."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from torch import nn

Library = Callable[[str], nn.Module]
NAME = "layers_of_others"


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    """From the body of a `forward(self, x)`, indented by eight spaces, to a model of a library with it at line 5."""

    def make(body: str) -> nn.Module:
        file = tmp_path / "site-packages" / f"{NAME}.py"
        file.parent.mkdir()
        file.write_text("import torch\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n" + body)
        spec = importlib.util.spec_from_file_location(NAME, file)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[NAME] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        model: nn.Module = module.Net()
        return model

    yield make
    sys.modules.pop(NAME, None)
