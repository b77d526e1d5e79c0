"""S3, over moto's server in a process of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from fakes.s3 import CREDENTIALS, s3_server
from recipes import RECIPES

from lowbit_ray.checkpoint.fetch import seal
from lowbit_ray.checkpoint.s3 import S3Origin
from lowbit_ray.checkpoint.sealed import verify_sealed
from lowbit_ray.errors import CheckpointError, FetchError


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": server}.items():
        monkeypatch.setenv(name, value)
    bucket = boto3.resource("s3").Bucket(f"b{time.monotonic_ns()}")
    bucket.create()
    return bucket


@pytest.fixture
def stored(bucket: Any, tmp_path: Path) -> Path:
    """A folder, and the same under `team/model` in the bucket."""
    folder = RECIPES[0].write(tmp_path / "folder")
    (folder / "tokenizer.json").write_bytes(os.urandom(9 * 2**20))
    for path in folder.iterdir():
        bucket.upload_file(str(path), f"team/model/{path.name}")
    bucket.upload_file(str(folder / "config.json"), "team/model2/config.json")
    return folder


def test_a_prefix_is_fetched_whole(bucket: Any, stored: Path, tmp_path: Path) -> None:
    sealed = seal(f"s3://{bucket.name}/team/model", tmp_path / "sealed", limit_gib=1)
    verify_sealed(sealed)
    assert {file.path for file in sealed.files} == {path.name for path in stored.iterdir()}
    assert (sealed.path / "tokenizer.json").read_bytes() == (stored / "tokenizer.json").read_bytes()


def test_a_sealed_prefix_is_kept(bucket: Any, stored: Path, tmp_path: Path) -> None:
    first = seal(f"s3://{bucket.name}/team/model", tmp_path / "sealed", limit_gib=1)
    assert seal(f"s3://{bucket.name}/team/model/", tmp_path / "sealed", limit_gib=1) == first


def test_reading_starts_where_it_is_asked_to(bucket: Any, stored: Path) -> None:
    origin = S3Origin(bucket.name, "team/model")
    file = next(file for file in origin.listing() if file.path == "tokenizer.json")
    assert b"".join(origin.read(file, 5 * 2**20)) == (stored / "tokenizer.json").read_bytes()[5 * 2**20 :]
    assert list(origin.read(file, file.size)) == []


def test_an_object_that_changes_after_the_listing_is_not_read(bucket: Any, stored: Path) -> None:
    origin = S3Origin(bucket.name, "team/model")
    file = next(file for file in origin.listing() if file.path == "config.json")
    bucket.put_object(Key="team/model/config.json", Body=b"{}")
    with pytest.raises(FetchError, match="has changed since it was listed"):
        list(origin.read(file, 0))


@pytest.mark.parametrize("address", ["s3://absent-bucket-of-nobody/x", "s3://{}/absent"])
def test_nothing_there_is_the_participants_fault(bucket: Any, tmp_path: Path, address: str) -> None:
    with pytest.raises(CheckpointError):
        seal(address.format(bucket.name), tmp_path / "sealed", limit_gib=1)


def test_a_key_that_leads_elsewhere_is_refused(bucket: Any, tmp_path: Path) -> None:
    bucket.put_object(Key="evil/../../escape.json", Body=b"{}")
    with pytest.raises(CheckpointError, match="not a file name"):
        seal(f"s3://{bucket.name}/evil", tmp_path / "sealed", limit_gib=1)


def test_a_store_that_is_not_there_is_our_fault(
    bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("lowbit_ray.checkpoint.s3.CONFIG", None)
    with pytest.raises(FetchError, match="did not deliver"):
        seal(f"s3://{bucket.name}/x", tmp_path / "sealed", limit_gib=1)
