"""Failed logins: so many at once from an address, so many from all; the next ones are told to wait.

Pure: the time comes in. Own code, as libraries for it keep every address, for as long as they like.
"""

from collections import OrderedDict
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network
from math import ceil

_SHARED_BITS = 64
"""Of an IPv6 address: who has one has all that begin like it."""


@dataclass(frozen=True, slots=True)
class Limit:
    """So many at once, and then so many a second."""

    burst: int
    per_s: float


@dataclass(slots=True)
class _Bucket:
    level: float = 0.0
    at_s: float = 0.0

    def add(self, limit: Limit, now_s: float) -> bool:
        """Whether one more is within the limit."""
        self.level = max(0.0, self.level - (now_s - self.at_s) * limit.per_s)
        self.at_s = now_s
        if self.level + 1 > limit.burst:
            return False
        self.level += 1
        return True

    def wait_s(self, limit: Limit) -> int:
        """Whole seconds after which there is room for one more."""
        return max(1, ceil((self.level + 1 - limit.burst) / limit.per_s))


class Throttle:
    """What fails beyond the limits is told when to come again; nobody who succeeds is asked about it."""

    def __init__(
        self, of_one: Limit = Limit(20, 0.2), of_all: Limit = Limit(200, 20.0), *, addresses: int = 10_000
    ) -> None:
        self._of_one = of_one
        self._of_all = of_all
        self._addresses = addresses
        self._all = _Bucket()
        self._known: OrderedDict[str, _Bucket] = OrderedDict()

    def failed(self, address: str, now_s: float) -> int | None:
        """A login failed: None while that is within the limits, else the seconds after which to try again."""
        bucket = self._bucket(_network(address))
        if not bucket.add(self._of_one, now_s):
            return bucket.wait_s(self._of_one)
        if not self._all.add(self._of_all, now_s):
            return self._all.wait_s(self._of_all)
        return None

    def _bucket(self, network: str) -> _Bucket:
        """That of a network; the one that failed longest ago makes room."""
        bucket = self._known.pop(network, None) or _Bucket()
        self._known[network] = bucket
        if len(self._known) > self._addresses:
            self._known.popitem(last=False)
        return bucket


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
