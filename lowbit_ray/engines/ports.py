"""Ports for engines: 20000 to 29999, as those below are Ray's, tried out by binding."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable

import psutil

from lowbit_ray.errors import PodError

__all__ = ["free_port", "listens"]

FIRST, LAST, TRIES = 20000, 29999, 50


def free_port() -> int:
    """A port that can be bound on every address now; PodError if none is found."""
    for _ in range(TRIES):
        port = random.randint(FIRST, LAST)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise PodError("no free port", where="this host", found=f"{TRIES} tries", expected=f"{FIRST} to {LAST}")


def listens(port: int, processes: Iterable[psutil.Process]) -> bool:
    """Whether one of the processes listens on the port: another's server there must not be measured."""
    for process in processes:
        try:
            connections = process.net_connections("tcp")
        except psutil.Error:
            continue
        if any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in connections):
            return True
    return False
