import json
import os
from collections.abc import Iterator

import pytest
from fakes.s3 import hidden_bucket

from lowbit_ray.errors import ConfigError, FetchError
from lowbit_ray.measure.accuracy.data_files import read_rows
from lowbit_ray.tasks import TextSource

ROWS = [{"messages": f"question {n}", "scorer": "maths", "target": str(n)} for n in range(4)]


@pytest.fixture(scope="module")
def s3() -> Iterator[None]:
    """moto's server in a process of its own, with the rows in two files."""
    files = {"math/a.jsonl": ROWS[:2], "math/sub/b.jsonl": ROWS[2:], "mathematics/c.jsonl": ROWS}
    lines = {
        name: "".join(json.dumps(row) + os.linesep for row in rows).encode() for name, rows in files.items()
    }
    with hidden_bucket({**lines, "math/README.txt": b"not data"}):
        yield


@pytest.mark.usefixtures("s3")
def test_rows_come_from_the_files_under_a_prefix() -> None:
    rows = read_rows(TextSource(kind="folder", path="s3://hidden/math"))
    assert [row["messages"] for row in rows] == [row["messages"] for row in ROWS]


@pytest.mark.usefixtures("s3")
def test_a_wrong_revision_of_a_prefix_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"s3://hidden/math: revision"):
        read_rows(TextSource(kind="folder", path="s3://hidden/math", revision="0" * 64))


@pytest.mark.usefixtures("s3")
def test_a_missing_bucket_is_a_fetch_error() -> None:
    with pytest.raises(FetchError, match=r"s3://nowhere/x"):
        read_rows(TextSource(kind="folder", path="s3://nowhere/x"))
