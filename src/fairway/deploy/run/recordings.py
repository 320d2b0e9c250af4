"""Open recordings as arrays that are read in parts, so that only the requested part of a file is in memory.

Tables and compressed archives are first written as plain arrays into a temporary folder.
"""

from __future__ import annotations

import csv
import os
import shutil
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fairway.diagnostics import Code
from fairway.diagnostics.errors import UserError, complain
from fairway.diagnostics.extras import require_extra

SUFFIXES = (".npz", ".npy", ".csv", ".parquet", ".safetensors", ".zarr")
ROWS_AT_ONCE = 4096
"""Rows of a table that are in memory at once."""

Array = npt.NDArray[Any]
LazyArray = Any
"""An object with `shape` and `dtype` that returns a numpy array when it is sliced."""

Arrays = Mapping[str, LazyArray]
"""The arrays of a recording by name."""


def find_recordings(data: Path) -> list[Path]:
    """Return the file itself, or the recordings of a folder in order of their names."""
    if not os.path.lexists(data):
        todo = ("Check the path; a relative one starts at the current folder.",)
        raise complain(Code.DATA_UNREADABLE, f"{data} does not exist", todo=todo)
    if data.suffix == ".zarr" or not data.is_dir():
        paths = [data]
    else:
        paths = sorted(path for path in data.iterdir() if path.suffix in SUFFIXES)
    if not paths or not all(path.exists() and path.suffix in SUFFIXES for path in paths):
        raise complain(
            Code.DATA_UNREADABLE, f"{data}: expected a file with the suffix {', '.join(SUFFIXES)}, or a folder of them"
        )
    stems = [path.stem for path in paths]
    duplicates = sorted({stem for stem in stems if stems.count(stem) > 1})
    if duplicates:
        raise complain(
            Code.DATA_UNREADABLE, f"{data}: two recordings are called {duplicates[0]} and would share one output"
        )
    return paths


def open_recording(path: Path, input_names: Sequence[str], scraps: Path) -> Arrays:
    """Return the arrays of a file by input name."""
    try:
        arrays = _open(path, input_names, scraps)
    except UserError:
        raise
    except Exception as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise complain(Code.DATA_UNREADABLE, f"{path.name}: {first:.300}") from error
    return {name: array for name, array in arrays.items() if name in input_names}


def _open(path: Path, input_names: Sequence[str], scraps: Path) -> Arrays:
    if path.suffix == ".npy":
        return {input_names[0]: np.load(path, mmap_mode="r", allow_pickle=False)}
    if path.suffix == ".npz":
        return _open_npz(path, scraps)
    if path.suffix == ".safetensors":
        return _open_safetensors(path)
    if path.suffix == ".zarr":
        require_extra("run", path.name, "zarr")
        import zarr

        opened: object = zarr.open(str(path), mode="r")
        return dict(opened.arrays()) if hasattr(opened, "arrays") else {input_names[0]: opened}
    if path.suffix == ".parquet":
        return _open_parquet(path, input_names, scraps)
    return _open_csv(path, input_names, scraps)


def _open_npz(path: Path, scraps: Path) -> Arrays:
    """Open the arrays of an archive. Uncompressed ones are read in place; others are unpacked."""
    arrays: dict[str, LazyArray] = {}
    with zipfile.ZipFile(path) as archive:
        packed_bytes = sum(m.file_size for m in archive.infolist() if m.compress_type != zipfile.ZIP_STORED)
        if packed_bytes > shutil.disk_usage(scraps).free:
            raise complain(
                Code.ASKS_TOO_MUCH, f"{path.name} holds {packed_bytes} bytes when unpacked; the disk has less space"
            )
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if member.compress_type != zipfile.ZIP_STORED:
                with archive.open(member) as packed, (scraps / f"{len(arrays)}.npy").open("wb") as plain:
                    shutil.copyfileobj(packed, plain, 1 << 20)
                arrays[name] = np.load(scraps / f"{len(arrays)}.npy", mmap_mode="r", allow_pickle=False)
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
                arrays[name] = np.memmap(path, dtype, "r", file.tell(), shape, order)
    return arrays


class _SafetensorsArray:
    """A tensor of a safetensors file."""

    def __init__(self, sliced: Any, dtype: Any) -> None:
        self._sliced, self.dtype = sliced, dtype
        self.shape = tuple(sliced.get_shape())

    def __getitem__(self, index: object) -> Array:
        values: Array = self._sliced[index]
        return values


def _open_safetensors(path: Path) -> Arrays:
    from safetensors import safe_open

    file: Any = safe_open(str(path), framework="numpy")
    names = {"F": np.float32, "I": np.int64, "B": np.bool_}
    arrays = {}
    for name in file.keys():  # noqa: SIM118  # it is not a dict
        sliced = file.get_slice(name)
        kind = sliced.get_dtype()
        bits = kind.lstrip("FIUBOL")
        dtype = np.dtype(f"{kind[0].lower()}{int(bits) // 8}") if bits else np.dtype(names[kind[0]])
        arrays[name] = _SafetensorsArray(sliced, dtype)
    return arrays


def _open_parquet(path: Path, input_names: Sequence[str], scraps: Path) -> Arrays:
    require_extra("run", path.name, "pyarrow")
    import pyarrow.parquet

    file: Any = pyarrow.parquet.ParquetFile(path)
    columns = _assign_columns(file.schema_arrow.names, input_names, path)

    def rows() -> Iterator[list[Array]]:
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=[name for names in columns.values() for name in names]):
            yield [np.stack([batch[c].to_numpy(zero_copy_only=False) for c in names], 1) for names in columns.values()]

    return _write_arrays(list(columns), rows(), scraps)


def _open_csv(path: Path, input_names: Sequence[str], scraps: Path) -> Arrays:
    with path.open(newline="") as file:
        lines = csv.reader(file)
        header = [name.strip() for name in next(lines, [])]
        columns = _assign_columns(header, input_names, path)
        places = [[header.index(name) for name in names] for names in columns.values()]

        def rows() -> Iterator[list[Array]]:
            table: list[list[str]] = []
            for line in lines:
                table.append(line)
                if len(table) == ROWS_AT_ONCE:
                    yield [np.array([[row[c] for c in indexes] for row in table], np.float64) for indexes in places]
                    table.clear()
            if table:
                yield [np.array([[row[c] for c in indexes] for row in table], np.float64) for indexes in places]

        return _write_arrays(list(columns), rows(), scraps)


def _assign_columns(header: Sequence[str], input_names: Sequence[str], path: Path) -> dict[str, list[str]]:
    """Return the columns of each input: `acc`, or `acc.0, acc.1`, or `acc_x, acc_y`. A single input may take all."""
    columns = {name: [c for c in header if c == name or c.startswith((f"{name}.", f"{name}_"))] for name in input_names}
    columns = {name: matches for name, matches in columns.items() if matches}
    if not columns and len(input_names) == 1:
        columns = {input_names[0]: list(header)}
    if not columns:
        raise complain(
            Code.DATA_UNREADABLE,
            f"{path.name} has the columns {', '.join(header)[:200]}; none is {' or '.join(input_names)}",
        )
    return columns


def _write_arrays(names: list[str], rows: Iterable[list[Array]], scraps: Path) -> Arrays:
    """Write the columns of a table to the disk, as arrays of rows and columns."""
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
