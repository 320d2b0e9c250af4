"""A file that Fairway exported and verified, its weights still in the checkpoint, goes the whole road."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fairway.convert.export import export_subject
from fairway.convert.types import Settings
from fairway.deploy.publish import publish, pull
from fairway.model.recipe import Overrides, load_subject
from fairway.record.reader import compare_with_record

from .models import answers, bytes_of

RECIPE = """\
import torch
import fairway


class Wide(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.zeros(64, 64))

    def forward(self, x):
        return torch.relu(x + self.table)


wide = fairway.Recipe(Wide, ["x: float32[batch, 64, 64]"], bounds={"batch": (1, 4)},
                      checkpoint="kept/wide.safetensors")
"""


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Exported once."""
    folder = tmp_path_factory.mktemp("exported")
    (folder / "kept").mkdir()
    save_file({"table": torch.randn(64, 64)}, folder / "kept/wide.safetensors")
    (folder / "wide_recipe.py").write_text(RECIPE)
    subject = load_subject(f"{folder}/wide_recipe.py", Overrides())
    settings = Settings(level="quick", routes=("export-dynamic",), weights="link")
    result = export_subject(subject, folder / "wide.onnx", settings)
    assert result.verified, str(result)
    assert "wide_recipe" not in sys.modules
    return folder / "wide.onnx"


def test_the_checkpoint_goes_along_and_what_comes_back_is_whole(exported: Path, place: str, tmp_path: Path) -> None:
    done = publish(exported, place)
    assert done.files == ("wide.onnx", "kept/wide.safetensors", "wide.fairway.json")
    back = pull(place, tmp_path / "back")
    sent = {name: data for name, data in bytes_of(exported.parent).items() if name in done.files}
    assert bytes_of(tmp_path / "back") == sent
    stored, finding = compare_with_record(back.model)
    assert finding is None
    assert stored is not None
    assert stored.linked_hashes
    x = np.ones((3, 64, 64), np.float32)
    assert np.array_equal(answers(back.model, x), answers(exported, x))


def test_triton_and_phones_get_the_weights_too(exported: Path, tmp_path: Path) -> None:
    publish(exported, f"triton:{tmp_path / 'models'}")
    x = np.ones((3, 64, 64), np.float32)
    assert np.array_equal(answers(tmp_path / "models/wide/1/model.onnx", x), answers(exported, x))
    assert "max_batch_size: 4\n" in (tmp_path / "models/wide/config.pbtxt").read_text()
    publish(exported, f"ort:{tmp_path / 'phone'}")
    assert np.allclose(answers(tmp_path / "phone/wide.ort", x), answers(exported, x), rtol=0, atol=1e-5)
