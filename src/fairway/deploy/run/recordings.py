"""Recordings from files, as arrays that are read piece by piece: never more of a file is in memory than is asked for.

Tables, and archives that are compressed, are first written out as plain arrays into a folder for scraps.
"""

from __future__ import annotations

import csv
import shutil
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fairway.diagnostics.errors import UserError, complain
from fairway.diagnostics.extras import require

SUFFIXES = (".npz", ".npy", ".csv", ".parquet", ".safetensors", ".zarr")
ROWS = 4096
"""Rows of a table that are held at once."""

Arrays = Mapping[str, Any]
"""Things with `shape` and `dtype` that give a numpy array when sliced."""


def find_recordings(data: Path) -> list[Path]:
    """The file itself, or those of a folder, by name."""
    if data.suffix == ".zarr" or not data.is_dir():
        found = [data]
    else:
        found = sorted(path for path in data.iterdir() if path.suffix in SUFFIXES)
    if not found or not all(path.exists() and path.suffix in SUFFIXES for path in found):
        raise complain("FW113", f"{data} is none of {', '.join(SUFFIXES)}, nor a folder that holds some")
    stems = [path.stem for path in found]
    twice = sorted({stem for stem in stems if stems.count(stem) > 1})
    if twice:
        raise complain("FW113", f"{data}: two recordings are called {twice[0]}, which would share one output")
    return found


def open_recording(path: Path, wanted: Sequence[str], scraps: Path) -> Arrays:
    """The arrays of a file by the input names they are for."""
    try:
        arrays = _open(path, wanted, scraps)
    except UserError:
        raise
    except Exception as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise complain("FW113", f"{path.name}: {first:.300}") from error
    return {name: array for name, array in arrays.items() if name in wanted}


def _open(path: Path, wanted: Sequence[str], scraps: Path) -> Arrays:
    if path.suffix == ".npy":
        return {wanted[0]: np.load(path, mmap_mode="r", allow_pickle=False)}
    if path.suffix == ".npz":
        return _npz(path, scraps)
    if path.suffix == ".safetensors":
        return _safetensors(path)
    if path.suffix == ".zarr":
        require("run", path.name, "zarr")
        import zarr

        opened: Any = zarr.open(str(path), mode="r")
        return dict(opened.arrays()) if hasattr(opened, "arrays") else {wanted[0]: opened}
    if path.suffix == ".parquet":
        return _parquet(path, wanted, scraps)
    return _csv(path, wanted, scraps)


def _npz(path: Path, scraps: Path) -> Arrays:
    """Members that are stored as they are lie in the archive as they would in a file; others are unpacked."""
    found: dict[str, Any] = {}
    with zipfile.ZipFile(path) as archive:
        packed_bytes = sum(m.file_size for m in archive.infolist() if m.compress_type != zipfile.ZIP_STORED)
        if packed_bytes > shutil.disk_usage(scraps).free:
            raise complain("FW114", f"{path.name} holds {packed_bytes} bytes when unpacked; the disk has no room")
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if member.compress_type != zipfile.ZIP_STORED:
                with archive.open(member) as packed, (scraps / f"{len(found)}.npy").open("wb") as plain:
                    shutil.copyfileobj(packed, plain, 1 << 20)
                found[name] = np.load(scraps / f"{len(found)}.npy", mmap_mode="r", allow_pickle=False)
                continue
            with path.open("rb") as file:
                file.seek(member.header_offset + 26)
                begin = sum(struct.unpack("<HH", file.read(4))) + member.header_offset + 30
                file.seek(begin)
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, fortran, dtype = read(file)
                if dtype.hasobject:
                    raise ValueError(f"{name} holds pickled objects, which can run code")
                order: Any = "F" if fortran else "C"
                found[name] = np.memmap(path, dtype, "r", file.tell(), shape, order)
    return found


class _Slices:
    """A tensor of a safetensors file."""

    def __init__(self, sliced: Any, dtype: Any) -> None:
        self._sliced, self.dtype = sliced, dtype
        self.shape = tuple(sliced.get_shape())

    def __getitem__(self, index: Any) -> Any:
        return self._sliced[index]


def _safetensors(path: Path) -> Arrays:
    from safetensors import safe_open

    file: Any = safe_open(str(path), framework="numpy")
    names = {"F": np.float32, "I": np.int64, "B": np.bool_}
    found = {}
    for name in file.keys():  # noqa: SIM118  # it is not a dict
        sliced = file.get_slice(name)
        kind = sliced.get_dtype()
        bits = kind.lstrip("FIUBOL")
        dtype = np.dtype(f"{kind[0].lower()}{int(bits) // 8}") if bits else np.dtype(names[kind[0]])
        found[name] = _Slices(sliced, dtype)
    return found


def _parquet(path: Path, wanted: Sequence[str], scraps: Path) -> Arrays:
    require("run", path.name, "pyarrow")
    import pyarrow.parquet

    file: Any = pyarrow.parquet.ParquetFile(path)
    columns = _columns(file.schema_arrow.names, wanted, path)

    def rows() -> Iterator[list[np.ndarray[Any, Any]]]:
        for batch in file.iter_batches(ROWS, columns=[name for names in columns.values() for name in names]):
            yield [np.stack([batch[c].to_numpy(zero_copy_only=False) for c in names], 1) for names in columns.values()]

    return _written(list(columns), rows(), scraps)


def _csv(path: Path, wanted: Sequence[str], scraps: Path) -> Arrays:
    with path.open(newline="") as file:
        lines = csv.reader(file)
        header = [name.strip() for name in next(lines, [])]
        columns = _columns(header, wanted, path)
        places = [[header.index(name) for name in names] for names in columns.values()]

        def rows() -> Iterator[list[np.ndarray[Any, Any]]]:
            held: list[list[str]] = []
            for line in lines:
                held.append(line)
                if len(held) == ROWS:
                    yield [np.array([[one[c] for c in some] for one in held], np.float64) for some in places]
                    held.clear()
            if held:
                yield [np.array([[one[c] for c in some] for one in held], np.float64) for some in places]

        return _written(list(columns), rows(), scraps)


def _columns(header: Sequence[str], wanted: Sequence[str], path: Path) -> dict[str, list[str]]:
    """The columns of each input: `acc`, or `acc.0, acc.1`, or `acc_x, acc_y`, in their order; one input takes all."""
    found = {name: [c for c in header if c == name or c.startswith((f"{name}.", f"{name}_"))] for name in wanted}
    found = {name: columns for name, columns in found.items() if columns}
    if not found and len(wanted) == 1:
        found = {wanted[0]: list(header)}
    if not found:
        raise complain("FW113", f"{path.name} has the columns {', '.join(header)[:200]}; none is {' or '.join(wanted)}")
    return found


def _written(names: list[str], rows: Iterable[list[np.ndarray[Any, Any]]], scraps: Path) -> Arrays:
    """Tables as arrays of rows and columns, on the disk."""
    files = [(scraps / f"{number}.raw").open("wb") for number in range(len(names))]
    count, widths, dtypes = 0, [0] * len(names), [np.dtype(np.float64)] * len(names)
    try:
        for parts in rows:
            count += len(parts[0])
            for number, part in enumerate(parts):
                widths[number], dtypes[number] = part.shape[1], part.dtype
                files[number].write(np.ascontiguousarray(part).tobytes())
    finally:
        for file in files:
            file.close()
    if not count:
        raise ValueError("it has no rows")
    shaped = zip(names, files, widths, dtypes, strict=True)
    return {name: np.memmap(file.name, dtype, "r", 0, (count, width)) for name, file, width, dtype in shaped}
