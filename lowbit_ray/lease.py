"""Who is evaluating a submission: one lease object, renewed while its holder lives.

A holder that dies stops renewing, and after `EXPIRES_S` anybody may take over. Clocks of hosts differ: whoever takes a
lease over that was not released watches it for a while first, since one that is still renewed has not expired. The
lease carries the GPU seconds that were used under it, so that a killed evaluation's cost is known to whoever comes
next.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from lowbit_ray.errors import InfraError, LedgerError, LowbitError
from lowbit_ray.ledger import Ledger
from lowbit_ray.rules import _Frozen

__all__ = ["EXPIRES_S", "Lease", "LeaseHeld", "Tenure", "hold", "read_lease", "this_host"]

EXPIRES_S = 60.0
RENEW_S = 10.0
WATCH_S = 2.5 * RENEW_S
"""How long an expired lease is watched before it is taken over."""
LOOK_S = 0.5


class Lease(_Frozen):
    """One holder's claim on a submission."""

    holder: str
    """Host, process and a random word."""
    attempt: int
    """Counts the holders from 0."""
    renewed_at: datetime
    released: bool = False
    pod_seconds: float = 0.0
    """Seconds that a pod was held under this lease."""
    gpus: int = 0
    """GPUs of that pod."""
    ours: bool = False
    """Whether the attempt ended by a fault of our own: what it used is not charged."""
    reason: str = ""
    """Why it ended, where it ended by a fault of our own."""
    pod: Literal["before", "held", "after"] = "before"
    """Whether it has yet to get its pod, holds it, or has given it back."""

    def held(self, at: datetime) -> bool:
        """As `live`, but a holder on this host whose process is gone need not be waited for."""
        return self.live(at) and not _same_host_and_dead(self)

    def live(self, at: datetime) -> bool:
        """Whether the holder has to be believed at work at the time `at`."""
        return not self.released and at - self.renewed_at < timedelta(seconds=EXPIRES_S)


class LeaseHeld(LowbitError):
    """Somebody else is evaluating the submission."""


def key(submission: str) -> str:
    """The lease's key in the ledger."""
    return f"submissions/{submission}/lease.json"


def read_lease(ledger: Ledger, submission: str) -> Lease | None:
    """The last lease of a submission, live or not."""
    entry = ledger.read(key(submission))
    return None if entry is None else Lease.model_validate_json(entry.data)


class Tenure:
    """A lease in hand; what the evaluation has used so far is stored with each renewal."""

    def __init__(self, ledger: Ledger, submission: str, lease: Lease) -> None:
        self._ledger = ledger
        self._submission = submission
        self._lock = threading.Lock()
        self.lease = lease
        self.lost = threading.Event()
        """Set when somebody else took the lease over: stop, and write nothing more."""
        self.fault: str | None = None
        """Why the attempt failed by a fault of our own; set before its end."""
        self.meter: Callable[[], tuple[float, int]] | None = None
        """Seconds that a pod has been held under this lease, and its GPUs."""

    def used(self) -> Lease:
        """The lease with what has been used by now."""
        if self.meter is not None:
            seconds, gpus = self.meter()
            self.lease = self.lease.model_copy(update={"pod_seconds": seconds, "gpus": gpus})
        return self.lease.model_copy(update={"ours": self.fault is not None, "reason": self.fault or ""})

    def tell_pod(self, pod: Literal["before", "held", "after"]) -> None:
        """Notes that the pod was given or given back: whoever dispatches wants to know it at once."""
        with self._lock:
            self.lease = self.lease.model_copy(update={"pod": pod})
        with contextlib.suppress(LedgerError):  # the next renewal says it
            self.renew()

    def renew(self, *, released: bool = False) -> None:
        """Writes the lease again, unless somebody else holds it by now."""
        with self._lock:
            entry = self._ledger.read(key(self._submission))
            if entry is None or Lease.model_validate_json(entry.data).holder != self.lease.holder:
                self.lost.set()
                return
            self.lease = self.used().model_copy(
                update={"renewed_at": datetime.now(UTC), "released": released}
            )
            if not self._ledger.swap(
                key(self._submission), self.lease.model_dump_json().encode(), entry.version
            ):
                self.lost.set()


@contextlib.contextmanager
def hold(ledger: Ledger, submission: str) -> Iterator[Tenure]:
    """Takes the lease, renews it from a thread, and releases it at the end.

    Raises LeaseHeld where another holder is alive. The lease of a dead one is taken over; what it had used is
    stored as its attempt first, free of charge.
    """
    tenure = Tenure(ledger, submission, _take(ledger, submission))
    done = threading.Event()

    def renew() -> None:
        while not done.wait(RENEW_S):
            try:
                tenure.renew()
            except LedgerError:
                continue  # the store may be away for a while; the next renewal tells
            except Exception:
                tenure.lost.set()  # nobody would renew it any more
                raise

    thread = threading.Thread(target=renew, name=f"lease-{submission}", daemon=True)
    thread.start()
    try:
        yield tenure
    except BaseException as error:
        # verdicts are no errors here, so what is left is ours, unless it was cancelled or lost
        if isinstance(error, InfraError) or not isinstance(error, LowbitError):
            tenure.fault = str(error) if isinstance(error, LowbitError) else repr(error)
        raise
    finally:
        done.set()
        thread.join()
        if not tenure.lost.is_set():
            with contextlib.suppress(
                LedgerError
            ):  # then the lease expires, and whoever is next records the attempt
                record_attempt(ledger, submission, tenure.used())
                tenure.renew(released=True)


def record_attempt(ledger: Ledger, submission: str, lease: Lease) -> None:
    """Stores what an attempt used, once."""
    ledger.create(
        f"submissions/{submission}/attempts/{lease.attempt:04d}.json", lease.model_dump_json().encode()
    )


def attempts(ledger: Ledger, submission: str) -> list[Lease]:
    """What each finished or dead attempt used, oldest first."""
    keys = ledger.keys(f"submissions/{submission}/attempts/")
    entries = (ledger.read(name) for name in keys)
    return [Lease.model_validate_json(entry.data) for entry in entries if entry is not None]


def _take(ledger: Ledger, submission: str) -> Lease:
    holder = f"{this_host()}:{os.getpid()}:{secrets.token_hex(4)}"
    entry = ledger.read(key(submission))
    if entry is None:
        lease = Lease(holder=holder, attempt=0, renewed_at=datetime.now(UTC))
        taken = ledger.create(key(submission), lease.model_dump_json().encode())
    else:
        last = Lease.model_validate_json(entry.data)
        if last.held(datetime.now(UTC)) or _moves(ledger, submission, last, entry.version):
            raise LeaseHeld("the submission is being evaluated", where=submission, found=last.holder)
        # a holder that died without releasing did so by no fault of the participant's
        record_attempt(ledger, submission, last if last.released else last.model_copy(update={"ours": True}))
        lease = Lease(holder=holder, attempt=last.attempt + 1, renewed_at=datetime.now(UTC))
        taken = ledger.swap(key(submission), lease.model_dump_json().encode(), entry.version)
    if not taken:
        raise LeaseHeld("another process took the submission at the same moment", where=submission)
    return lease


def _moves(ledger: Ledger, submission: str, last: Lease, version: str) -> bool:
    """Whether a lease that looks expired is renewed after all: its holder's clock, or ours, is wrong."""
    if last.released or _same_host_and_dead(last):
        return False
    deadline = time.monotonic() + WATCH_S
    while time.monotonic() < deadline:
        time.sleep(LOOK_S)
        entry = ledger.read(key(submission))
        if entry is None or entry.version != version:
            return True
    return False


def this_host() -> str:
    """This host as holders name it: hosts made from one image have one name, and so may containers of one host, which
    do not see each other's processes."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
        return f"{socket.gethostname()}/{boot}-{Path('/proc/self/ns/pid').stat().st_ino}"
    return socket.gethostname()


def _same_host_and_dead(lease: Lease) -> bool:
    """A holder on this host whose process is gone need not be waited for."""
    host, process, _ = lease.holder.rsplit(":", 2)
    if host != this_host():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
