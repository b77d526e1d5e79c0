"""A checkpoint under a prefix of an S3 bucket: `s3://bucket/prefix`.

Credentials and endpoint are boto3's own (`AWS_…` variables, instance roles, `AWS_ENDPOINT_URL`). An object is
read only as long as its ETag is the one that was listed, so that a checkpoint cannot change while it is fetched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from lowbit_ray.checkpoint.origins import CHUNK, Listed
from lowbit_ray.errors import AbsentError, CheckpointError, FetchError

__all__ = ["S3Origin", "parse_s3"]

MISSING = frozenset({"404", "NoSuchBucket", "NoSuchKey"})
MAX_OBJECTS = 20_000
CONFIG = Config(retries={"mode": "standard", "total_max_attempts": 5}, connect_timeout=30, read_timeout=60)


def parse_s3(text: str) -> S3Origin:
    """`s3://bucket/prefix` as an origin; CheckpointError when it is none."""
    bucket, _, prefix = text.removeprefix("s3://").partition("/")
    if not text.startswith("s3://") or not bucket:
        raise CheckpointError("not an S3 address", where=text[:200], expected="s3://bucket/prefix")
    return S3Origin(bucket, prefix.strip("/"))


@dataclass(frozen=True)
class S3Origin:
    """All objects under one prefix."""

    bucket: str
    prefix: str

    @property
    def name(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    @property
    def pinned(self) -> bool:
        return False

    def listing(self) -> list[Listed]:
        root = f"{self.prefix}/" if self.prefix else ""
        found: list[Listed] = []
        try:
            pages = _client().get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=root)
            for page in pages:
                for entry in page.get("Contents", []):
                    path = entry["Key"][len(root) :]
                    if path and not path.endswith("/"):
                        found.append(Listed(path, entry["Size"], entry["ETag"]))
                if len(found) > MAX_OBJECTS:
                    raise CheckpointError(
                        "too many files", where=self.name, expected=f"at most {MAX_OBJECTS}"
                    )
        except (BotoCoreError, ClientError) as error:
            raise self._fault(error, self.name) from None
        if not found:
            raise AbsentError("nothing is stored under this prefix", where=self.name)
        return found

    def read(self, file: Listed, start: int) -> Iterator[bytes]:
        if file.size == start:
            return
        key = f"{self.prefix}/{file.path}" if self.prefix else file.path
        try:
            answer = _client().get_object(
                Bucket=self.bucket, Key=key, IfMatch=file.version, Range=f"bytes={start}-{file.size - 1}"
            )
            yield from answer["Body"].iter_chunks(CHUNK)
        except (BotoCoreError, ClientError) as error:
            raise self._fault(error, f"s3://{self.bucket}/{key}") from None

    def _fault(self, error: BotoCoreError | ClientError, where: str) -> CheckpointError | FetchError:
        code = str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""
        if code in MISSING:
            return AbsentError("no such bucket or object", where=where, found=code)
        if code in ("412", "PreconditionFailed"):
            return FetchError("the object has changed since it was listed", where=where)
        return FetchError(f"the store did not deliver: {error}"[:300], where=where)


def _client() -> Any:
    # a client a call: origins are read from several threads, and boto3's sessions are not made for that
    return boto3.session.Session().client("s3", config=CONFIG)
