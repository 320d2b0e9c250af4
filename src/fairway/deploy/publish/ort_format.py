"""A folder for phones: the model in ONNX Runtime's own format, the operators it needs, and what suits NNAPI and CoreML.

The `.ort` file is not the file that was verified, so the outputs of the two are compared before it is published. The
record next to it is that of the ONNX file. A second one says how the `.ort` file was made.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import shutil
from pathlib import Path
from typing import Any, NoReturn

from fairway.deploy.publish.bundle import Bundle
from fairway.deploy.publish.checksums import CHECKSUM_FILE as SUMS
from fairway.deploy.publish.checksums import read_checksums, write_checksums
from fairway.deploy.publish.destination import Published
from fairway.diagnostics import Code
from fairway.diagnostics.errors import UserError, complain
from fairway.model.onnx_file import check_memory
from fairway.record.files import hash_file, read_versions
from fairway.record.progress import EventSink, StageStarted
from fairway.record.schema_parts import SubjectRecord
from fairway.workers.workshop import Janitor, commit_files, open_workshop

MAX_DIFFERENCE = 1e-4
"""The largest allowed difference between floats of the `.ort` file and of the ONNX file, relative to the largest number
of the output or to 1. The two files are optimized in different ways."""


class OrtFolder:
    """`ort:FOLDER`: one model's files, replaced as a set."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.where = f"ort:{folder}"

    def publish(self, bundle: Bundle, on_event: EventSink) -> Published:
        assert bundle.header is not None
        check_memory(bundle.header)
        janitor = Janitor()
        try:
            self.folder.mkdir(exist_ok=True)
            with open_workshop(self.folder, janitor) as shop:
                staged = shop / "deliver"
                names, note = self._make(bundle, shop, staged, on_event)
                stale = self._stale(names)
                size = sum((staged / name).stat().st_size for name in names)
                commit_files(staged, names, stale)
        except OSError as error:
            raise complain(Code.CANNOT_WRITE, f"{self.where}: {error.strerror or error}") from error
        finally:
            janitor.dismiss()
        digest = hash_file(self.folder / SUMS)
        return Published(self.where, digest[:12], digest, tuple(names), tuple(names), size, bundle.unverified, (note,))

    def pull(self, staged: Path, version: str | None, on_event: EventSink) -> NoReturn:
        raise complain(
            Code.UNKNOWN_OPTION,
            f"{self.where} holds files for devices, not the file that was verified",
            todo=("Pull the ONNX file from where it was published.", "sha256sum -c SHA256SUMS checks the folder."),
        )

    def _stale(self, names: list[str]) -> list[str]:
        """Return the files that an earlier publication left and this one does not replace."""
        try:
            return sorted(name for name in read_checksums(self.folder) if name not in names and "/" not in name)
        except UserError:
            return []

    def _make(self, bundle: Bundle, shop: Path, staged: Path, on_event: EventSink) -> tuple[list[str], str]:
        """Make all files in `staged`. Returns their names in the order in which they are put in place, and a note."""
        source = shop / "source"
        for piece in bundle.pieces:
            assert piece.path is not None
            (source / piece.name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(piece.path, source / piece.name)
            if hash_file(source / piece.name) != piece.sha256:
                raise complain(Code.PUBLISHED_DIFFERS, f"{piece.name} changed while it was published")
        staged.mkdir()
        model, stem = source / bundle.model, Path(bundle.model).stem
        on_event(StageStarted("converting"))
        converted = _convert(model, shop / "converted")
        converted.rename(staged / f"{stem}.ort")
        operators = next((shop / "converted").glob("*.config")).read_text().splitlines()
        kept = [line for line in operators if not line.startswith("#")]  # comments contain paths of this machine
        (staged / f"{stem}.operators.config").write_text("\n".join(kept).strip() + "\n")
        on_event(StageStarted("comparing"))
        difference = _compare_files(model, staged / f"{stem}.ort", bundle)
        on_event(StageStarted("checking NNAPI and CoreML support"))
        (staged / f"{stem}.usability.txt").write_text(_check_usability(model))
        (source / bundle.record).rename(staged / bundle.record)
        about = {
            "made_from": {"name": bundle.model, "sha256": bundle.model_sha256, "verdict": bundle.verdict},
            "sha256": hash_file(staged / f"{stem}.ort"),
            "largest_difference": difference,
            "tolerance": MAX_DIFFERENCE,
            "versions": read_versions(),
        }
        (staged / f"{stem}.ort.json").write_text(json.dumps(about, indent=1) + "\n")
        names = [bundle.record, f"{stem}.ort.json", f"{stem}.operators.config", f"{stem}.usability.txt", f"{stem}.ort"]
        write_checksums(staged, names)
        result = "was not run: no inputs are known" if difference is None else f"differs by {difference:.1e}"
        return [SUMS, *names], f"{stem}.ort {result}"


def _convert(model: Path, folder: Path) -> Path:
    """Convert the model for ARM with ONNX Runtime's converter, which also lists the operators for a custom build."""
    from onnxruntime.tools.convert_onnx_models_to_ort import OptimizationStyle, convert_onnx_models_to_ort

    logging.getLogger("ort_format_model.utils").setLevel(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            convert_onnx_models_to_ort(model, folder, [OptimizationStyle.Fixed], target_platform="arm")
        return next(folder.glob("*.ort"))
    except Exception as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise complain(Code.ORT_DIFFERS, f"{model.name} could not be converted: {first:.300}") from error


def _check_usability(model: Path) -> str:
    """Return the report of ONNX Runtime's checker, without paths of this machine."""
    from onnxruntime.tools.mobile_helpers.usability_checker import analyze_model

    text = io.StringIO()
    logger = logging.Logger("usability", logging.INFO)
    logger.addHandler(logging.StreamHandler(text))
    analyze_model(model, logger=logger)
    lines = text.getvalue().splitlines()
    return "\n".join(line for line in lines if str(model.parent) not in line) + "\n"


def _compare_files(model: Path, converted: Path, bundle: Bundle) -> float | None:
    """Return the largest difference between the two files at the record's example, or None if it has no inputs."""
    import numpy as np

    from fairway.judge.runtimes.ort import OrtSession

    assert bundle.stored is not None
    drawn = _draw_inputs(bundle.stored.subject)
    if drawn is None:
        return None
    names, tensors = drawn
    worst = 0.0
    try:
        pairs = zip(OrtSession(model).run(names, tensors), OrtSession(converted).run(names, tensors), strict=True)
        for ours, theirs in pairs:
            if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
                types = f"{theirs.dtype}{theirs.shape}, not {ours.dtype}{ours.shape}"
                raise complain(Code.ORT_DIFFERS, f"{converted.name} returns {types}")
            if not np.issubdtype(ours.dtype, np.floating):
                far = 0.0 if np.array_equal(ours, theirs) else float("inf")
            else:
                scale = max(1.0, float(np.nanmax(np.abs(ours), initial=0.0)))
                same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
                gap = np.where(same, 0, np.abs(ours.astype("f8") - theirs.astype("f8"))) / scale
                far = float(np.nan_to_num(gap, nan=np.inf).max(initial=0.0))
            worst = max(worst, far)
    except UserError:
        raise
    except Exception as error:
        raise complain(Code.ORT_DIFFERS, f"{converted.name} does not run: {error!s:.300}") from error
    if worst > MAX_DIFFERENCE:
        raise complain(
            Code.ORT_DIFFERS,
            f"{converted.name} differs from {model.name} by {worst:.1e}; {MAX_DIFFERENCE:g} is allowed",
        )
    return worst


def _draw_inputs(subject: SubjectRecord) -> tuple[list[str], list[Any]] | None:
    """Draw inputs from the spec lines in the record, at the sizes of its example."""
    import torch

    from fairway.model.spec import parse_input
    from fairway.model.values import make_tensor

    if not subject.inputs or not subject.example:
        return None
    specs = [parse_input(line) for line in subject.inputs]
    generator = torch.Generator().manual_seed(0)
    sizes = dict(subject.example)
    return [spec.name for spec in specs], [make_tensor(spec, sizes, generator, "normal") for spec in specs]
