"""What is seen of an engine's processes from outside, on real processes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from watching import wait_for

from lowbit_ray.engines import footprint
from lowbit_ray.engines.footprint import Footprint, look

Start = Callable[[str], list[psutil.Process]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Runs a program until it says that it is ready."""
    running: list[subprocess.Popen[str]] = []

    def begin(code: str) -> list[psutil.Process]:
        program = f"import os, time\n{code}\nprint('ready', flush=True)\ntime.sleep(600)"
        child = subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=tmp_path
        )
        running.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        process = psutil.Process(child.pid)
        return [process, *process.children(recursive=True)]

    yield begin
    for child in running:
        for process in psutil.Process(child.pid).children(recursive=True):
            process.kill()
        child.kill()
        child.communicate()


MIB = 2**20 / 2**30


def test_host_memory_is_what_is_private_or_shared_and_no_mapped_file(start: Start, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 2**25)
    plain = look(start("")).host_gib
    mapped = "import mmap\nm = mmap.mmap(os.open('file', 0), 0, prot=mmap.PROT_READ)\nsum(m[::4096])"
    assert look(start(mapped)).host_gib == pytest.approx(plain, abs=4 * MIB)
    assert look(start("held = b'x' * 2**25")).host_gib == pytest.approx(plain + 32 * MIB, abs=4 * MIB)


def test_managed_memory_is_a_mapped_file_that_counts(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(bytes(2**26))
    tree = start("import mmap\nm = mmap.mmap(os.open('file', 0), 0, prot=mmap.PROT_READ)\nsum(m[::4096])")
    before = look(tree).host_gib
    monkeypatch.setattr(footprint, "MANAGED", str(tmp_path / "file"))  # in the place of the driver's
    assert look(tree).host_gib - before == pytest.approx(2**-4, rel=0.01)


def test_memory_that_processes_share_is_counted_once(start: Start) -> None:
    tree = start(
        "import mmap\nm = mmap.mmap(-1, 2**25)\nm.write(b'x' * 2**25)\nif not os.fork():\n sum(m[::4096])"
    )
    assert len(tree) == 2
    wait_for(lambda: look(tree).host_gib > 0, 5)
    assert look(tree).host_gib < 2 * 32 * MIB


def test_what_is_read_is_counted(start: Start, tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"x" * 2**25)
    plain = look(start("")).read_gib
    read = look(start("open('weights', 'rb').read()")).read_gib
    assert plain is not None
    assert read is not None
    assert read - plain == pytest.approx(32 * MIB, abs=2 * MIB)


@pytest.mark.parametrize(
    "code",
    [
        "f = open('second.safetensors', 'rb')",
        "import mmap\nf = open('second.gguf', 'rb')\nm = mmap.mmap(f.fileno(), 0, prot=1)\nf.close()",
        "f = open('second.safetensors', 'rb')\nos.unlink('second.safetensors')",
    ],
    ids=["open", "mapped", "deleted"],
)
def test_files_with_weights_are_counted(start: Start, tmp_path: Path, code: str) -> None:
    for name in ("second.safetensors", "second.gguf"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(2**24)
    assert look(start(code)).weight_files == 1


def test_small_files_and_other_names_are_no_weights(start: Start, tmp_path: Path) -> None:
    (tmp_path / "small.bin").write_bytes(b"x")
    (tmp_path / "large.txt").write_bytes(b"x" * 2**24)
    assert look(start("f, g = open('small.bin'), open('large.txt')")).weight_files == 0


def test_connections_to_other_hosts_are_counted_and_those_at_home_are_not(start: Start) -> None:
    home = "import socket\na = socket.create_server(('127.0.0.1', 0))\nb = socket.create_connection(a.getsockname())"
    assert look(start(home)).peers == 0
    # 192.0.2.1 is reserved for documentation: nobody answers, so the connection is being made for minutes
    away = "import socket\ns = socket.socket()\ns.setblocking(False)\ns.connect_ex(('192.0.2.1', 9))"
    tree = start(away)
    status = tree[0].net_connections("tcp")
    if not status:
        pytest.skip("this machine has no way out, so that a connection fails at once")
    assert look(tree).peers == 1


def test_a_process_that_has_ended_is_left_out(start: Start) -> None:
    tree = start("if not os.fork():\n time.sleep(0.2); os._exit(0)")
    time.sleep(0.5)
    seen = look(tree)
    assert isinstance(seen, Footprint)
    assert seen.read_gib is not None


V4_IN_V6 = """
import socket
server = socket.socket(socket.AF_INET6)
server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
server.bind(('::', 0))
server.listen()
near = socket.socket(socket.AF_INET6)
near.connect((f'::ffff:{address}', server.getsockname()[1]))
far, _ = server.accept()
"""


@pytest.mark.parametrize("address", ["127.0.0.1", "the host's own"])
def test_a_connection_within_the_host_is_no_peer_however_its_sockets_write_it(
    address: str, start: Start
) -> None:
    # torch's store connects vLLM's processes so
    own = [item.address for item in psutil.net_if_addrs().get("eth0", ()) if item.family.name == "AF_INET"]
    if address != "127.0.0.1":
        if not own:
            pytest.skip("this host has no address beyond loopback")
        address = own[0]
    assert look(start(f"address = {address!r}{V4_IN_V6}")).peers == 0
