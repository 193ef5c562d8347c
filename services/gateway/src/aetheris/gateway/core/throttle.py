"""Failed logins: so many at once from an address, so many from all; the next ones are told to wait. Pure."""

from ipaddress import IPv6Address, ip_address, ip_network

from aetheris.gateway.core.buckets import Bucket, Buckets, Limit

_OF_ONE, _OF_ALL = Limit(20, 0.2), Limit(200, 20.0)
_SHARED_BITS = 64
"""Of an IPv6 address: who has one has all that begin like it."""


class Throttle:
    """What fails beyond the limits is told when to come again; nobody who succeeds is asked about it."""

    def __init__(self, of_one: Limit = _OF_ONE, of_all: Limit = _OF_ALL, *, addresses: int = 10_000) -> None:
        self._of_one = of_one
        self._of_all = of_all
        self._all = Bucket()
        self._networks = Buckets[str](addresses)

    def failed(self, address: str, now_s: float) -> int | None:
        """A login failed: None while that is within the limits, else the seconds after which to try again."""
        bucket = self._networks.of(_network(address))
        if not bucket.add(self._of_one, now_s):
            return bucket.wait_s(self._of_one)
        if not self._all.add(self._of_all, now_s):
            return self._all.wait_s(self._of_all)
        return None


def _network(address: str) -> str:
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ip_network((found, _SHARED_BITS), strict=False))
