"""MLflow's model registry. The files are logged as they are; evidence becomes tags; the alias is set last.

`mlflow.onnx.log_model` loads a model and saves it again, so it would not register the bytes that were verified. Here
the files are artifacts of a run, together with the file by which `mlflow.onnx.load_model` finds the model. A version is
registered after every file was read back. MLflow numbers the versions, so two publishers make two complete versions.
Its alias has no conditional write: the later publisher wins.
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
from fairway.deploy.publish.destination import Published
from fairway.diagnostics import Code
from fairway.diagnostics.errors import UserError, complain
from fairway.diagnostics.extras import require_extra
from fairway.record.files import hash_file
from fairway.record.progress import EventSink, StageStarted

EXPERIMENT = "fairway"
ARTIFACT_FOLDER = "model"
"""The folder among the artifacts of a run that is registered."""
MANIFEST_FILE = "fairway.manifest.json"
MLMODEL_FILE = "MLmodel"
VERIFIED, UNVERIFIED = "verified", "unverified"
"""The aliases: `models:/NAME@verified` is the last version that was verified."""
_MAX_TAG_CHARACTERS = 5000
"""Characters of a tag that MLflow keeps."""


class MlflowRegistry:
    """A registered model, in the registry that MLFLOW_TRACKING_URI and MLFLOW_REGISTRY_URI name."""

    def __init__(self, name: str) -> None:
        require_extra("publish", f"mlflow:{name}", "mlflow")
        os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
        os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
        from mlflow import MlflowClient

        logging.getLogger("mlflow").setLevel(logging.ERROR)

        self.where = f"mlflow:{name}"
        self._name = name
        with self._convert_errors():
            self._client = MlflowClient()

    @contextlib.contextmanager
    def _convert_errors(self) -> Iterator[None]:
        """Turn errors of MLflow into findings."""
        from mlflow.exceptions import MlflowException

        try:
            yield
        except UserError:
            raise
        except (MlflowException, OSError) as error:
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise complain(Code.STORE_REFUSES, f"{self.where}: {first:.300}") from error

    def publish(self, bundle: Bundle, on_event: EventSink) -> Published:
        with self._convert_errors():
            run = self._open_run(bundle)
            sent = self._upload(bundle, run, on_event)
            self._check_upload(bundle, run, on_event)
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

    def _open_run(self, bundle: Bundle) -> str:
        """Return the run for these bytes, also if another publisher began it. Creates one if there is none."""
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        experiment = self._client.get_experiment_by_name(name)
        number = self._client.create_experiment(name) if experiment is None else experiment.experiment_id
        same = f"tags.`fairway.model` = '{self._name}' AND tags.`fairway.digest` = '{bundle.digest}'"
        for run in self._client.search_runs([number], same, max_results=1):
            return str(run.info.run_id)
        return str(self._client.create_run(number, run_name=self._name, tags=self._make_tags(bundle)).info.run_id)

    def _make_tags(self, bundle: Bundle) -> dict[str, str]:
        """Return a summary of the evidence, by which versions can be searched."""
        assert bundle.stored is not None
        short = bundle.stored.short
        tags = {
            "model": self._name,
            "digest": bundle.digest,
            "sha256": bundle.model_sha256,
            "verdict": short.verdict,
            "evidence": str(short),
            "route": short.route or "",
            "remedies": ", ".join(short.remedies),
            "level": short.level or "none",
            "samples": str(short.points),
            "domain": json.dumps(
                {
                    name: {"low": dim.low, "high": dim.high, "multiple": dim.multiple}
                    for name, dim in short.domain.items()
                }
            ),
            "subject_sha256": short.subject_sha256,
            "versions": json.dumps(dict(short.versions)),
            **({} if bundle.unverified is None else {"unverified": bundle.unverified}),
        }
        return {f"fairway.{key}": value[:_MAX_TAG_CHARACTERS] for key, value in tags.items()}

    def _upload(self, bundle: Bundle, run: str, on_event: EventSink) -> list[BundleFile]:
        """Send the files that the run does not hold in the right size yet."""
        sizes = self._list_sizes(run, ARTIFACT_FOLDER)
        sent = [piece for piece in bundle.pieces if sizes.get(f"{ARTIFACT_FOLDER}/{piece.name}") != piece.size]
        for piece in sent:
            on_event(StageStarted(f"sending {piece.name}"))
            self._send(run, piece)
        with tempfile.TemporaryDirectory() as scratch:
            for name, text in ((MANIFEST_FILE, bundle.manifest), (MLMODEL_FILE, self._describe_model(bundle, run))):
                (Path(scratch) / name).write_bytes(text)
                self._client.log_artifact(run, str(Path(scratch) / name), ARTIFACT_FOLDER)
        return sent

    def _send(self, run: str, piece: BundleFile) -> None:
        """Send a file through a link of the right name, because MLflow names an artifact after its file."""
        assert piece.path is not None
        folder, _, name = f"{ARTIFACT_FOLDER}/{piece.name}".rpartition("/")
        with tempfile.TemporaryDirectory() as scratch:
            path = piece.path
            if path.name != name:
                path = Path(scratch) / name
                path.symlink_to(piece.path.absolute())
            self._client.log_artifact(run, str(path), folder)

    def _list_sizes(self, run: str, folder: str) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for artifact in self._client.list_artifacts(run, folder):
            if artifact.is_dir:
                sizes |= self._list_sizes(run, artifact.path)
            else:
                sizes[artifact.path] = int(artifact.file_size or 0)
        return sizes

    def _check_upload(self, bundle: Bundle, run: str, on_event: EventSink) -> None:
        """Read every file back. One that differs is sent again, once."""
        for piece in bundle.pieces:
            on_event(StageStarted(f"checking {piece.name}"))
            if not self._holds(run, piece):
                self._send(run, piece)
                if not self._holds(run, piece):
                    raise complain(
                        Code.PUBLISHED_DIFFERS,
                        f"{self.where}: {piece.name} has another sha256 there than in its record",
                    )

    def _holds(self, run: str, piece: BundleFile) -> bool:
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(self._client.download_artifacts(run, f"{ARTIFACT_FOLDER}/{piece.name}", scratch))
            return hash_file(path) == piece.sha256

    def _describe_model(self, bundle: Bundle, run: str) -> bytes:
        """Return the file from which MLflow's loaders learn where the ONNX file is."""
        import onnx
        from mlflow.models import Model

        model: Any = Model(artifact_path=ARTIFACT_FOLDER, run_id=run)
        model.add_flavor("onnx", onnx_version=onnx.__version__, data=bundle.model, providers=None)
        model.add_flavor("python_function", loader_module="mlflow.onnx", data=bundle.model, env={})
        return str(model.to_yaml()).encode()

    def _register(self, bundle: Bundle, run: str) -> str:
        """Register a version of the model, unless these bytes are registered already."""
        from mlflow.exceptions import MlflowException

        try:
            self._client.create_registered_model(self._name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        for version in self._client.search_model_versions(f"name = '{self._name}'"):
            if version.run_id == run:
                return str(version.version)
        source = f"{self._client.get_run(run).info.artifact_uri}/{ARTIFACT_FOLDER}"
        created = self._client.create_model_version(self._name, source, run_id=run, tags=self._make_tags(bundle))
        self._client.set_terminated(run)
        return str(created.version)

    def pull(self, staged: Path, version: str | None, on_event: EventSink) -> tuple[Bundle, str]:
        """Pull the given version, or the last verified one, or the last unverified one."""
        with self._convert_errors():
            registered = self._find_version(version)
            on_event(StageStarted(f"fetching version {registered.version}"))
            folder = Path(self._client.download_artifacts(registered.run_id, ARTIFACT_FOLDER, str(staged)))
            manifest = folder / MANIFEST_FILE
            if not manifest.is_file():
                raise complain(
                    Code.NOTHING_PUBLISHED, f"{self.where}: version {registered.version} was not published by Fairway"
                )
            bundle = read_manifest(manifest.read_bytes(), self.where)
            if bundle.digest != registered.tags.get("fairway.digest"):
                raise complain(
                    Code.PUBLISHED_DIFFERS,
                    f"{self.where}: the manifest of version {registered.version} differs from its tag",
                )
        for name in (MANIFEST_FILE, MLMODEL_FILE):
            (folder / name).unlink(missing_ok=True)
        for path in folder.iterdir():
            path.rename(staged / path.name)
        folder.rmdir()
        return bundle, str(registered.version)

    def _find_version(self, version: str | None) -> Any:
        from mlflow.exceptions import MlflowException

        for name in (VERIFIED, UNVERIFIED) if version is None else (version,):
            with contextlib.suppress(MlflowException):
                if name.isdecimal():
                    return self._client.get_model_version(self._name, name)
                return self._client.get_model_version_by_alias(self._name, name)
        what = "nothing was published there" if version is None else f"there is no version {version!r:.80}"
        raise complain(Code.NOTHING_PUBLISHED, f"{self.where}: {what}")
