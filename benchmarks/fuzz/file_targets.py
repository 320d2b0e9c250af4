"""Targets that name other files: external data, recipes, checkpoints. A watch sees every file that is opened."""

from __future__ import annotations

import builtins
import io
import os
import pickle
import random
import sys
import zipfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mutate import bytewise
from targets import Target

from fairway.diagnostics.errors import UserError


class Watch:
    """Every path that is opened while it looks. An audit hook cannot be taken off again, so there is one for all."""

    def __init__(self) -> None:
        self.opened: list[str] | None = None
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.opened is not None and event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            self.opened.append(os.fsdecode(arguments[0]))

    @contextmanager
    def looking(self) -> Any:
        self.opened = []
        try:
            yield self.opened
        finally:
            self.opened = None


def external(folder: Path) -> Target:
    """The entries that say where a tensor's values lie, in a folder full of traps."""
    from onnx import TensorProto
    from onnx_seeds import value, wrap

    from fairway.model.onnx_file import open_header

    home, path, watch = folder / "home", folder / "home/m.onnx", Watch()
    (home / "sub").mkdir(parents=True)
    (home / "w.bin").write_bytes(b"\0" * 64)
    (home / "sub/w.bin").write_bytes(b"\0" * 64)
    (folder / "secret").write_bytes(b"\0" * 64)
    (home / "link").symlink_to(folder / "secret")
    (home / "inside").symlink_to("sub")
    (home / "out").symlink_to(folder)
    (home / "loop").symlink_to("loop")
    (home / "device").symlink_to("/dev/zero")
    os.mkfifo(home / "fifo")
    (home / "*/_ORT_MEM_ADDR_").mkdir(parents=True)
    (home / "*/_ORT_MEM_ADDR_/*").write_bytes(b"\0" * 64)

    def run(data: bytes) -> None:
        tensor = TensorProto(name="e", data_type=1, data_location=TensorProto.EXTERNAL)
        for line in data.decode(errors="replace").split("\n"):
            key, _, text = line.partition("=")
            if key == "dims":
                tensor.dims.extend(int(n) for n in text.split(",")[:9] if n.isdecimal() and n.isascii() and len(n) < 19)
            else:
                tensor.external_data.add(key=key, value=text)
        proto = wrap([], [tensor], inputs=[value("x", ["n", 3])])
        path.write_bytes(proto.SerializeToString())
        with watch.looking() as opened:
            try:
                names = open_header(path).external
            finally:
                assert set(opened) <= {str(path)}, opened
        for name in names:
            real = os.path.realpath(home / name)
            assert real.startswith(f"{home}/")
            assert os.path.isfile(real)
            assert "*" not in name

    seeds = [
        b"location=w.bin\noffset=0\nlength=16\ndims=4",
        b"location=sub/w.bin\noffset=16\ndims=2,2",
        b"location=link\ndims=4",
        b"location=../secret\ndims=4",
        b"location=inside/w.bin\nchecksum=00\ndims=4",
        b"location=out/secret\ndims=1",
        b"location=fifo\ndims=4",
        b"location=loop\ndims=1",
        b"location=device\ndims=1",
        b"location=/etc/passwd\ndims=1",
        b"location=*/_ORT_MEM_ADDR_/*\noffset=64\nlength=16\ndims=4",
        b"location=w.bin\nlocation=link\ndims=4",
    ]
    words = (
        b"..",
        b"/",
        b"./",
        b"../",
        b"\n",
        b"=",
        b"location=",
        b"offset=",
        b"length=",
        b"dims=",
        b"link",
        b"out/",
        b"fifo",
        b"loop",
        b"sub/",
        b"inside/",
        b"w.bin",
        b"\0",
        b"a" * 300,
        b"-1",
        "٣".encode(),
        b"1_0",
        b" 4",
        b"basepath=/",
        b"*",
        b"/dev/stdin",
        b"\\",
        b"prepacked_x=",
        b"~",
        b"file://",
        b"secret",
        b"\xff",
        b"9" * 30,
    )
    return Target(("fairway.model.onnx_requirements", "fairway.model.memory_check"), seeds, bytewise(words, 2048), run)


RECIPE = """\
import builtins
builtins.ran.append(__file__)
import fairway
net = fairway.Recipe(None, ["x: float32[n]"])
"""


def recipe(folder: Path) -> Target:
    """The address of a recipe, in a folder whose other files must not run."""
    from fairway.model.recipe import _find_object

    ran: list[str] = []
    builtins.ran = ran  # type: ignore[attr-defined]
    names = ("good", "other", "conftest", "setup", "torch", "numpy", "json", "pkg/__init__", "pkg/mod", "d/net")
    (folder / "d.py").mkdir()
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(RECIPE)
    (folder / "two.py").write_text(RECIPE + "more = net\n")
    (folder / "null.py").write_bytes(b"x = 1\0")
    (folder / "deep.py").write_text("(" * 5000)
    (folder / "odd.py").write_text(RECIPE + "def __getattr__(name): raise KeyError(name)\n")
    (folder / "loop.py").symlink_to("loop.py")
    (folder / "link.py").symlink_to("good.py")
    (folder / "weights.pt").write_bytes(b"\x80\x02")
    os.mkfifo(folder / "fifo.py")
    os.truncate(os.open(folder / "huge.py", os.O_CREAT | os.O_WRONLY), 1 << 40)
    os.chdir(folder)
    clean = list(sys.path)
    own = {p.stem for p in folder.glob("*.py")} | {"pkg", "pkg.mod"}

    def run(data: bytes) -> None:
        address = data.decode(errors="replace")
        ran.clear()
        sys.path[:] = clean  # each execution is a separate command line
        for name in own - {"torch", "numpy"}:
            sys.modules.pop(name, None)
        try:
            _find_object(address)
        finally:
            where = address.partition(":")[0]
            parts = where.split(".")
            named = {os.path.realpath(where)} if "\0" not in where else set()
            packages = ["/".join(parts[:n]) for n in range(1, len(parts) + 1)]
            named |= {f"{folder}/{one}{end}" for one in packages for end in (".py", "/__init__.py")}
            assert set(ran) <= named, (address, ran)
            assert sys.path[0] != str(folder)

    seeds = [
        b"good.py",
        b"good.py:net",
        b"./d/net.py:net",
        b"pkg.mod:net",
        b"pkg:net",
        b"good:net",
        b"two.py",
        b"odd.py:nosuch",
        b"loop.py",
        b"fifo.py",
        b"huge.py",
        b"d.py",
        b"null.py",
        b"deep.py",
        b"link.py:net",
        b"weights.pt",
        b"nosuch.mod:x",
        b"../x.py",
        b"torch:nn",
        b"",
        b":",
        b"good.py:net:net",
        str(folder / "good.py").encode(),
    ]
    words = (
        b":",
        b"/",
        b".",
        b"..",
        b".py",
        b"./",
        b"\0",
        b"net",
        b"good",
        b"pkg",
        b"\n",
        b" ",
        b"a" * 300,
        b"__init__",
        b"%",
        "é".encode(),
        b"\xff",
        b"~",
        b"$HOME",
        b"*",
        b"-",
        b"import",
        b"__class__",
        b"fifo.py",
        b"conftest",
        b"mod",
    )
    return Target(("fairway.model.recipe",), seeds, bytewise(words, 6000), run)


class Payload:
    def __init__(self, place: str) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return (os.mkdir, (self.place,))


SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".safetensors", ".npz")


def checkpoint(folder: Path) -> Target:
    """Weights and data in every format; a pickle that would make a folder must not."""
    import numpy as np
    import torch
    from safetensors.torch import save

    from fairway.model.checkpoint import load_checkpoint
    from fairway.model.data import read_data
    from fairway.model.subject import build_subject

    class Net(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    model, sentinel = Net(2, 2), folder / "ran"
    subject = build_subject(model, "x: float32[n, 2]")
    state = model.state_dict()

    def saved(content: Any, zipped: bool) -> bytes:
        out = io.BytesIO()
        torch.save(content, out, _use_new_zipfile_serialization=zipped)
        return out.getvalue()

    def repacked(data: bytes, pickled: bytes) -> bytes:
        """The archive with another pickle in it, sums made right, so that a change gets past them."""
        out = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
            for one in old.infolist():
                new.writestr(one, pickled if one.filename.endswith("data.pkl") else old.read(one))
        return out.getvalue()

    archive = saved(state, True)
    inner = zipfile.ZipFile(io.BytesIO(archive)).read("archive/data.pkl")
    arrays = io.BytesIO()
    np.savez(arrays, x=np.zeros((3, 2), np.float32), y=np.array([None]))
    good = io.BytesIO()
    np.savez_compressed(good, x=np.zeros((3, 2), np.float32))
    evil = {"weight": Payload(str(sentinel)), "bias": state["bias"]}

    def run(data: bytes) -> None:
        if not data:
            return
        path = folder / f"w{SUFFIXES[data[0] % len(SUFFIXES)]}"
        content = repacked(archive, data[1:]) if data[0] >= 128 else data[1:]
        path.write_bytes(content)
        with suppress(UserError):
            read_data(subject, path)
        try:
            load_checkpoint(model, path, trust=False)
        finally:
            assert not sentinel.exists()

    files = [
        (0, archive),
        (1, saved(state, False)),
        (2, saved(evil, True)),
        (3, saved(evil, False)),
        (4, pickle.dumps(evil)),
        (5, save(state)),
        (6, arrays.getvalue()),
        (6, good.getvalue()),
        (5, saved(evil, True)),
        (128, inner),
        (128, pickle.dumps(evil)),
        (128, b"\x80\x02}(K\x01q\x01h\x01\x86q\x02h\x02\x86q\x03K\x05u."),
        (0, saved({"x": torch.zeros(3, 2)}, True)),
    ]
    seeds = [bytes((kind,)) + content for kind, content in files]
    words = (
        b"cposix\nmkdir\n",
        b"ctorch\nload\n",
        b"cbuiltins\neval\n",
        b"R",
        b".",
        b"\x80\x02",
        b"PK\x03\x04",
        b"X\xff\xff\xff\x7f",
        b"\x8a\x08" + b"\xff" * 8,
        b"(",
        b"t",
        b"}",
        b"q\x00",
        b"h\x00",
        b'{"a":{"dtype":"F32","shape":[9999999999],"data_offsets":[',
        b"\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x93NUMPY\x01\x00",
        b"'shape': (99999999999999,)",
        b"Q",
        b"\x94",
        b"torch.FloatStorage",
    )

    plain = bytewise(words, 1 << 14)

    def mutate(data: bytes, rng: random.Random) -> bytes:
        """The first byte says how the rest is read, so it mostly stays."""
        head = data[:1] if rng.random() < 0.9 else bytes((rng.choice((0, 1, 2, 3, 4, 5, 6, 128)),))
        return head + plain(data[1:], rng)

    return Target(("fairway.model.checkpoint", "fairway.model.data"), seeds, mutate, run)
