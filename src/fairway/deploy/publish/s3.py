"""An S3-compatible object store. Endpoint, region and credentials come the usual AWS ways.

Writes have the conditions `If-None-Match` or `If-Match`. In a store that ignores them two publishers could damage each
other's versions. So each new manifest is used to test that, before the pointer is moved.
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

from fairway.deploy.publish.bundle import MAX_MANIFEST_BYTES
from fairway.deploy.publish.destination import StoredObject
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.diagnostics.extras import require_extra
from fairway.record.progress import EventSink, ItemsCounted, StageStarted

PART_BYTES = 8 * 2**20
"""Bytes of a part. A part that arrived is not sent again if the publisher is killed and started again."""
MAX_PARTS = 10_000
"""The largest number of parts in S3."""
MAX_SENDERS = 4
_CHUNK_BYTES = 1 << 20
_TAKEN_CODES = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
_ABSENT_CODES = ("NoSuchKey", "404", "NotFound")


class S3Store:
    """Objects below `s3://bucket/prefix`."""

    def __init__(self, bucket: str, prefix: str) -> None:
        require_extra("publish", f"s3://{bucket}", "boto3")
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        self.where = f"s3://{bucket}/{prefix}".rstrip("/")
        self._bucket, self._prefix = bucket, prefix
        # Few stores besides Amazon's have a host name for each bucket, and not all support its newer checksums.
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
            raise complain(Code.STORE_REFUSES, f"{self.where}: {error}") from error

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": f"{self._prefix}/{key}".lstrip("/")}

    @contextlib.contextmanager
    def _convert_errors(self) -> Iterator[None]:
        """Turn errors of the store into findings."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except ClientError as error:
            details = error.response.get("Error", {})
            raise complain(
                Code.STORE_REFUSES, f"{self.where}: {details.get('Code')}: {details.get('Message', '')}"
            ) from error
        except BotoCoreError as error:
            raise complain(Code.STORE_REFUSES, f"{self.where}: {error}") from error

    def _try(self, call: str, codes: tuple[str, ...], **words: Any) -> Any:
        """Return the answer, or None if the store refused with one of the codes."""
        from botocore.exceptions import ClientError

        with self._convert_errors():
            try:
                return getattr(self._client, call)(**words)
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") in codes:
                    return None
                raise

    def read(self, key: str) -> StoredObject | None:
        answer = self._try("get_object", _ABSENT_CODES, **self._at(key))
        if answer is None:
            return None
        if answer["ContentLength"] > MAX_MANIFEST_BYTES:
            raise complain(
                Code.NOTHING_PUBLISHED,
                f"{self.where}: {key} has {answer['ContentLength']} bytes; a manifest has at most {MAX_MANIFEST_BYTES}",
            )
        with self._convert_errors():
            return StoredObject(answer["Body"].read(), answer["ETag"])

    def size(self, key: str) -> int | None:
        answer = self._try("head_object", _ABSENT_CODES, **self._at(key))
        return None if answer is None else int(answer["ContentLength"])

    def stream(self, key: str) -> Iterator[bytes]:
        answer = self._try("get_object", _ABSENT_CODES, **self._at(key))
        if answer is not None:
            with self._convert_errors():
                yield from answer["Body"].iter_chunks(_CHUNK_BYTES)

    def create(self, key: str, data: bytes) -> None:
        at = self._at(key)
        if self._try("put_object", _TAKEN_CODES, Body=data, IfNoneMatch="*", **at) is None:
            return
        # The same bytes again: a store that takes them under a condition that does not hold ignores conditions.
        for condition in ({"IfNoneMatch": "*"}, {"IfMatch": f'"{"0" * 32}"'}):
            if self._try("put_object", _TAKEN_CODES, Body=data, **condition, **at) is not None:
                raise complain(Code.CONDITIONS_IGNORED, f"{self.where}: {next(iter(condition))} was ignored")

    def swap(self, key: str, data: bytes, tag: str | None) -> bool:
        condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
        return (
            self._try("put_object", (*_TAKEN_CODES, *_ABSENT_CODES), Body=data, **condition, **self._at(key))
            is not None
        )

    def send(self, key: str, path: Path, on_event: EventSink, replace: bool = False) -> None:
        condition = {} if replace else {"IfNoneMatch": "*"}
        size = path.stat().st_size
        if size > PART_BYTES:
            self._send_parts(key, path, size, condition, on_event)
            return
        on_event(StageStarted(f"sending {path.name}"))
        data = path.read_bytes()
        self._try("put_object", _TAKEN_CODES, Body=data, ContentMD5=_hash_body(data), **condition, **self._at(key))

    def _send_parts(self, key: str, path: Path, size: int, condition: dict[str, str], on_event: EventSink) -> None:
        """Send a file in parts. Parts that an earlier upload left are not sent again."""
        at = self._at(key)
        length = max(PART_BYTES, -(-size // MAX_PARTS))
        upload, there = self._find_unfinished(key)
        if upload is None:
            with self._convert_errors():
                upload = self._client.create_multipart_upload(**at)["UploadId"]
        numbers = range(1, -(-size // length) + 1)

        def deliver(number: int) -> dict[str, Any]:
            with path.open("rb") as file:
                file.seek((number - 1) * length)
                data = file.read(length)
            tag = there.get((number, len(data)))
            if tag is None or tag.strip('"') != hashlib.md5(data, usedforsecurity=False).hexdigest():
                answer = self._client.upload_part(
                    Body=data, UploadId=upload, PartNumber=number, ContentMD5=_hash_body(data), **at
                )
                tag = answer["ETag"]
            on_event(ItemsCounted(number, len(numbers), "parts", f"sending {path.name}"))
            return {"PartNumber": number, "ETag": tag}

        with ThreadPoolExecutor(MAX_SENDERS) as pool, self._allow_other_publisher(key, size), self._convert_errors():
            parts = list(pool.map(deliver, numbers))
            self._client.complete_multipart_upload(UploadId=upload, MultipartUpload={"Parts": parts}, **condition, **at)
        self._abort_uploads(key)

    def _find_unfinished(self, key: str) -> tuple[str | None, dict[tuple[int, int], str]]:
        """Return an unfinished upload of the same object, and the tags of its parts by number and length."""
        at = self._at(key)
        for upload in self._list_uploads(key):
            with self._convert_errors():
                pages = self._client.get_paginator("list_parts").paginate(UploadId=upload, **at)
                parts = [part for page in pages for part in page.get("Parts", ())]
            return upload, {(part["PartNumber"], part["Size"]): part["ETag"] for part in parts}
        return None, {}

    def _list_uploads(self, key: str) -> list[str]:
        at = self._at(key)
        with self._convert_errors():
            answer = self._client.list_multipart_uploads(Bucket=at["Bucket"], Prefix=at["Key"])
        return [upload["UploadId"] for upload in answer.get("Uploads", ()) if upload["Key"] == at["Key"]]

    @contextlib.contextmanager
    def _allow_other_publisher(self, key: str, size: int) -> Iterator[None]:
        """Ignore an error if another publisher of the same bytes has finished the upload meanwhile."""
        from fairway.diagnostics.errors import UserError

        try:
            yield
        except UserError:
            if self.size(key) != size:
                raise

    def _abort_uploads(self, key: str) -> None:
        """Abort unfinished uploads of a key, since stores charge for their parts."""
        for upload in self._list_uploads(key):
            self._try("abort_multipart_upload", ("NoSuchUpload", *_ABSENT_CODES), UploadId=upload, **self._at(key))


def _hash_body(data: bytes) -> str:
    """Return the checksum that S3 compares with the body. It is not for security."""
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
