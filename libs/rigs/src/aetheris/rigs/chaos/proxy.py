"""The connections of a chaos run, through a forwarder of its own: made slow, or reset, while they are in use."""

import json
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO

from aetheris.rigs.chaos.forwarder import Address


@dataclass
class Proxy:
    """Tells the forwarder what to do; `addresses` says where each route is entered."""

    addresses: Mapping[str, Address]
    _orders: IO[bytes]
    _delays_s: dict[str, float] = field(default_factory=dict[str, float])
    _resetting: set[str] = field(default_factory=set[str])
    _late_s: dict[str, float] = field(default_factory=dict[str, float])

    def slow(self, route: str, delay_s: float) -> None:
        """Every answer is so late from now on."""
        self._delays_s[route] = delay_s
        self._report(route)

    def reset(self, route: str, *, on: bool) -> None:
        """Whether a connection is reset as its next answer comes."""
        if on:
            self._resetting.add(route)
        else:
            self._resetting.discard(route)
        self._report(route)

    def late(self, route: str, late_s: float) -> None:
        """Every request stays so long on the wire from now on, and arrives even if its sender has died."""
        self._late_s[route] = late_s
        self._report(route)

    def _report(self, route: str) -> None:
        order = {
            "route": route,
            "delay_s": self._delays_s.get(route, 0.0),
            "resetting": route in self._resetting,
            "late_s": self._late_s.get(route, 0.0),
        }
        self._orders.write(json.dumps(order).encode() + b"\n")
        self._orders.flush()


@contextmanager
def running_proxy(routes: Mapping[str, tuple[Address, Address]]) -> Generator[Proxy]:
    """Forward for as long as the block lasts: route → the address to listen on, and the server's."""
    argv = [sys.executable, "-m", "aetheris.rigs.chaos.forwarder", json.dumps(routes)]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if child.stdin is None or child.stdout is None:
        raise RuntimeError("the forwarder has no pipes")
    try:
        line = child.stdout.readline()
        if not line:
            raise RuntimeError(f"the forwarder ended with {child.wait()}")
        yield Proxy(json.loads(line), child.stdin)
    finally:
        child.kill()
        child.communicate()
