"""Sealing a folder: copied whole, hashed, read-only, resumable, and never beside the rules."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from recipes import RECIPES

from lowbit_ray.checkpoint.fetch import origin_of, seal
from lowbit_ray.checkpoint.hub import HubOrigin
from lowbit_ray.checkpoint.origins import FolderOrigin, check_name
from lowbit_ray.checkpoint.s3 import S3Origin
from lowbit_ray.checkpoint.sealed import Sealed, digest_of, discard, load_sealed, manifest_path, verify_sealed
from lowbit_ray.errors import CheckpointError, ConfigError, FetchError

COMMIT = "b968826d9c46dd6066d109eabc6255188de91218"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    candidate = RECIPES[0].write(tmp_path / "candidate")
    (candidate / "sub").mkdir()
    (candidate / "sub" / "notes.md").write_text("deep")
    return candidate


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_sealed_folder_holds_the_same_bytes_and_their_hashes(tmp_path: Path, folder: Path) -> None:
    sealed = seal(folder, tmp_path / "sealed", limit_gib=1)
    assert {file.path for file in sealed.files} == {"config.json", "model.safetensors", "sub/notes.md"}
    for file in sealed.files:
        data = (folder / file.path).read_bytes()
        assert (sealed.path / file.path).read_bytes() == data
        assert (file.bytes, file.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert sealed.total_bytes == sum(file.bytes for file in sealed.files)
    assert sealed.stored_gib == (folder / "model.safetensors").stat().st_size / 2**30


def test_the_hashes_are_what_sha256sum_prints(tmp_path: Path, folder: Path) -> None:
    sealed = seal(folder, tmp_path / "sealed", limit_gib=1)
    paths = [file.path for file in sealed.files]
    printed = subprocess.run(
        ["sha256sum", *paths], cwd=folder, capture_output=True, text=True, check=True
    ).stdout
    assert printed == "".join(f"{file.sha256}  {file.path}\n" for file in sealed.files)


def test_a_sealed_folder_is_read_only(tmp_path: Path, folder: Path) -> None:
    sealed = seal(folder, tmp_path / "sealed", limit_gib=1)
    assert mode(sealed.path) == mode(sealed.path / "sub") == 0o555
    assert {mode(sealed.path / file.path) for file in sealed.files} == {0o444}


def test_sealing_again_keeps_what_is_there(tmp_path: Path, folder: Path) -> None:
    first = seal(folder, tmp_path / "sealed", limit_gib=1)
    before = (first.path / "model.safetensors").stat()
    again = seal(folder, tmp_path / "sealed", limit_gib=1)
    assert again == first
    assert (first.path / "model.safetensors").stat().st_ino == before.st_ino


def test_who_waits_is_told_how_much_has_arrived(tmp_path: Path, folder: Path) -> None:
    told: list[tuple[int, int]] = []
    sealed = seal(folder, tmp_path / "sealed", limit_gib=1, told=lambda *both: told.append(both))
    done = [done for done, _ in told]
    assert done == sorted(done)
    assert {total for _, total in told} == {sealed.total_bytes}
    assert done[-1] == sealed.total_bytes


def test_another_checkpoint_is_not_sealed_over_it(tmp_path: Path, folder: Path) -> None:
    seal(folder, tmp_path / "sealed", limit_gib=1)
    (folder / "config.json").write_text((folder / "config.json").read_text().replace("256", "257", 1))
    with pytest.raises(ConfigError, match="another checkpoint is sealed here"):
        seal(folder, tmp_path / "sealed", limit_gib=1)


def test_nothing_is_left_beside_the_folder_but_manifest_and_lock(tmp_path: Path, folder: Path) -> None:
    seal(folder, tmp_path / "out" / "sealed", limit_gib=1)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "sealed",
        "sealed.seal.json",
        "sealed.lock",
    }


def test_a_changed_file_is_found(tmp_path: Path, folder: Path) -> None:
    sealed = seal(folder, tmp_path / "sealed", limit_gib=1)
    verify_sealed(sealed)
    path = sealed.path / "sub" / "notes.md"
    path.chmod(0o644)
    path.write_text("DEEP")
    with pytest.raises(FetchError, match=r"sub/notes\.md: a sealed file has changed"):
        verify_sealed(sealed)


def test_a_folder_whose_files_are_gone_is_not_sealed(tmp_path: Path, folder: Path) -> None:
    sealed = seal(folder, tmp_path / "sealed", limit_gib=1)
    assert load_sealed(sealed.path) == sealed
    sealed.path.chmod(0o755)
    (sealed.path / "config.json").unlink()
    assert load_sealed(sealed.path) is None


def test_a_discarded_folder_is_gone(tmp_path: Path, folder: Path) -> None:
    sealed = seal(folder, tmp_path / "sealed", limit_gib=1)
    discard(sealed.path)
    assert not sealed.path.exists()
    assert not manifest_path(sealed.path).exists()
    assert folder.exists()


def test_the_digest_depends_on_names_sizes_and_hashes(tmp_path: Path, folder: Path) -> None:
    sealed = seal(folder, tmp_path / "sealed", limit_gib=1)
    assert digest_of(reversed(sealed.files)) == sealed.digest
    renamed = [file.model_copy(update={"path": f"{file.path}x"}) for file in sealed.files]
    assert digest_of(renamed) != sealed.digest
    assert Sealed.model_validate_json(sealed.model_dump_json()) == sealed


def test_the_size_limit_counts_before_any_byte(tmp_path: Path, folder: Path) -> None:
    with (folder / "big.safetensors").open("wb") as file:
        file.truncate(3 * 2**30)
    with pytest.raises(CheckpointError, match=r"too large, found 3\.00 GiB, expected at most 2 GiB"):
        seal(folder, tmp_path / "sealed", limit_gib=2)
    assert not (tmp_path / "sealed.partial").exists()


def test_pickles_and_programs_are_all_listed_when_refused(tmp_path: Path, folder: Path) -> None:
    for name in ("training_args.bin", "modeling.py", "sub/x.pt"):
        (folder / name).write_bytes(b"x")
    with pytest.raises(CheckpointError) as caught:
        seal(folder, tmp_path / "sealed", limit_gib=1)
    assert all(name in caught.value.where for name in ("training_args.bin", "modeling.py", "sub/x.pt"))


def test_an_anchors_pickles_are_skipped_and_an_engines_kept(tmp_path: Path, folder: Path) -> None:
    (folder / "x.bin").write_bytes(b"x")
    skipped = seal(folder, tmp_path / "anchor", limit_gib=1, unsafe="skip")
    kept = seal(folder, tmp_path / "engine", limit_gib=1, unsafe="keep")
    assert {file.path for file in kept.files} - {file.path for file in skipped.files} == {"x.bin"}


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, folder: Path) -> None:
    (folder / "passwd").symlink_to("/etc/passwd")
    with pytest.raises(CheckpointError, match="leads out of the checkpoint"):
        seal(folder, tmp_path / "sealed", limit_gib=1)


def test_a_link_inside_becomes_the_file(tmp_path: Path, folder: Path) -> None:
    (folder / "copy.json").symlink_to(folder / "config.json")
    sealed = seal(folder, tmp_path / "sealed", limit_gib=1)
    assert not (sealed.path / "copy.json").is_symlink()
    assert (sealed.path / "copy.json").read_bytes() == (folder / "config.json").read_bytes()


def test_an_interrupted_copy_goes_on_where_it_stopped(tmp_path: Path, folder: Path) -> None:
    data = os.urandom(9 * 2**20)
    (folder / "blob.dat").write_bytes(data)
    sealed = seal(folder, tmp_path / "first", limit_gib=1)
    partial = tmp_path / "second.partial"
    partial.mkdir()
    (partial / "blob.dat").write_bytes(data[: 5 * 2**20])
    listing = [
        {"path": file.path, "size": file.size, "version": file.version, "sha256": None, "git_blob": None}
        for file in FolderOrigin(folder).listing()
    ]
    (tmp_path / "second.partial.json").write_text(json.dumps({"origin": str(folder), "files": listing}))
    inode = (partial / "blob.dat").stat().st_ino
    resumed = seal(folder, tmp_path / "second", limit_gib=1)
    assert resumed.digest == sealed.digest
    assert (resumed.path / "blob.dat").stat().st_ino == inode


def test_what_an_attempt_on_other_files_left_is_thrown_away(tmp_path: Path, folder: Path) -> None:
    partial = tmp_path / "sealed.partial"
    partial.mkdir()
    (partial / "stale.safetensors").write_bytes(b"old")
    sealed = seal(folder, tmp_path / "sealed", limit_gib=1)
    assert not (sealed.path / "stale.safetensors").exists()


def sleeper(folder: Path, destination: Path) -> None:
    seal(folder, destination, limit_gib=1)


def test_a_killed_process_loses_nothing(tmp_path: Path, folder: Path) -> None:
    (folder / "blob.dat").write_bytes(os.urandom(64 * 2**20))
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=sleeper, args=(folder, tmp_path / "sealed"))
    process.start()
    deadline = time.monotonic() + 30
    while not (tmp_path / "sealed.partial" / "blob.dat").exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    sealed = seal(folder, tmp_path / "sealed", limit_gib=1)
    verify_sealed(sealed)
    assert (sealed.path / "blob.dat").read_bytes() == (folder / "blob.dat").read_bytes()


SEAL = """
import sys
from pathlib import Path
from lowbit_ray.checkpoint.fetch import seal
print(seal(sys.argv[1], Path(sys.argv[2]), limit_gib=1).digest)
"""


def test_two_processes_that_seal_the_same_agree(tmp_path: Path, folder: Path) -> None:
    (folder / "blob.dat").write_bytes(os.urandom(32 * 2**20))
    command = [sys.executable, "-c", SEAL, folder, tmp_path / "sealed"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    digests = {process.communicate(timeout=60)[0] for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert len(digests) == 1


def test_a_full_disk_is_our_fault_and_says_so(tmp_path: Path, folder: Path) -> None:
    with (folder / "huge.dat").open("wb") as file:
        file.truncate(shutil.disk_usage(tmp_path).free + 2**30)
    with pytest.raises(FetchError, match="not enough disk space") as caught:
        seal(folder, tmp_path / "sealed", limit_gib=2**20)
    assert caught.value.retryable


def test_a_folder_that_changes_while_it_is_copied_is_not_sealed(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = FolderOrigin(folder)
    listing = origin.listing()
    (folder / "config.json").write_text("{}")
    monkeypatch.setattr(FolderOrigin, "listing", lambda _: listing)
    with pytest.raises(FetchError, match=r"config\.json: the bytes are not those that were listed"):
        seal(origin, tmp_path / "sealed", limit_gib=1)
    assert not (tmp_path / "sealed").exists()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not a folder"):
        seal(tmp_path / "absent", tmp_path / "sealed", limit_gib=1)


def test_an_empty_folder_holds_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="holds no file"):
        seal(tmp_path / "empty", tmp_path / "sealed", limit_gib=1)


def test_addresses_name_their_origin(tmp_path: Path) -> None:
    assert origin_of(f"Qwen/Qwen3-8B@{COMMIT}") == HubOrigin("Qwen/Qwen3-8B", COMMIT)
    assert origin_of("s3://bucket/a/b/") == S3Origin("bucket", "a/b")
    assert origin_of(str(tmp_path)) == FolderOrigin(tmp_path)


@pytest.mark.parametrize(
    "text", ["Qwen/Qwen3-8B", "Qwen/Qwen3-8B@main", f"Qwen3-8B@{COMMIT}", f"a/b/c@{COMMIT}", "s3://", "x"]
)
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(CheckpointError):
        origin_of(text)


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/../../b", "", ".", "a\\b", "a\n", "a//b", "a/", "x" * 600]
)
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(CheckpointError):
        check_name(name)
