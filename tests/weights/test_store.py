"""Weights lie in the file, beside it, or in the checkpoint still; a checkpoint that changes is noticed."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from onnxscript import opset20 as op20
from tests.weights.nets import BOUNDS, SPEC, mapped, seeded

import fairway
from fairway.convert.weights.recognize import make_constant
from fairway.diagnostics.errors import UserError
from fairway.model.weight_storage import save_candidate

PAGE = 4096


def export(folder: Path, model: torch.nn.Module, weights: str | None, name: str = "out.onnx") -> fairway.Result:
    spec = [SPEC[0].replace("float32", str(next(model.parameters()).dtype).removeprefix("torch."))]
    return fairway.export(model, spec, folder / name, bounds=BOUNDS, level="quick", weights=weights)  # type: ignore[arg-type]


def places(path: Path) -> dict[str, dict[str, str]]:
    graph = onnx.load(path, load_external_data=False).graph
    return {t.name: {e.key: e.value for e in t.external_data} for t in graph.initializer if t.external_data}


def values(path: Path) -> dict[str, np.ndarray]:
    return {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}


def test_a_linked_file_has_no_weights_of_its_own(tmp_path: Path) -> None:
    result = export(tmp_path, mapped(tmp_path), "link")
    assert result.verdict == "verified"
    where = places(tmp_path / "out.onnx")
    assert len(where) == 9  # eight blocks and the tied one; small ones are in the graph
    assert {place["location"] for place in where.values()} == {"net.safetensors"}
    assert not (tmp_path / "out.onnx.data").exists()
    assert result.record.weights.linked.as_dict() == {"tensors": 9, "bytes": 9 * 64 * 64 * 4}
    own = dict(seeded().named_parameters(remove_duplicate=False))
    held = values(tmp_path / "out.onnx")
    assert all(np.array_equal(held[name], own[name].detach().numpy()) for name in where)


def test_a_linked_checkpoint_may_lie_below(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    assert export(tmp_path, mapped(tmp_path / "deep"), "link").verdict == "verified"
    assert {place["location"] for place in places(tmp_path / "out.onnx").values()} == {"deep/net.safetensors"}


def test_a_folder_reached_through_a_link_is_the_same_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "real")
    model = mapped(tmp_path / "real")
    assert export(tmp_path / "alias", model, "link").verdict == "verified"
    assert {place["location"] for place in places(tmp_path / "real" / "out.onnx").values()} == {"net.safetensors"}


@pytest.fixture
def no_hard_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """As between two file systems, or for another user's files."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", refuse)


@pytest.mark.usefixtures("no_hard_links")
def test_a_checkpoint_on_another_file_system_is_linked_all_the_same(tmp_path: Path) -> None:
    result = export(tmp_path, mapped(tmp_path), "link")
    assert result.verdict == "verified"
    assert result.record.weights.linked.tensors == 9
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.safetensors", "out.fairway.json", "out.onnx"]


def test_a_linked_file_is_not_copied_while_it_is_judged(tmp_path: Path) -> None:
    """onnx refuses weights in a file that has a second hard link."""
    model, counts = mapped(tmp_path), set()

    def heard(event: object) -> None:
        counts.add((tmp_path / "net.safetensors").stat().st_nlink)

    fairway.export(model, SPEC, tmp_path / "out.onnx", bounds=BOUNDS, level="quick", weights="link", progress=heard)
    assert counts == {1}


def test_a_wrong_file_that_is_linked_is_traced_to_its_node(tmp_path: Path) -> None:
    wrong = {torch.ops.aten.tanh.default: lambda x: op20.Sin(x)}
    model, out = mapped(tmp_path), tmp_path / "out.onnx"
    result = fairway.export(
        model, SPEC, out, bounds=BOUNDS, level="quick", weights="link", routes=["export-dynamic"], translations=wrong
    )
    assert result.verdict == "wrong"
    (begins,) = [finding for finding in result.findings if finding.code == "FW414"]
    assert "Sin" in begins.seen
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.safetensors", "out.wrong.fairway.json", "out.wrong.onnx"]


def test_a_checkpoint_elsewhere_cannot_be_linked(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(UserError) as caught:
        export(tmp_path / "out", mapped(tmp_path), "link")
    assert caught.value.finding.code == "FW021"
    assert "is not in" in caught.value.finding.seen
    assert [*(tmp_path / "out").iterdir()] == []


def test_weights_in_memory_cannot_be_linked(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="none of the model's weights is in a checkpoint"):
        export(tmp_path, seeded(), "link")


def test_copied_weights_are_aligned_and_tied_ones_lie_there_once(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert export(tmp_path / "out", mapped(tmp_path), "copy").verdict == "verified"
    where = places(tmp_path / "out" / "out.onnx")
    assert {place["location"] for place in where.values()} == {"out.onnx.data"}
    assert all(int(place["offset"]) % PAGE == 0 for place in where.values())
    assert (tmp_path / "out" / "out.onnx.data").stat().st_size == 9 * 64 * 64 * 4
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["out.fairway.json", "out.onnx", "out.onnx.data"]


def test_weights_in_memory_are_copied_as_well(tmp_path: Path) -> None:
    result = export(tmp_path, seeded(), "copy")
    assert result.verdict == "verified"
    assert result.record.weights.beside.tensors == len(places(tmp_path / "out.onnx")) > 0


def test_small_models_are_one_file_unless_told(tmp_path: Path) -> None:
    assert export(tmp_path, seeded(), None).verdict == "verified"
    assert places(tmp_path / "out.onnx") == {}


def test_a_changed_checkpoint_is_refused_when_the_file_is_used(tmp_path: Path) -> None:
    export(tmp_path, mapped(tmp_path), "link")
    path = tmp_path / "net.safetensors"
    path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\0")
    with pytest.raises(UserError) as caught:
        fairway.verify(tmp_path / "out.onnx", seeded(), SPEC, bounds=BOUNDS, level="quick")
    assert caught.value.finding.code == "FW119"
    assert caught.value.finding.seen == "net.safetensors, which out.onnx links to: its hash differs"


def test_a_checkpoint_that_was_moved_is_missed(tmp_path: Path) -> None:
    export(tmp_path, mapped(tmp_path), "link")
    (tmp_path / "net.safetensors").rename(tmp_path / "moved.safetensors")
    with pytest.raises(UserError) as caught:
        fairway.verify(tmp_path / "out.onnx", seeded(), SPEC, bounds=BOUNDS, level="quick")
    assert caught.value.finding.code == "FW111"


def test_a_linked_file_is_verified_again(tmp_path: Path) -> None:
    export(tmp_path, mapped(tmp_path), "link")
    assert fairway.verify(tmp_path / "out.onnx", seeded(), SPEC, bounds=BOUNDS, level="quick").verdict == "verified"


def test_a_disk_without_room_for_the_weights_is_refused_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = 9 * 64 * 64 * 4  # as for the matrices, but not for what else there is
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: (10 * room, 9 * room, room))
    model, heard = mapped(tmp_path), []
    with pytest.raises(UserError, match=r"has room for 147\.5 kB; the weights alone take 153\.6 kB") as caught:
        fairway.export(model, SPEC, tmp_path / "out.onnx", bounds=BOUNDS, weights="copy", progress=heard.append)
    assert (caught.value.finding.code, heard) == ("FW009", [])
    assert export(tmp_path, model, "link").verdict == "verified"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_16_bit_weights_stay_16_bits_and_are_computed_with_in_float32(tmp_path: Path, dtype: torch.dtype) -> None:
    result = export(tmp_path, mapped(tmp_path, dtype=dtype), "link")
    assert result.verdict == "verified"
    assert result.record.weights.computed_in == "float32, from 16-bit weights"
    graph = onnx.load(tmp_path / "out.onnx", load_external_data=False).graph
    large = {t.data_type for t in graph.initializer if t.external_data}
    assert large == {onnx.TensorProto.FLOAT16 if dtype == torch.float16 else onnx.TensorProto.BFLOAT16}
    assert graph.output[0].type.tensor_type.elem_type in large
    # At the head of the file, where ONNX Runtime runs them last: else every wide copy is there at once.
    assert {node.op_type for node in graph.node[: len([t for t in graph.initializer if t.external_data])]} == {"Cast"}


def test_the_record_says_what_is_linked(tmp_path: Path) -> None:
    export(tmp_path, mapped(tmp_path), "link")
    record = json.loads((tmp_path / "out.fairway.json").read_text())
    assert [one["name"] for one in record["file"]["linked"]] == ["net.safetensors"]


def test_places_beyond_four_gigabytes_are_linked_and_read(tmp_path: Path) -> None:
    """The checkpoint is a file of holes, with one small weight behind them."""
    path, beyond = tmp_path / "far.safetensors", 5 * 10**9 // PAGE * PAGE
    weight = torch.arange(2048.0)
    with path.open("wb") as file:
        file.seek(beyond)
        file.write(weight.numpy().tobytes())
    storage = torch.UntypedStorage.from_file(str(path), shared=False, nbytes=path.stat().st_size)
    far = torch.tensor([], dtype=torch.float32).set_(storage, beyond // 4, (2048,))
    x, y = (ir.Value(name=n, shape=ir.Shape([2048]), type=ir.TensorType(ir.DataType.FLOAT)) for n in "xy")
    held = ir.Value(name="w", shape=ir.Shape([2048]), type=ir.TensorType(ir.DataType.FLOAT))
    held.const_value = make_constant(far, "w")
    node = ir.Node("", "Add", [x, held], outputs=[y])
    graph = ir.Graph([x], [y], nodes=[node], initializers=[held], opset_imports={"": 18})
    stored = save_candidate(ir.Model(graph, ir_version=9), tmp_path / "out.onnx", "link")
    assert (stored.linked, stored.beside) == (1, ())
    assert int(places(tmp_path / "out.onnx")["w"]["offset"]) == beyond
    got = onnxruntime.InferenceSession(tmp_path / "out.onnx").run(None, {"x": np.ones(2048, np.float32)})[0]
    assert np.array_equal(got, weight.numpy() + 1)
