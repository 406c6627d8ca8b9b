"""Which addresses may be delivered to, decided about the address that is connected to.

A name is looked up once, every address it leads to is judged, and the connection goes to the very address
that was judged: a name that changes its mind in between (DNS rebinding) gains nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import TYPE_CHECKING, Final, TypeAlias

import httpcore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve: TypeAlias = "Callable[[str, int], Awaitable[list[str]]]"

_METADATA: Final = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "169.254.169.254",  # most clouds
        "169.254.170.2",  # containers of AWS
        "fd00:ec2::254",  # AWS over IPv6
        "100.100.100.200",  # Alibaba
        "168.63.129.16",  # Azure
        "192.0.0.192",  # Oracle
    )
)
_TRANSLATED: Final = ipaddress.ip_network("64:ff9b::/96")
_SHARED: Final = ipaddress.ip_network("100.64.0.0/10")


class AddressRefused(httpcore.ConnectError):
    """The host leads to an address that nothing may be delivered to."""


def judge(address: Address, *, allow_private: bool) -> str | None:
    """Say why nothing may be delivered to an address; None when it may.

    >>> judge(ipaddress.ip_address("169.254.169.254"), allow_private=True)
    'the address of a metadata service'
    >>> judge(ipaddress.ip_address("10.0.0.1"), allow_private=False)
    'a private address, and allow_private is not set'
    """
    real = _unwrapped(address)
    if real in _METADATA:
        return "the address of a metadata service"
    if real.is_link_local:
        return "a link-local address"
    if real.is_multicast or real.is_unspecified:
        return "no address of a host"
    if real.is_reserved and not real.is_loopback:
        return "a reserved address"
    if real.is_global and real not in _SHARED:
        return None
    return None if allow_private else "a private address, and allow_private is not set"


def literal(host: str) -> Address | None:
    """Read a host that is an address; None when it is a name."""
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def never_allowed(host: str) -> str | None:
    """Say why a host can be refused without looking its name up; None when it cannot."""
    address = literal(host)
    reason = None if address is None else judge(address, allow_private=True)
    return None if reason is None else f"{host} is {reason}"


def spelled_out(host: str) -> bool:
    """Tell whether a URL says by itself that it means a private or loopback host."""
    return host == "localhost" or literal(host) is not None


async def resolve(host: str, port: int) -> list[str]:
    """Look a name up. Raises `OSError` when it leads nowhere."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Connects to judged addresses only. `resolve` looks names up."""

    def __init__(self, *, allow_private: bool, resolve: Resolve = resolve) -> None:
        self._allow_private = allow_private
        self._resolve = resolve
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the interface's name
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address that answers. Raises `httpcore.ConnectError`."""
        try:
            addresses = await self._resolve(host, port)
        except OSError as error:
            raise httpcore.ConnectError(f"{host} cannot be looked up: {error.strerror or error}") from error
        private = self._allow_private or spelled_out(host)
        for text in addresses:
            reason = judge(ipaddress.ip_address(text.partition("%")[0]), allow_private=private)
            if reason is not None:
                raise AddressRefused(f"{host} leads to {text}: {reason}")
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for text in addresses:
            try:
                return await self._inner.connect_tcp(text, port, timeout, local_address, socket_options)
            except httpcore.ConnectError as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


def _unwrapped(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address carries, if it does."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and address in _TRANSLATED:
        inner = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address if inner is None else inner
