"""An S3-compatible object store. Endpoint, region and credentials come the usual AWS ways.

Writes carry `If-None-Match` or `If-Match`. Not every store obeys these, and one that does not would let two publishers
tear each other's versions; so each new manifest is used to find out, before the pointer is moved.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fairway.deploy.publish.bundle import LARGEST
from fairway.deploy.publish.destination import Held, Progress
from fairway.diagnostics.errors import complain
from fairway.diagnostics.extras import require

PART = 8 * 2**20
"""Bytes that are sent at once. A part that arrived is not sent again after a kill."""
PARTS = 10_000
"""S3 takes no more parts than this."""
SENDERS = 4
_CHUNK = 1 << 20
_TAKEN = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
_ABSENT = ("NoSuchKey", "404", "NotFound")


class S3Store:
    """Objects below `s3://bucket/prefix`."""

    def __init__(self, bucket: str, prefix: str) -> None:
        require("publish", f"s3://{bucket}", "boto3")
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        self.where = f"s3://{bucket}/{prefix}".rstrip("/")
        self._bucket, self._prefix = bucket, prefix
        # Stores other than Amazon's seldom have a host name per bucket, and not all know its newer checksums.
        own = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        config = Config(
            retries={"mode": "standard"},
            connect_timeout=10,
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path"} if own else None,
        )
        try:
            self._client: Any = boto3.session.Session().client("s3", config=config)
        except (BotoCoreError, ValueError) as error:
            raise complain("FW806", f"{self.where}: {error}") from error

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": f"{self._prefix}/{key}".lstrip("/")}

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """What the store answers with becomes a finding."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except ClientError as error:
            told = error.response.get("Error", {})
            raise complain("FW806", f"{self.where}: {told.get('Code')}: {told.get('Message', '')}") from error
        except BotoCoreError as error:
            raise complain("FW806", f"{self.where}: {error}") from error

    def _try(self, call: str, codes: tuple[str, ...], **words: Any) -> Any:
        """The answer, or None where the store refused with one of the codes."""
        from botocore.exceptions import ClientError

        with self._asking():
            try:
                return getattr(self._client, call)(**words)
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") in codes:
                    return None
                raise

    def read(self, key: str) -> Held | None:
        answer = self._try("get_object", _ABSENT, **self._at(key))
        if answer is None:
            return None
        if answer["ContentLength"] > LARGEST:
            raise complain("FW804", f"{self.where}: {key} has {answer['ContentLength']} bytes; {LARGEST} are read")
        with self._asking():
            return Held(answer["Body"].read(), answer["ETag"])

    def size(self, key: str) -> int | None:
        answer = self._try("head_object", _ABSENT, **self._at(key))
        return None if answer is None else int(answer["ContentLength"])

    def stream(self, key: str) -> Iterator[bytes]:
        answer = self._try("get_object", _ABSENT, **self._at(key))
        if answer is not None:
            with self._asking():
                yield from answer["Body"].iter_chunks(_CHUNK)

    def create(self, key: str, data: bytes) -> None:
        at = self._at(key)
        if self._try("put_object", _TAKEN, Body=data, IfNoneMatch="*", **at) is None:
            return
        # The same bytes again: a store that takes them under a condition that does not hold ignores conditions.
        for condition in ({"IfNoneMatch": "*"}, {"IfMatch": f'"{"0" * 32}"'}):
            if self._try("put_object", _TAKEN, Body=data, **condition, **at) is not None:
                raise complain("FW805", f"{self.where}: {next(iter(condition))} was ignored")

    def swap(self, key: str, data: bytes, tag: str | None) -> bool:
        condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
        return self._try("put_object", (*_TAKEN, *_ABSENT), Body=data, **condition, **self._at(key)) is not None

    def send(self, key: str, path: Path, progress: Progress, replace: bool = False) -> None:
        condition = {} if replace else {"IfNoneMatch": "*"}
        size = path.stat().st_size
        if size > PART:
            self._send_parts(key, path, size, condition, progress)
            return
        progress(("stage", f"sending {path.name}"))
        data = path.read_bytes()
        self._try("put_object", _TAKEN, Body=data, ContentMD5=_md5(data), **condition, **self._at(key))

    def _send_parts(self, key: str, path: Path, size: int, condition: dict[str, str], progress: Progress) -> None:
        """In parts, beginning with what an earlier attempt left; no part is sent twice."""
        at = self._at(key)
        length = max(PART, -(-size // PARTS))
        upload, there = self._begun(key)
        if upload is None:
            with self._asking():
                upload = self._client.create_multipart_upload(**at)["UploadId"]
        numbers = range(1, -(-size // length) + 1)

        def deliver(number: int) -> dict[str, Any]:
            with path.open("rb") as file:
                file.seek((number - 1) * length)
                data = file.read(length)
            tag = there.get((number, len(data)))
            if tag is None or tag.strip('"') != hashlib.md5(data, usedforsecurity=False).hexdigest():
                answer = self._client.upload_part(
                    Body=data, UploadId=upload, PartNumber=number, ContentMD5=_md5(data), **at
                )
                tag = answer["ETag"]
            progress(("count", number, len(numbers), "parts", f"sending {path.name}"))
            return {"PartNumber": number, "ETag": tag}

        with ThreadPoolExecutor(SENDERS) as pool, self._others_allowed(key, size), self._asking():
            parts = list(pool.map(deliver, numbers))
            self._client.complete_multipart_upload(UploadId=upload, MultipartUpload={"Parts": parts}, **condition, **at)
        self._forget(key)

    def _begun(self, key: str) -> tuple[str | None, dict[tuple[int, int], str]]:
        """An upload of the same object that was not finished, and the tags of its parts by number and length."""
        at = self._at(key)
        for upload in self._uploads(key):
            with self._asking():
                pages = self._client.get_paginator("list_parts").paginate(UploadId=upload, **at)
                found = [part for page in pages for part in page.get("Parts", ())]
            return upload, {(part["PartNumber"], part["Size"]): part["ETag"] for part in found}
        return None, {}

    def _uploads(self, key: str) -> list[str]:
        at = self._at(key)
        with self._asking():
            answer = self._client.list_multipart_uploads(Bucket=at["Bucket"], Prefix=at["Key"])
        return [one["UploadId"] for one in answer.get("Uploads", ()) if one["Key"] == at["Key"]]

    @contextlib.contextmanager
    def _others_allowed(self, key: str, size: int) -> Iterator[None]:
        """Another publisher of the same bytes may have finished, or ended, the very upload; then all is well."""
        from fairway.diagnostics.errors import UserError

        try:
            yield
        except UserError:
            if self.size(key) != size:
                raise

    def _forget(self, key: str) -> None:
        """Parts of uploads that nobody will finish cost money for ever."""
        for upload in self._uploads(key):
            self._try("abort_multipart_upload", ("NoSuchUpload", *_ABSENT), UploadId=upload, **self._at(key))


def _md5(data: bytes) -> str:
    """What S3 checks a body by; not a matter of security here."""
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
