"""An S3 store: moto's server as a process of its own."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any
from unittest.mock import patch

import boto3
from fakes.ports import free_port

__all__ = ["CREDENTIALS", "hidden_bucket", "s3_server"]

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
}


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """Its address, for AWS_ENDPOINT_URL, for the length of the block."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert time.monotonic() < deadline, "moto's server does not come up"
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def hidden_bucket(objects: Mapping[str, bytes]) -> Iterator[Any]:
    """A client of a store whose bucket `hidden` holds these, for the length of the block; the environment knows it."""
    with s3_server() as address, patch.dict(os.environ, {**CREDENTIALS, "AWS_ENDPOINT_URL": address}):
        client = boto3.client("s3")
        client.create_bucket(Bucket="hidden")
        for key, body in objects.items():
            client.put_object(Bucket="hidden", Key=key, Body=body)
        yield client
