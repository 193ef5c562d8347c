"""The forwarder of a chaos run: what passes, what is late, what is reset, on ports and on unix sockets."""

import socket
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from aetheris.rigs.chaos.proxy import Proxy, running_proxy
from tests.testkit.external_server import until

LARGE = bytes(range(256)) * 16_384


@contextmanager
def echoing(family: int, address: tuple[str, int] | str) -> Generator[tuple[socket.socket, list[bytes]]]:
    """A server that sends back what it is sent, and what that was."""
    observed: list[bytes] = []
    with socket.socket(family) as listener:
        listener.bind(address)
        listener.listen()

        def serve() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()

        def echo(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                while chunk := connection.recv(65536):
                    observed.append(chunk)
                    connection.sendall(chunk)

        threading.Thread(target=serve, daemon=True).start()
        yield listener, observed


@contextmanager
def echo_behind_a_proxy(family: int, folder: Path) -> Generator[tuple[Proxy, socket.socket, list[bytes]]]:
    near = str(folder / "near") if family == socket.AF_UNIX else 0
    with echoing(family, str(folder / "far") if near else ("127.0.0.1", 0)) as (listener, observed):
        far = listener.getsockname() if near else listener.getsockname()[1]
        with running_proxy({"echo": (near, far), "dead": (0, 1)}) as proxy:
            where = proxy.addresses["echo"]
            with closing(socket.socket(family)) as client:
                client.settimeout(10)
                client.connect(("127.0.0.1", where) if isinstance(where, int) else where)
                yield proxy, client, observed


def receive(client: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size and (chunk := client.recv(size - len(found))):
        found += chunk
    return bytes(found)


def slowed(proxy: Proxy, client: socket.socket, delay_s: float) -> None:
    """Orders take a moment: say it until it shows."""
    proxy.slow("echo", delay_s)

    def shows() -> bool:
        begun_s = time.monotonic()
        client.sendall(b"?")
        receive(client, 1)
        return (time.monotonic() - begun_s >= delay_s) == bool(delay_s)

    until(shows, 40)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_UNIX])
def test_everything_passes_late_and_in_its_order_when_slow(family: int, tmp_path: Path) -> None:
    with echo_behind_a_proxy(family, tmp_path) as (proxy, client, _):
        slowed(proxy, client, 0.05)
        sending = threading.Thread(target=client.sendall, args=(LARGE,))
        sending.start()
        proxy.slow("echo", 0.0)
        assert receive(client, len(LARGE)) == LARGE
        sending.join()


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_UNIX])
def test_what_is_on_the_wire_arrives_when_its_sender_has_gone(family: int, tmp_path: Path) -> None:
    with echo_behind_a_proxy(family, tmp_path) as (proxy, client, observed):
        kept_late(proxy, client, 0.2)
        observed.clear()
        client.sendall(b"first")
        client.sendall(b", second")
        client.close()
        assert observed == []
        until(lambda: b"".join(observed) == b"first, second", 40)


def kept_late(proxy: Proxy, client: socket.socket, late_s: float) -> None:
    """Orders take a moment: say it until it shows."""
    proxy.late("echo", late_s)

    def shows() -> bool:
        begun_s = time.monotonic()
        client.sendall(b"?")
        receive(client, 1)
        return time.monotonic() - begun_s >= late_s

    until(shows, 40)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_UNIX])
def test_a_reset_connection_has_sent_what_it_was_given(family: int, tmp_path: Path) -> None:
    with echo_behind_a_proxy(family, tmp_path) as (proxy, client, observed):
        proxy.reset("echo", on=True)
        observed.clear()

        def is_reset() -> bool:
            try:
                client.sendall(b"!")
                return not client.recv(1)
            except ConnectionError:
                return True

        until(is_reset, 40)
        assert observed
        assert set(observed) == {b"!"}


def test_where_no_server_is_a_connection_ends(tmp_path: Path) -> None:
    with echo_behind_a_proxy(socket.AF_INET, tmp_path) as (proxy, _, _):
        port = proxy.addresses["dead"]
        assert isinstance(port, int)
        with socket.create_connection(("127.0.0.1", port), 10) as client, suppress(ConnectionResetError):
            assert client.recv(1) == b""
