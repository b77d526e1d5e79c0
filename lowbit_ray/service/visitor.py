"""Which address asks: the connection's, or behind a proxy of ours the one that the proxy names."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from fastapi import Request

__all__ = ["visitor"]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def visitor(request: Request, proxies: Sequence[Network]) -> str:
    """The last address of `X-Forwarded-For` that is no proxy of ours; whoever is none is not believed.

    An address of IPv6 stands for its /64, which one visitor has as a whole.
    """
    address = request.client.host if request.client else "?"
    told = [part.strip() for part in ",".join(request.headers.getlist("x-forwarded-for")).split(",")]
    while told and _within(address, proxies):
        address = told.pop() or address
    return _whole(address)


def _within(address: str, proxies: Sequence[Network]) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(found in network for network in proxies)


def _whole(address: str) -> str:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.ip_network(f"{found}/64", strict=False))
    return str(found)
