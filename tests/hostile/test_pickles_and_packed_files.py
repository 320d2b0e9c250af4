"""No pickle runs without trust, whatever it is called or wrapped in; what would swell is refused by its header."""

from __future__ import annotations

import io
import os
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fairway.model import checkpoint as checkpoint_module
from fairway.model import data as data_module
from fairway.model.checkpoint import load_checkpoint
from fairway.model.data import read_data
from fairway.model.subject import Subject, build_subject

from .watch import refusal


class Net(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


@pytest.fixture
def subject() -> Subject:
    return build_subject(Net(2, 2), "x: float32[n, 2]")


class Payload:
    """Makes a folder when it is unpickled."""

    place = ""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (Payload.place,))


@pytest.fixture
def sentinel(tmp_path: Path) -> Path:
    Payload.place = str(tmp_path / "ran")
    return tmp_path / "ran"


def saved(content: Any, zipped: bool = True) -> bytes:
    out = io.BytesIO()
    torch.save(content, out, _use_new_zipfile_serialization=zipped)
    return out.getvalue()


def zipped(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, content in members.items():
            file.writestr(name.replace("__", "/").replace("_pkl", ".pkl").replace("_pt", ".pt"), content)
    return out.getvalue()


def tar() -> bytes:
    """The format of the first releases."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as file:
        for name in ("sys_info", "pickle", "storages", "tensors"):
            content = pickle.dumps(Payload())
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            file.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def object_array(many: bool) -> bytes:
    out = io.BytesIO()
    array = np.array([Payload()], dtype=object)
    np.savez(out, x=array) if many else np.save(out, array, allow_pickle=True)
    return out.getvalue()


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "archive": (lambda: saved({"weight": Payload()}), "FW107"),
    "legacy": (lambda: saved({"weight": Payload()}, zipped=False), "FW107"),
    "plain pickle": (lambda: pickle.dumps({"weight": Payload()}, 2), "FW107"),
    "newer pickle": (lambda: pickle.dumps({"weight": Payload()}, 4), "FW107"),
    "text pickle": (lambda: pickle.dumps({"weight": Payload()}, 0), "FW105"),
    "pickle in an archive": (
        lambda: zipped(archive__data_pkl=pickle.dumps(Payload(), 2), archive__version=b"3\n"),
        "FW107",
    ),
    "archive in an archive": (lambda: zipped(w_pt=saved({"weight": Payload()})), "FW105"),
    "tar": (tar, "FW105"),
    "array of objects": (lambda: object_array(False), "FW105"),
    "arrays of objects": (lambda: object_array(True), "FW105"),
}


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin", ".ckpt", ".pkl", ""])
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_pickle_as_a_checkpoint_runs_nothing(
    tmp_path: Path, subject: Subject, sentinel: Path, kind: str, suffix: str
) -> None:
    make, code = HOSTILE[kind]
    path = tmp_path / f"w{suffix}"
    path.write_bytes(make())
    assert refusal(lambda: load_checkpoint(subject.model, path, trust=False))[0] == code
    assert not sentinel.exists()


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_pickle_that_is_called_safetensors_is_no_safetensors_file(
    tmp_path: Path, subject: Subject, sentinel: Path, kind: str
) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(HOSTILE[kind][0]())
    assert refusal(lambda: load_checkpoint(subject.model, path, False))[0] == "FW105"
    assert refusal(lambda: load_checkpoint(subject.model, path, True))[0] == "FW105"
    assert refusal(lambda: read_data(subject, path))[0] == "FW113"
    assert not sentinel.exists()


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".npz"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_pickle_as_data_runs_nothing(
    tmp_path: Path, subject: Subject, sentinel: Path, kind: str, suffix: str
) -> None:
    path = tmp_path / f"d{suffix}"
    path.write_bytes(HOSTILE[kind][0]())
    assert refusal(lambda: read_data(subject, path))[0] == "FW113"
    assert not sentinel.exists()


def test_the_payload_would_have_run(tmp_path: Path, sentinel: Path) -> None:
    """Without this the tests above could pass because the payload is broken."""
    pickle.loads(pickle.dumps(Payload()))
    assert sentinel.is_dir()


def nested_key(depth: int) -> bytes:
    """A dict whose key is a tuple of itself, again and again: each level doubles the time that its hash takes."""
    out = bytearray(b"\x80\x02}(K\x01q\x01")
    for level in range(1, depth + 1):
        out += b"h" + bytes((level,)) + b"\x86q" + bytes((level + 1,))
    return bytes(out + b"K\x05u.")


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_key_whose_hash_would_take_years_is_refused_at_once(tmp_path: Path, subject: Subject, wrapped: bool) -> None:
    content = nested_key(60)
    path = tmp_path / "w.pt"
    path.write_bytes(zipped(archive__data_pkl=content, archive__version=b"3\n") if wrapped else content)
    seen = f"w.pt ({path.stat().st_size} bytes): it nests tuples more than 8 deep"
    assert refusal(lambda: load_checkpoint(subject.model, path, trust=False)) == ("FW105", seen)
    assert refusal(lambda: read_data(subject, path)) == ("FW113", "w.pt: it nests tuples more than 8 deep")


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_pickle_that_announces_exabytes_is_refused(tmp_path: Path, subject: Subject, wrapped: bool) -> None:
    content = b"\x80\x04\x8d" + (2**60).to_bytes(8, "little") + b"a."
    path = tmp_path / "w.pt"
    path.write_bytes(zipped(archive__data_pkl=content, archive__version=b"3\n") if wrapped else content)
    assert refusal(lambda: load_checkpoint(subject.model, path, trust=False))[0] == "FW107"
    assert refusal(lambda: read_data(subject, path))[0] == "FW113"


def test_an_archive_that_swells_is_refused(tmp_path: Path, subject: Subject) -> None:
    path = tmp_path / "w.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", b"\0" * 10**7)
    seen = f"w.pt ({path.stat().st_size} bytes): it is compressed, which torch.save never does"
    assert refusal(lambda: load_checkpoint(subject.model, path, trust=False)) == ("FW105", seen)
    assert refusal(lambda: read_data(subject, path))[0] == "FW113"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_is_code_and_no_checkpoint_without_trust(tmp_path: Path, subject: Subject) -> None:
    torch.jit.save(torch.jit.script(nn.Linear(2, 2)), tmp_path / "w.pt")
    code, seen = refusal(lambda: load_checkpoint(subject.model, tmp_path / "w.pt", trust=False))
    assert (code, seen.split(": ")[1]) == ("FW105", "it is TorchScript, which is code and not a checkpoint")


def array_header(shape: str) -> bytes:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def test_an_array_that_promises_terabytes_is_refused_by_its_header(tmp_path: Path, subject: Subject) -> None:
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as file:
        file.writestr("x.npy", array_header("(1000000000000, 2)"))
    code, seen = refusal(lambda: read_data(subject, tmp_path / "d.npz"))
    assert (code, seen[:38]) == ("FW113", "d.npz: x.npy declares 8.0 TB and holds")


def test_arrays_that_unpack_to_more_than_the_memory_are_refused(
    tmp_path: Path, subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "d.npz", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x.npy", array_header("(250000, 2)") + b"\0" * 2 * 10**6)
    monkeypatch.setattr(data_module, "read_memory_bytes", lambda: 10**6)
    seen = "d.npz needs 2.0 MB; this machine has 1.0 MB of memory"
    assert refusal(lambda: read_data(subject, tmp_path / "d.npz")) == ("FW114", seen)


def test_safetensors_that_promise_terabytes_are_refused_by_their_header(tmp_path: Path, subject: Subject) -> None:
    header = b'{"x":{"dtype":"F32","shape":[1000000000000,2],"data_offsets":[0,8000000000000]}}'
    (tmp_path / "d.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    assert refusal(lambda: read_data(subject, tmp_path / "d.safetensors"))[0] == "FW113"
    assert refusal(lambda: load_checkpoint(subject.model, tmp_path / "d.safetensors", False))[0] == "FW105"


def test_a_mapped_checkpoint_larger_than_memory_must_still_be_a_checkpoint(tmp_path: Path, subject: Subject) -> None:
    os.truncate(os.open(tmp_path / "w.safetensors", os.O_CREAT | os.O_WRONLY), 1 << 43)
    assert refusal(lambda: load_checkpoint(subject.model, tmp_path / "w.safetensors", False))[0] == "FW105"


@pytest.mark.parametrize("name", ["w.pt", "w.npz"])
def test_a_file_of_holes_larger_than_the_memory_is_not_opened(
    tmp_path: Path, subject: Subject, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.truncate(os.open(tmp_path / name, os.O_CREAT | os.O_WRONLY), 1 << 43)
    for module in (checkpoint_module, data_module):
        monkeypatch.setattr(module, "read_memory_bytes", lambda: 10**9)
    seen = f"{name} has 8.8 TB; this machine has 1.0 GB of memory"
    assert refusal(lambda: load_checkpoint(subject.model, tmp_path / name, False)) == ("FW114", seen)
    assert refusal(lambda: read_data(subject, tmp_path / name)) == ("FW114", seen)


def test_a_pipe_in_place_of_weights_or_data_is_not_waited_for(tmp_path: Path, subject: Subject) -> None:
    os.mkfifo(tmp_path / "w.pt")
    assert refusal(lambda: load_checkpoint(subject.model, tmp_path / "w.pt", False))[0] == "FW104"
    seen = f"{tmp_path / 'w.pt'} is not a regular file"
    assert refusal(lambda: read_data(subject, tmp_path / "w.pt")) == ("FW113", seen)
