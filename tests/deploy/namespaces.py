"""Network namespaces of a test's own: a hub with a bridge, and hosts on it, each cut off from others by its own rules.

Whatever is started inside `network` is in the hub; nothing here touches the network of the machine.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)
HUB = "10.231.0.1"

_NEEDS = "namespaces need root, and iptables and iproute2, which `make system-deps` installs"
_POSSIBLE = os.geteuid() == 0 and all(shutil.which(tool) for tool in ("ip", "iptables"))

namespaces_needed = pytest.mark.skipif(not _POSSIBLE and "CI" not in os.environ, reason=_NEEDS)


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"{argv}: {done.stderr} ({_NEEDS})"
    return done.stdout


@dataclass(frozen=True)
class Host:
    """A namespace with an address on the bridge."""

    namespace: str
    address: str

    @property
    def within(self) -> Sequence[str]:
        """What runs a command there."""
        return ("ip", "netns", "exec", self.namespace)

    @contextmanager
    def split_from(self, port: int, how: str) -> Generator[Callable[[], int]]:
        """Nothing passes between this host and that port of the hub: `drop` swallows, `reset` refuses.

        Yields what counts the packets that were stopped.
        """
        answer = ("DROP",) if how == "drop" else ("REJECT", "--reject-with", "tcp-reset")
        rules = [
            ("OUTPUT", "-p", "tcp", "-d", HUB, "--dport", str(port), "-j", *answer),
            ("INPUT", "-p", "tcp", "-s", HUB, "--sport", str(port), "-j", "DROP"),
        ]
        for rule in rules:
            _run(*self.within, "iptables", "-w", "-A", *rule)
        try:
            yield self._stopped
        finally:
            for rule in rules:
                _run(*self.within, "iptables", "-w", "-D", *rule)

    def _stopped(self) -> int:
        listed = _run(*self.within, "iptables", "-w", "-nvxL").splitlines()
        return sum(int(line.split()[0]) for line in listed if " DROP " in line or " REJECT " in line)


@contextmanager
def network(*names: str) -> Generator[dict[str, Host]]:
    """A hub, in which this thread is for as long as the block lasts, and a host for each name."""
    assert _POSSIBLE, _NEEDS
    hub = f"aetheris-{os.getpid()}"
    hosts = {name: Host(f"{hub}-{at}", f"10.231.0.{at}") for at, name in enumerate(names, start=2)}
    made: list[str] = []
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        _run("ip", "netns", "add", hub)
        made.append(hub)
        _run("ip", "-n", hub, "link", "set", "lo", "up")
        _run("ip", "-n", hub, "link", "add", "hub", "type", "bridge")
        _run("ip", "-n", hub, "addr", "add", f"{HUB}/24", "dev", "hub")
        _run("ip", "-n", hub, "link", "set", "hub", "up")
        for at, host in enumerate(hosts.values()):
            _run("ip", "netns", "add", host.namespace)
            made.append(host.namespace)
            _run("ip", "-n", host.namespace, "link", "set", "lo", "up")
            link = ("type", "veth", "peer", "name", f"host{at}", "netns", hub)
            _run("ip", "-n", host.namespace, "link", "add", "up0", *link)
            _run("ip", "-n", hub, "link", "set", f"host{at}", "master", "hub", "up")
            _run("ip", "-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", "up0")
            _run("ip", "-n", host.namespace, "link", "set", "up0", "up")
        _enter(os.open(Path("/run/netns") / hub, os.O_RDONLY))
        yield hosts
    finally:
        _enter(own)
        for namespace in reversed(made):
            _run("ip", "netns", "del", namespace)


def _enter(descriptor: int) -> None:
    try:
        if _LIBC.setns(descriptor, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(descriptor)
