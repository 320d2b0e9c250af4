"""A folder for phones: the model in ONNX Runtime's own format, the operators it needs, and what suits NNAPI and CoreML.

The `.ort` file is another file than the one that was verified, so it is run against it before it is published. The
record that lies beside it is the ONNX file's; a second one says how the `.ort` file was made from it.
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
from fairway.deploy.publish.checksums import NAME as SUMS
from fairway.deploy.publish.checksums import read_checksums, write_checksums
from fairway.deploy.publish.destination import Progress, Published
from fairway.diagnostics.errors import UserError, complain
from fairway.model.onnx_file import check_room
from fairway.record.files import hash_file, versions
from fairway.workers.staging import Janitor, commit, open_workshop

TOLERANCE = 1e-4
"""How far a float of the `.ort` file may lie from the ONNX file's, as a share of the output's largest number or of 1.
Both are run here, optimised in different ways."""


class OrtFolder:
    """`ort:FOLDER`: one model's files, replaced as a set."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.where = f"ort:{folder}"

    def publish(self, bundle: Bundle, progress: Progress) -> Published:
        assert bundle.header is not None
        check_room(bundle.header)
        janitor = Janitor()
        try:
            self.folder.mkdir(exist_ok=True)
            with open_workshop(self.folder, janitor) as shop:
                staged = shop / "deliver"
                names, note = self._make(bundle, shop, staged, progress)
                stale = self._stale(names)
                size = sum((staged / name).stat().st_size for name in names)
                commit(staged, names, stale)
        except OSError as error:
            raise complain("FW009", f"{self.where}: {error.strerror or error}") from error
        finally:
            janitor.dismiss()
        digest = hash_file(self.folder / SUMS)
        return Published(self.where, digest[:12], digest, tuple(names), tuple(names), size, bundle.unverified, (note,))

    def pull(self, staged: Path, version: str | None, progress: Progress) -> NoReturn:
        raise complain(
            "FW006",
            f"{self.where} holds a form for devices, not the file that was verified",
            todo=("Pull the ONNX file from where it was published.", "sha256sum -c SHA256SUMS checks the folder."),
        )

    def _stale(self, names: list[str]) -> list[str]:
        """Files that an earlier publication left and this one does not replace."""
        try:
            return sorted(name for name in read_checksums(self.folder) if name not in names and "/" not in name)
        except UserError:
            return []

    def _make(self, bundle: Bundle, shop: Path, staged: Path, progress: Progress) -> tuple[list[str], str]:
        """Everything that is published, in `staged`; the names in the order in which they go into place."""
        source = shop / "source"
        for piece in bundle.pieces:
            assert piece.path is not None
            (source / piece.name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(piece.path, source / piece.name)
            if hash_file(source / piece.name) != piece.sha256:
                raise complain("FW802", f"{piece.name} changed while it was published")
        staged.mkdir()
        model, stem = source / bundle.model, Path(bundle.model).stem
        progress(("stage", "converting"))
        made = _convert(model, shop / "converted")
        made.rename(staged / f"{stem}.ort")
        operators = next((shop / "converted").glob("*.config")).read_text().splitlines()
        kept = [line for line in operators if not line.startswith("#")]  # the comments name places on this machine
        (staged / f"{stem}.operators.config").write_text("\n".join(kept).strip() + "\n")
        progress(("stage", "comparing"))
        difference = _compare(model, staged / f"{stem}.ort", bundle)
        progress(("stage", "looking at what suits phones"))
        (staged / f"{stem}.usability.txt").write_text(_usability(model))
        (source / bundle.record).rename(staged / bundle.record)
        about = {
            "made_from": {"name": bundle.model, "sha256": bundle.model_sha256, "verdict": bundle.verdict},
            "sha256": hash_file(staged / f"{stem}.ort"),
            "largest_difference": difference,
            "tolerance": TOLERANCE,
            "versions": versions(),
        }
        (staged / f"{stem}.ort.json").write_text(json.dumps(about, indent=1) + "\n")
        names = [bundle.record, f"{stem}.ort.json", f"{stem}.operators.config", f"{stem}.usability.txt", f"{stem}.ort"]
        write_checksums(staged, names)
        told = "was not run: no inputs are known" if difference is None else f"differs by {difference:.1e}"
        return [SUMS, *names], f"{stem}.ort {told}"


def _convert(model: Path, folder: Path) -> Path:
    """ONNX Runtime's own converter, for ARM; it also writes the list of operators for a build of one's own."""
    from onnxruntime.tools.convert_onnx_models_to_ort import OptimizationStyle, convert_onnx_models_to_ort

    logging.getLogger("ort_format_model.utils").setLevel(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            convert_onnx_models_to_ort(model, folder, [OptimizationStyle.Fixed], target_platform="arm")
        return next(folder.glob("*.ort"))
    except Exception as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise complain("FW808", f"{model.name} could not be converted: {first:.300}") from error


def _usability(model: Path) -> str:
    """What ONNX Runtime's checker says, without the places on this machine."""
    from onnxruntime.tools.mobile_helpers.usability_checker import analyze_model

    text = io.StringIO()
    logger = logging.Logger("usability", logging.INFO)
    logger.addHandler(logging.StreamHandler(text))
    analyze_model(model, logger=logger)
    lines = text.getvalue().splitlines()
    return "\n".join(line for line in lines if str(model.parent) not in line) + "\n"


def _compare(model: Path, made: Path, bundle: Bundle) -> float | None:
    """The largest difference between the two files at the record's example; None where the record has no inputs."""
    import numpy as np

    from fairway.judge.runtimes.ort import OrtSession

    assert bundle.stored is not None
    drawn = _inputs(bundle.stored.whole.get("subject"))
    if drawn is None:
        return None
    names, tensors = drawn
    worst = 0.0
    try:
        pairs = zip(OrtSession(model).run(names, tensors), OrtSession(made).run(names, tensors), strict=True)
        for ours, theirs in pairs:
            if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
                told = f"{theirs.dtype}{theirs.shape}, not {ours.dtype}{ours.shape}"
                raise complain("FW808", f"{made.name} answers {told}")
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
        raise complain("FW808", f"{made.name} does not run: {error!s:.300}") from error
    if worst > TOLERANCE:
        raise complain("FW808", f"{made.name} differs from {model.name} by {worst:.1e}; {TOLERANCE:g} is allowed")
    return worst


def _inputs(subject: Any) -> tuple[list[str], list[Any]] | None:
    """Inputs drawn from the spec lines in the record, at its example's sizes."""
    import torch

    from fairway.model.spec import parse_input
    from fairway.model.values import make_tensor

    lines, example = (subject.get("inputs"), subject.get("example")) if isinstance(subject, dict) else (None, None)
    if not isinstance(lines, list) or not isinstance(example, dict):
        return None
    specs = [parse_input(str(line)) for line in lines]
    generator = torch.Generator().manual_seed(0)
    sizes = {str(name): int(size) for name, size in example.items()}
    return [spec.name for spec in specs], [make_tensor(spec, sizes, generator, "normal") for spec in specs]
