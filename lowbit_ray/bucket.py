"""A ledger under a prefix of an S3 bucket, of any store that knows conditional writes: `s3://bucket/prefix`.

Creating is `PutObject` with `If-None-Match: *`, swapping with `If-Match`; AWS, MinIO, Ceph and R2 know both.
Credentials and endpoint are boto3's own (`AWS_…` variables, instance roles, `AWS_ENDPOINT_URL`).

An answer can be lost although the write was done; the write is then sent again and meets itself. Each write so
carries a random word, by which it is known again: it counts as done, and not as somebody else's.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import time
from collections.abc import Iterator
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from lowbit_ray.errors import ConfigError, LedgerError
from lowbit_ray.ledger import Entry, check_key

__all__ = ["S3Ledger", "open_s3_ledger"]

CONFIG = Config(
    retries={"mode": "standard", "total_max_attempts": 5},
    connect_timeout=5,
    read_timeout=15,
    max_pool_connections=64,
    # older stores know no other checksums than Content-MD5
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
)
MISSING = frozenset({"404", "NoSuchKey", "NotFound"})
MOVED_ON = frozenset({"412", "PreconditionFailed"})
AT_ONCE = frozenset({"409", "ConditionalRequestConflict", "OperationAborted"})
"""Two conditional writes of one key at the same moment: try again."""
TRIES = 8
WRITER = "lowbit-writer"


def open_s3_ledger(address: str) -> S3Ledger:
    """The ledger at `s3://bucket/prefix`; ConfigError where it is no such address."""
    bucket, _, prefix = address.removeprefix("s3://").partition("/")
    if not address.startswith("s3://") or not bucket or "//" in f"/{prefix}":
        raise ConfigError(
            "not an S3 address", where="LOWBIT_LEDGER", found=address, expected="s3://bucket/prefix"
        )
    return S3Ledger(bucket, prefix.strip("/"))


class S3Ledger:
    """A ledger in a bucket; may be used from several threads at once."""

    def __init__(self, bucket: str, prefix: str = "") -> None:
        self.bucket = bucket
        self.prefix = prefix
        self._root = f"{prefix}/" if prefix else ""
        self._client: Any = boto3.session.Session().client("s3", config=CONFIG)

    def create(self, key: str, data: bytes) -> bool:
        """Stores a new object; False where the key exists, unless it is this very write that is there."""
        return self._put(key, data, IfNoneMatch="*")

    def read(self, key: str) -> Entry | None:
        """The object and its ETag, or None."""
        with self._faults("read", key):
            try:
                answer = self._client.get_object(Bucket=self.bucket, Key=self._key(key))
                return Entry(answer["Body"].read(), answer["ETag"])
            except ClientError as error:
                if _code(error) in MISSING:
                    return None
                raise

    def swap(self, key: str, data: bytes, version: str) -> bool:
        """Replaces the object read at `version`; False where it has moved on or is gone."""
        return self._put(key, data, IfMatch=version)

    def keys(self, prefix: str, *, after: str = "") -> list[str]:
        """All keys that start with `prefix` and come after `after`, sorted."""
        start = {"StartAfter": self._root + after} if after else {}
        found: list[str] = []
        with self._faults("listed", prefix):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=self._root + prefix, **start
            )
            for page in pages:
                found += [entry["Key"][len(self._root) :] for entry in page.get("Contents", [])]
        return found  # S3 lists in the order of keys

    def remove(self, key: str, version: str) -> bool:
        """Removes the object read at `version`; False where it has moved on or is gone."""
        with self._faults("removed", key):
            try:
                # stores that know no conditional removal are at least asked a moment before
                if self._client.head_object(Bucket=self.bucket, Key=self._key(key))["ETag"] != version:
                    return False
                self._client.delete_object(Bucket=self.bucket, Key=self._key(key), IfMatch=version)
            except ClientError as error:
                if _code(error) in MISSING | MOVED_ON:
                    return False
                raise
        return True

    def _put(self, key: str, data: bytes, **condition: str) -> bool:
        writer = secrets.token_hex(8)
        with self._faults("written", key):
            for wait_s in _waits():
                time.sleep(wait_s)
                try:
                    self._client.put_object(
                        Bucket=self.bucket,
                        Key=self._key(key),
                        Body=data,
                        Metadata={WRITER: writer},
                        **condition,
                    )
                    return True
                except ClientError as error:
                    code = _code(error)
                    if code in MISSING and "IfMatch" in condition:
                        return False
                    if code in MOVED_ON:
                        return self._writer(key) == writer
                    if code not in AT_ONCE:
                        raise
        raise LedgerError("other processes keep changing this object", where=self._where(key))

    def _writer(self, key: str) -> str | None:
        """The random word of the write that is stored."""
        try:
            answer = self._client.head_object(Bucket=self.bucket, Key=self._key(key))
        except ClientError as error:
            if _code(error) in MISSING:
                return None
            raise
        word: str | None = answer["Metadata"].get(WRITER)
        return word

    def _key(self, key: str) -> str:
        check_key(key, f"s3://{self.bucket}/{self.prefix}")
        return self._root + key

    def _where(self, key: str) -> str:
        return f"s3://{self.bucket}/{self._root}{key}"

    @contextlib.contextmanager
    def _faults(self, what: str, key: str) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise LedgerError(
                f"the ledger could not be {what}",
                where=self._where(key),
                found=f"{type(error).__name__}: {error}"[:300],
                remedy="Check LOWBIT_LEDGER, AWS_ENDPOINT_URL and the credentials; nothing stored is lost.",
            ) from None


def _waits() -> Iterator[float]:
    """Seconds to wait before each try: none, then growing and jittered, 3 s in all at most."""
    yield 0.0
    for n in range(TRIES - 1):
        yield random.uniform(0.5, 1.0) * 0.025 * 2**n


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
