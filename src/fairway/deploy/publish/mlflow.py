"""MLflow's model registry. The files are logged as they are; evidence becomes tags; the alias is set last.

`mlflow.onnx.log_model` loads a model and saves it anew, so the bytes that were verified would not be those that are
registered. Here they are artefacts of a run, and beside them lies the one file by which `mlflow.onnx.load_model` finds
the model. A version is registered once every file was read back. MLflow gives each version a number of its own, so two
publishers make two whole versions; its alias has no conditional write, and the later of two wins.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairway.deploy.publish.bundle import Bundle, BundleFile, read_manifest
from fairway.deploy.publish.destination import Progress, Published
from fairway.diagnostics.errors import UserError, complain
from fairway.diagnostics.extras import require
from fairway.record.files import hash_file

EXPERIMENT = "fairway"
FOLDER = "model"
"""The run's folder of artefacts that is registered."""
MANIFEST = "fairway.manifest.json"
DESCRIPTION = "MLmodel"
VERIFIED, UNVERIFIED = "verified", "unverified"
"""The aliases: `models:/NAME@verified` is the last version that was verified."""
_LONGEST = 5000
"""Characters of a tag that MLflow keeps."""


class MlflowRegistry:
    """A registered model by name, in the registry that MLFLOW_TRACKING_URI and MLFLOW_REGISTRY_URI name."""

    def __init__(self, name: str) -> None:
        require("publish", f"mlflow:{name}", "mlflow")
        os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
        os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
        from mlflow import MlflowClient

        logging.getLogger("mlflow").setLevel(logging.ERROR)

        self.where = f"mlflow:{name}"
        self._name = name
        with self._asking():
            self._client = MlflowClient()

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """What the server answers with becomes a finding."""
        from mlflow.exceptions import MlflowException

        try:
            yield
        except UserError:
            raise
        except (MlflowException, OSError) as error:
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise complain("FW806", f"{self.where}: {first:.300}") from error

    def publish(self, bundle: Bundle, progress: Progress) -> Published:
        with self._asking():
            run = self._run(bundle)
            sent = self._upload(bundle, run, progress)
            self._check(bundle, run, progress)
            number = self._register(bundle, run)
            alias = VERIFIED if bundle.unverified is None else UNVERIFIED
            self._client.set_registered_model_alias(self._name, alias, number)
        return Published(
            self.where,
            number,
            bundle.digest,
            bundle.names,
            tuple(piece.name for piece in sent),
            sum(piece.size for piece in sent),
            bundle.unverified,
            (f"load it as models:/{self._name}@{alias}",),
        )

    def _run(self, bundle: Bundle) -> str:
        """The run that holds these bytes, whoever began it; a new one where there is none."""
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        experiment = self._client.get_experiment_by_name(name)
        number = self._client.create_experiment(name) if experiment is None else experiment.experiment_id
        same = f"tags.`fairway.model` = '{self._name}' AND tags.`fairway.digest` = '{bundle.digest}'"
        for run in self._client.search_runs([number], same, max_results=1):
            return str(run.info.run_id)
        return str(self._client.create_run(number, run_name=self._name, tags=self._tags(bundle)).info.run_id)

    def _tags(self, bundle: Bundle) -> dict[str, str]:
        """The evidence, in short, by which versions can be searched."""
        assert bundle.stored is not None
        proven = bundle.stored.proven
        told = {
            "model": self._name,
            "digest": bundle.digest,
            "sha256": bundle.model_sha256,
            "verdict": proven.verdict,
            "evidence": str(proven),
            "route": proven.route or "",
            "remedies": ", ".join(proven.remedies),
            "level": proven.level or "none",
            "samples": str(proven.points),
            "domain": json.dumps({name: dict(dim) for name, dim in proven.domain.items()}),
            "subject_sha256": proven.subject_sha256,
            "versions": json.dumps(dict(proven.versions)),
            **({} if bundle.unverified is None else {"unverified": bundle.unverified}),
        }
        return {f"fairway.{key}": value[:_LONGEST] for key, value in told.items()}

    def _upload(self, bundle: Bundle, run: str, progress: Progress) -> list[BundleFile]:
        """Sends what is not there in its size yet."""
        there = self._there(run, FOLDER)
        sent = [piece for piece in bundle.pieces if there.get(f"{FOLDER}/{piece.name}") != piece.size]
        for piece in sent:
            progress(("stage", f"sending {piece.name}"))
            self._send(run, piece)
        with tempfile.TemporaryDirectory() as scratch:
            for name, text in ((MANIFEST, bundle.manifest), (DESCRIPTION, self._description(bundle, run))):
                (Path(scratch) / name).write_bytes(text)
                self._client.log_artifact(run, str(Path(scratch) / name), FOLDER)
        return sent

    def _send(self, run: str, piece: BundleFile) -> None:
        """MLflow takes an artefact's name from the file's."""
        assert piece.path is not None
        folder, _, name = f"{FOLDER}/{piece.name}".rpartition("/")
        with tempfile.TemporaryDirectory() as scratch:
            path = piece.path
            if path.name != name:
                path = Path(scratch) / name
                path.symlink_to(piece.path.absolute())
            self._client.log_artifact(run, str(path), folder)

    def _there(self, run: str, folder: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for one in self._client.list_artifacts(run, folder):
            if one.is_dir:
                found |= self._there(run, one.path)
            else:
                found[one.path] = int(one.file_size or 0)
        return found

    def _check(self, bundle: Bundle, run: str, progress: Progress) -> None:
        """Reads every file back; one that is not the one verified is sent again, once."""
        for piece in bundle.pieces:
            progress(("stage", f"checking {piece.name}"))
            if not self._holds(run, piece):
                self._send(run, piece)
                if not self._holds(run, piece):
                    raise complain("FW802", f"{self.where}: {piece.name} has another sha256 there than in its record")

    def _holds(self, run: str, piece: BundleFile) -> bool:
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(self._client.download_artifacts(run, f"{FOLDER}/{piece.name}", scratch))
            return hash_file(path) == piece.sha256

    def _description(self, bundle: Bundle, run: str) -> bytes:
        """What MLflow's own loaders read: where the ONNX file lies."""
        import onnx
        from mlflow.models import Model

        described: Any = Model(artifact_path=FOLDER, run_id=run)
        described.add_flavor("onnx", onnx_version=onnx.__version__, data=bundle.model, providers=None)
        described.add_flavor("python_function", loader_module="mlflow.onnx", data=bundle.model, env={})
        return str(described.to_yaml()).encode()

    def _register(self, bundle: Bundle, run: str) -> str:
        """A version of the registered model; the same bytes are not registered twice."""
        from mlflow.exceptions import MlflowException

        try:
            self._client.create_registered_model(self._name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        for version in self._client.search_model_versions(f"name = '{self._name}'"):
            if version.run_id == run:
                return str(version.version)
        source = f"{self._client.get_run(run).info.artifact_uri}/{FOLDER}"
        made = self._client.create_model_version(self._name, source, run_id=run, tags=self._tags(bundle))
        self._client.set_terminated(run)
        return str(made.version)

    def pull(self, staged: Path, version: str | None, progress: Progress) -> tuple[Bundle, str]:
        """The last verified version; where there is none, the last one that was published as unverified."""
        with self._asking():
            found = self._find(version)
            progress(("stage", f"fetching version {found.version}"))
            folder = Path(self._client.download_artifacts(found.run_id, FOLDER, str(staged)))
            manifest = folder / MANIFEST
            if not manifest.is_file():
                raise complain("FW804", f"{self.where}: version {found.version} was not published by Fairway")
            bundle = read_manifest(manifest.read_bytes(), self.where)
            if bundle.digest != found.tags.get("fairway.digest"):
                raise complain("FW802", f"{self.where}: the manifest of version {found.version} is not the one tagged")
        for name in (MANIFEST, DESCRIPTION):
            (folder / name).unlink(missing_ok=True)
        for path in folder.iterdir():
            path.rename(staged / path.name)
        folder.rmdir()
        return bundle, str(found.version)

    def _find(self, version: str | None) -> Any:
        from mlflow.exceptions import MlflowException

        for wanted in (VERIFIED, UNVERIFIED) if version is None else (version,):
            with contextlib.suppress(MlflowException):
                if wanted.isdecimal():
                    return self._client.get_model_version(self._name, wanted)
                return self._client.get_model_version_by_alias(self._name, wanted)
        what = "nothing was published there" if version is None else f"there is no version {version!r:.80}"
        raise complain("FW804", f"{self.where}: {what}")
