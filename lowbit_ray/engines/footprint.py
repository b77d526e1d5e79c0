"""What an engine's processes hold on the host, have read and talk to, as the kernel tells from outside.

Looked at before and after a measurement, never during one: reading a large process's memory map holds it up. What a
process did in between and undid again is not seen; the sandbox is what forbids, this only finds. Counts, no names: a
file's name or an address could carry what the engine was asked.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from pathlib import Path
from typing import Annotated

import psutil
from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Footprint", "look"]

GIB = 2**30
WEIGHTS = re.compile(r"\.(?:safetensors|gguf|bin|pt|pth|npz|onnx|engine|plan|ckpt|h5)(?: \(deleted\))?$")
"""Names of files that hold weights."""
MANAGED = "/dev/nvidia-uvm"
LARGE = 2**24
"""Smallest file of such a name that counts: many small files are called .bin."""

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Footprint(BaseModel):
    """One look at a tree of processes; None where the kernel does not let us see."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    processes: Annotated[int, Field(ge=0)]
    host_gib: Amount
    """Private, shared and managed host memory of all of them, without mapped files; shared pages once."""
    read_gib: Amount | None
    """Bytes got by reading calls so far, of files and pipes (and of sockets that are read so)."""
    weight_files: Annotated[int, Field(ge=0)]
    """Files with weights that they have open or mapped."""
    peers: Annotated[int, Field(ge=0)]
    """TCP connections to other hosts, made or being made."""
    unroutable: Annotated[int, Field(ge=0)] | None
    """Packets to addresses that a network of its own has no way to; None in the host's network. Libraries ask such
    an address for the host's own name, so that a few mean nothing."""


def look(processes: list[psutil.Process]) -> Footprint:
    """What these processes hold, read and talk to now; those that end meanwhile are left out."""
    host, read, unseen = 0, 0, 0
    files: set[str] = set()
    peers = 0
    for process in processes:
        folder = Path(f"/proc/{process.pid}")
        with contextlib.suppress(OSError, psutil.Error):
            host += _host_bytes(folder)
            files |= _weight_files(folder)
            peers += _peers(process)
        try:
            read += _field(folder / "io", "rchar")
        except OSError:
            unseen += _is_alive(process)
    return Footprint(
        processes=len(processes),
        host_gib=host / GIB,
        read_gib=None if unseen else read / GIB,
        weight_files=len(files),
        peers=peers,
        unroutable=_unroutable(processes),
    )


def _field(path: Path, name: str) -> int:
    """The number beside `name:` in a file of /proc; 0 where it is not there."""
    match = re.search(rf"^{name}:\s*(\d+)", path.read_text(), re.MULTILINE)
    return int(match[1]) if match else 0


def _host_bytes(folder: Path) -> int:
    """Anonymous pages and shared memory, each page divided by those who share it, and CUDA's managed memory."""
    rollup = folder / "smaps_rollup"
    text = rollup.read_text()
    if "Pss_Anon:" in text:
        return 1024 * (_field(rollup, "Pss_Anon") + _field(rollup, "Pss_Shmem")) + _managed_bytes(folder)
    status = folder / "status"
    return 1024 * (_field(status, "RssAnon") + _field(status, "RssShmem")) + _managed_bytes(folder)


def _managed_bytes(folder: Path) -> int:
    """Pages of managed memory that lie on the host: to the kernel they are a file's, the driver's own.

    Pinned memory needs nothing of the kind: it is shared memory, or the process's own (measured on an H200).
    """
    if MANAGED not in (folder / "maps").read_text():
        return 0
    held, of_driver = 0, False
    for line in (folder / "smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            of_driver = words[-1] == MANAGED
        elif of_driver and words[0] == "Rss:":
            held += 1024 * int(words[1])
    return held


def _weight_files(folder: Path) -> set[str]:
    """Device and inode of each large file with a weights' name that is open or mapped."""
    found = set()
    for descriptor in (folder / "fd").iterdir():
        with contextlib.suppress(OSError):
            if WEIGHTS.search(str(descriptor.readlink())):
                stat = descriptor.stat()
                if stat.st_size >= LARGE:
                    found.add(f"{stat.st_dev}:{stat.st_ino}")
    sizes: dict[str, int] = {}
    for line in (folder / "maps").read_text().splitlines():
        words = line.split(maxsplit=5)
        if len(words) == 6 and WEIGHTS.search(words[5]):
            start, end = (int(word, 16) for word in words[0].split("-"))
            major, minor = (int(word, 16) for word in words[3].split(":"))
            key = f"{(major << 8) | minor}:{words[4]}"
            sizes[key] = sizes.get(key, 0) + end - start
    return found | {key for key, size in sizes.items() if size >= LARGE}


def _peers(process: psutil.Process) -> int:
    """Its TCP connections whose other end is no address of this host."""
    own = {address.address for addresses in psutil.net_if_addrs().values() for address in addresses}
    ends = [
        (_plain(item.laddr.ip), _plain(item.raddr.ip))
        for item in process.net_connections("tcp")
        if item.raddr
    ]
    return sum(not (far.is_loopback or far == near or str(far) in own) for near, far in ends)


def _plain(ip: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address without its scope; one of IPv4 as such, however its socket writes it (`::ffff:192.0.2.2`)."""
    address = ipaddress.ip_address(ip.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _unroutable(processes: list[psutil.Process]) -> int | None:
    """`OutNoRoutes` of the network that the processes have of their own."""
    with contextlib.suppress(OSError):
        ours = Path("/proc/self/ns/net").readlink()
        for process in reversed(processes):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{process.pid}/ns/net").readlink() != ours:
                    return _counter(Path(f"/proc/{process.pid}/net/snmp").read_text(), "Ip:", "OutNoRoutes")
    return None


def _counter(text: str, protocol: str, name: str) -> int:
    names, values = (line.split() for line in text.splitlines() if line.startswith(protocol))
    return int(values[names.index(name)])


def _is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
