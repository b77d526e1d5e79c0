"""The hub at an exact commit, over a real HTTP server that can be told to misbehave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from recipes import RECIPES

from lowbit_ray.checkpoint.fetch import seal
from lowbit_ray.checkpoint.hub import HubOrigin
from lowbit_ray.checkpoint.sealed import verify_sealed
from lowbit_ray.errors import CheckpointError, FetchError

FAKE = Path(__file__).parents[1] / "fakes" / "hub.py"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass(frozen=True)
class Hub:
    root: Path
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def repository(self) -> Path:
        return self.root / "owner" / "model" / COMMIT

    def origin(self, token: str | None = None) -> HubOrigin:
        return HubOrigin("owner/model", COMMIT, endpoint=self.url, token=token, wait_initial_s=0.01)

    def misbehave(self, **faults: Any) -> None:
        (self.root / "faults.json").write_text(json.dumps(faults))

    def requests(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in (self.root / "requests.jsonl").read_text().splitlines()]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    root = tmp_path / "hub"
    RECIPES[0].write(root / "owner" / "model" / COMMIT)
    (root / "owner" / "model" / COMMIT / "tokenizer.json").write_bytes(os.urandom(300_000))
    process = subprocess.Popen([sys.executable, FAKE, root], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield Hub(root, int(process.stdout.readline()))
    finally:
        process.kill()
        process.communicate()


def test_a_commit_is_fetched_whole_and_hashed(hub: Hub, tmp_path: Path) -> None:
    sealed = seal(hub.origin(), tmp_path / "sealed", limit_gib=1)
    verify_sealed(sealed)
    assert sealed.origin == f"owner/model@{COMMIT}"
    for file in sealed.files:
        assert (sealed.path / file.path).read_bytes() == (hub.repository / file.path).read_bytes()


def test_a_sealed_commit_is_not_asked_for_again(hub: Hub, tmp_path: Path) -> None:
    first = seal(hub.origin(), tmp_path / "sealed", limit_gib=1)
    asked = len(hub.requests())
    assert seal(hub.origin(), tmp_path / "sealed", limit_gib=1) == first
    assert len(hub.requests()) == asked


def test_a_broken_connection_goes_on_where_it_broke(hub: Hub, tmp_path: Path) -> None:
    hub.misbehave(drop_after=100_000)
    verify_sealed(seal(hub.origin(), tmp_path / "sealed", limit_gib=1))
    ranges = [request["Range"] for request in hub.requests() if request["path"].endswith("tokenizer.json")]
    assert ranges == ["bytes=0-", "bytes=100000-"]


def test_a_second_attempt_fetches_only_what_the_first_one_did_not(hub: Hub, tmp_path: Path) -> None:
    hub.misbehave(hang_up_at=200_000)
    with pytest.raises(FetchError, match="did not deliver"):
        seal(hub.origin(), tmp_path / "sealed", limit_gib=1)
    hub.misbehave()
    before = len(hub.requests())
    verify_sealed(seal(hub.origin(), tmp_path / "sealed", limit_gib=1))
    again = {request["path"].rpartition("/")[2]: request["Range"] for request in hub.requests()[before:]}
    assert again["tokenizer.json"] == "bytes=200000-"


def test_a_server_without_ranges_is_read_from_the_start(hub: Hub, tmp_path: Path) -> None:
    hub.misbehave(drop_after=100_000, no_ranges=True)
    verify_sealed(seal(hub.origin(), tmp_path / "sealed", limit_gib=1))


def test_a_hub_that_is_busy_is_asked_again(hub: Hub, tmp_path: Path) -> None:
    hub.misbehave(statuses=[503, 429, 500])
    verify_sealed(seal(hub.origin(), tmp_path / "sealed", limit_gib=1))


def test_a_hub_that_stays_down_is_our_fault(hub: Hub, tmp_path: Path) -> None:
    hub.misbehave(statuses=[503] * 1000)
    with pytest.raises(FetchError, match="did not answer: HTTP 503") as caught:
        seal(hub.origin(), tmp_path / "sealed", limit_gib=1)
    assert caught.value.retryable
    assert not (tmp_path / "sealed").exists()


def test_a_hub_that_is_not_there_is_our_fault(tmp_path: Path) -> None:
    origin = HubOrigin("owner/model", COMMIT, endpoint="http://127.0.0.1:9", token="", wait_initial_s=0.01)
    with pytest.raises(FetchError, match="did not answer"):
        seal(origin, tmp_path / "sealed", limit_gib=1)


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json"])
def test_bytes_that_do_not_hash_to_the_listing_are_not_sealed(hub: Hub, tmp_path: Path, name: str) -> None:
    hub.misbehave(lie=name)
    with pytest.raises(FetchError, match=f"{name}: the bytes are not those that were listed"):
        seal(hub.origin(), tmp_path / "sealed", limit_gib=1)
    assert not (tmp_path / "sealed").exists()
    hub.misbehave()
    verify_sealed(seal(hub.origin(), tmp_path / "sealed", limit_gib=1))


def test_the_token_goes_to_the_hub_and_not_to_where_it_redirects(hub: Hub, tmp_path: Path) -> None:
    hub.misbehave(redirect=True)
    verify_sealed(seal(hub.origin(token="hf_secret"), tmp_path / "sealed", limit_gib=1))
    by_host = {request["Host"].split(":")[0]: request["Authorization"] for request in hub.requests()}
    assert by_host == {"127.0.0.1": "Bearer hf_secret", "localhost": None}


def test_an_unknown_repository_is_the_participants_fault(hub: Hub, tmp_path: Path) -> None:
    origin = HubOrigin("owner/absent", COMMIT, endpoint=hub.url, token="")
    with pytest.raises(CheckpointError, match="no such repository"):
        seal(origin, tmp_path / "sealed", limit_gib=1)


@pytest.mark.parametrize("status", [401, 403])
def test_a_gated_repository_is_the_participants_fault(hub: Hub, tmp_path: Path, status: int) -> None:
    hub.misbehave(statuses=[status])
    with pytest.raises(CheckpointError, match="private, gated or absent"):
        seal(hub.origin(), tmp_path / "sealed", limit_gib=1)


def test_a_tag_that_looks_like_a_commit_is_refused(hub: Hub, tmp_path: Path) -> None:
    hub.misbehave(sha="f" * 40)
    with pytest.raises(CheckpointError, match="knows this revision as another commit"):
        seal(hub.origin(), tmp_path / "sealed", limit_gib=1)


def test_the_limit_counts_before_any_byte_of_a_file(hub: Hub, tmp_path: Path) -> None:
    hub.misbehave(siblings=[{"rfilename": "big.safetensors", "size": 5 * 2**30, "lfs": {"sha256": "0" * 64}}])
    with pytest.raises(CheckpointError, match="too large"):
        seal(hub.origin(), tmp_path / "sealed", limit_gib=4)
    assert not [request for request in hub.requests() if "/resolve/" in request["path"]]


def test_pickles_are_refused_before_any_byte_of_a_file(hub: Hub, tmp_path: Path) -> None:
    hub.misbehave(siblings=[{"rfilename": "pytorch_model.bin", "size": 5}])
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin: files that could run code"):
        seal(hub.origin(), tmp_path / "sealed", limit_gib=4)
    assert not [request for request in hub.requests() if "/resolve/" in request["path"]]


@pytest.mark.parametrize(
    "siblings",
    [
        [{"rfilename": "../../etc/passwd", "size": 1}],
        [{"rfilename": "/etc/passwd", "size": 1}],
        [{"rfilename": "x", "size": -1}],
        [{"size": 1}],
        ["x"],
        [None],
    ],
)
def test_a_listing_that_leads_elsewhere_or_makes_no_sense_is_refused(
    hub: Hub, tmp_path: Path, siblings: list[Any]
) -> None:
    hub.misbehave(siblings=siblings)
    with pytest.raises((CheckpointError, FetchError)):
        seal(hub.origin(), tmp_path / "sealed", limit_gib=1)


ENDPOINT = """
from lowbit_ray.checkpoint.fetch import seal
from pathlib import Path
import sys
print(seal(sys.argv[1], Path(sys.argv[2]), limit_gib=1).digest)
"""


def test_hf_endpoint_and_hf_token_are_honoured(hub: Hub, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.url,
        "HF_TOKEN": "hf_env",
        "HF_HOME": str(tmp_path / "home"),
    }
    done = subprocess.run(
        [sys.executable, "-c", ENDPOINT, f"owner/model@{COMMIT}", tmp_path / "sealed"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == seal(hub.origin(), tmp_path / "other", limit_gib=1).digest
    assert hub.requests()[0]["Authorization"] == "Bearer hf_env"
