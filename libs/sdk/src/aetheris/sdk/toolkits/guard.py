"""Where a request of a tool may go: public addresses, named hosts, bodies of a bounded size (docs/toolkits.md).

A name is resolved once, every address of it is judged, and the connection goes to an address that was judged: a name
that resolves otherwise a moment later changes nothing. Host header and TLS keep the name.
"""

import asyncio
import ipaddress
import socket
from dataclasses import dataclass

import httpx

from aetheris.sdk.outcomes import Failed

LARGEST = 10 * 1024 * 1024  # bytes

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})  # RFC 5214: the upper half of the interface identifier
_SPECIAL = tuple(
    ipaddress.ip_network(block)
    for block in (
        "192.0.0.0/24",  # IETF protocol assignments
        "192.88.99.0/24",  # 6to4 relays, deprecated
        "::/96",  # IPv4-compatible, deprecated
        "::ffff:0:0:0/96",  # IPv4-translated
        "64:ff9b:1::/48",  # NAT64 of one's own network
        "100::/64",  # discard
        "2001::/23",  # IETF protocol assignments
        "3fff::/20",  # documentation
        "5f00::/16",  # segment routing
        "fec0::/10",  # site-local, deprecated
    )
)
"""IANA's special purposes that not every version of Python knows as such."""
_CONNECTING = (httpx.ConnectError, httpx.ConnectTimeout)


class BodyTooLarge(Exception):
    """An answer that is larger than the guard lets be read: what it says is not known."""


@dataclass(frozen=True)
class Guard:
    """What a tool allows itself.

    Args:
        hosts: names that may be asked, `*.example.org` for all below one; None: any.
        private: whether addresses that are not public may be asked (loopback, private, link-local, reserved).
        largest: bytes of an answer, as decoded.
        redirects: how many a read follows, within the origin that was asked; what changes something follows none.
    """

    hosts: tuple[str, ...] | None = None
    private: bool = False
    largest: int = LARGEST
    redirects: int = 3

    def check(self, url: httpx.URL) -> None:
        """Raises Failed: the URL is one that is never asked, whatever its name resolves to."""
        if url.scheme not in ("http", "https") or not url.host:
            raise Failed("refused: only http and https URLs with a host are asked")
        if url.userinfo:
            raise Failed("refused: a URL that carries a password")
        if self.hosts is not None and not any(_is(url.host, allowed) for allowed in self.hosts):
            raise Failed("refused: the host is not one that this tool may ask")

    def judge(self, address: str) -> None:
        """Raises Failed: the address is not public, and only such may be asked."""
        if not self.private and not is_public(address):
            raise Failed("refused: the host's address is not public")


def is_public(address: str) -> bool:
    """Whether an address is one of the public Internet; those that embed another are judged by that one too."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = [found.ipv4_mapped, found.sixtofour, *(found.teredo or ())]
        if found in _NAT64 or (int(found) >> 32) & 0xFFFFFFFF in _ISATAP:
            inner.append(ipaddress.IPv4Address(int(found) & 0xFFFFFFFF))
        if any(one is not None and not is_public(str(one)) for one in inner):
            return False
    if any(found in block for block in _SPECIAL if block.version == found.version):
        return False
    return found.is_global and not found.is_multicast and not found.is_reserved


class GuardedTransport(httpx.AsyncBaseTransport):
    """Resolves, judges, and connects to what was judged; past any proxy that the environment names."""

    def __init__(self, guard: Guard, inner: httpx.AsyncBaseTransport) -> None:
        self._guard = guard
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """One request.

        Raises:
            Failed: it may not be sent. httpx.ConnectError: the name has no address, or none of them answers.
        """
        self._guard.check(request.url)
        addresses = await _addresses(request.url)
        for address in addresses:
            self._guard.judge(address)
        for address in addresses[:-1]:
            try:
                return await self._inner.handle_async_request(_to(request, address))
            except _CONNECTING:
                continue
        return await self._inner.handle_async_request(_to(request, addresses[-1]))

    async def aclose(self) -> None:
        """Close the connection."""
        await self._inner.aclose()


def _is(host: str, allowed: str) -> bool:
    name, wanted = host.lower().rstrip("."), allowed.lower()
    return name.endswith(wanted[1:]) if wanted.startswith("*.") else name == wanted


async def _addresses(url: httpx.URL) -> list[str]:
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(url.host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise httpx.ConnectError("the name has no address") from None
    return list(dict.fromkeys(str(one[4][0]) for one in found))


def _to(request: httpx.Request, address: str) -> httpx.Request:
    return httpx.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": request.url.host},
    )
