"""Where a participant's checkpoint may lie: at a commit on the hub, or in a bucket that organizers allowed.

The service fetches nothing itself, but whoever evaluates does: an address must not make it read a file of its
own, or ask a host of the participant's choosing.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from lowbit_ray.errors import SubmissionError
from lowbit_ray.submission import Address, parse_address

__all__ = ["REPOSITORY", "allowed_address"]

REPOSITORY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}/[A-Za-z0-9_][A-Za-z0-9._-]{0,95}")
BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,62}")
PREFIX = re.compile(r"[A-Za-z0-9._=+-]+(/[A-Za-z0-9._=+-]+)*")


def allowed_address(text: str, field: str, buckets: Collection[str], *, folders: bool = False) -> Address:
    """The address that `text` is; SubmissionError that names `field` where it is none or not allowed.

    folders: whether a path on the cluster's own disks is, as for organizers.
    """
    try:
        address = parse_address(text)
    except SubmissionError as error:
        raise _refused(field, error.summary, remedy=error.remedy) from None
    if address.kind == "hub" and not _plain(REPOSITORY, address.location):
        raise _refused(field, "not the name of a hub repository")
    if address.kind == "s3":
        bucket, _, prefix = address.location.removeprefix("s3://").partition("/")
        if not BUCKET.fullmatch(bucket) or not _plain(PREFIX, prefix.rstrip("/")):
            raise _refused(field, "not the address of a folder in a bucket")
        if bucket not in buckets:
            allowed = ", ".join(sorted(buckets)) or "none is allowed here"
            raise _refused(field, "not a bucket that may be submitted from", remedy=f"Buckets: {allowed}.")
    if address.kind == "folder" and not folders:
        raise _refused(field, "a folder of the cluster's own disks, which organizers alone may name")
    if address.kind == "folder" and not address.location.startswith("/"):
        raise _refused(
            field, "a relative folder", remedy="Name it from /: whoever evaluates starts elsewhere."
        )
    return address


def _plain(pattern: re.Pattern[str], text: str) -> bool:
    return pattern.fullmatch(text) is not None and not any(set(part) <= {"."} for part in text.split("/"))


def _refused(field: str, summary: str, remedy: str = "") -> SubmissionError:
    expected = "owner/name@<40-digit commit> or s3://bucket/prefix"
    return SubmissionError(summary, where=field, expected=expected, remedy=remedy)
