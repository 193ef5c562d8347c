"""A Redis or Valkey of the system's packages that speaks TLS alone, with the users that are deployed."""

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from aetheris.cli.embedded.ports import free_port
from aetheris.cli.embedded.processes import end, spawn
from tests.testkit.authority import Authority, Identity
from tests.testkit.external_server import until
from tests.testkit.guarded_valkey import INSPECTOR, USERS

SERVER = shutil.which("valkey-server") or shutil.which("redis-server")
"""That of the wheel is built without TLS."""
needed = pytest.mark.skipif(
    SERVER is None and "CI" not in os.environ, reason="a server that speaks TLS comes with `make system-deps`"
)
PATIENCE_S = 30.0


@dataclass(frozen=True)
class TlsRedis:
    """Where it listens, the password of each user, and who signs for whom."""

    port: int
    passwords: dict[str, str]
    authority: Authority
    client: Identity
    """Who services are, where the server asks."""
    log: Path

    def url(self, user: str, *, ca: Path | None = None, password: str | None = None, shown: bool = True) -> str:
        """As a service is given it; `shown`: with a certificate of its own."""
        files = f"ssl_ca_certs={ca or self.authority.ca}"
        if shown:
            files += f"&ssl_certfile={self.client.certificate}&ssl_keyfile={self.client.key}"
        return f"rediss://{user}:{password or self.passwords[user]}@127.0.0.1:{self.port}/0?{files}"

    def inspector(self) -> redis.Redis:
        """A client that is not ours, of who may do anything."""
        return redis.Redis.from_url(self.url(INSPECTOR))

    def denied(self) -> set[tuple[str, str]]:
        """(user, key or command or channel) that the server has refused."""
        with self.inspector() as client:
            return {(str(one["username"]), str(one["object"])) for one in client.acl_log()}


@contextmanager
def tls_redis(folder: Path) -> Generator[TlsRedis]:
    """Up, and down again: it knows its users and clients with a certificate, and speaks nothing in the clear."""
    assert SERVER is not None
    folder.mkdir(parents=True)
    authority = Authority(folder / "ca")
    own, client = authority.sign("valkey"), authority.sign("services")
    port, made = free_port(), folder / "users"
    USERS["write"](made, f"127.0.0.1:{port}")
    passwords = {INSPECTOR: "inspects"}
    for path in made.glob("*.url"):
        user, password = path.read_text().removeprefix("rediss://").partition("@")[0].split(":")
        passwords[user] = password
    users = f"user {INSPECTOR} on >{passwords[INSPECTOR]} ~* &* +@all\n" + (made / "users.acl").read_text()
    (folder / "users.acl").write_text(users)
    settings = {
        "port": "0",
        "tls-port": str(port),
        "bind": "127.0.0.1",
        "tls-cert-file": str(own.certificate),
        "tls-key-file": str(own.key),
        "tls-ca-cert-file": str(authority.ca),
        "tls-auth-clients": "yes",
        "aclfile": str(folder / "users.acl"),
        "dir": str(folder),
        "save": "",
        "appendonly": "yes",
        "maxmemory-policy": "noeviction",
    }
    argv = [SERVER, *(part for name, value in settings.items() for part in (f"--{name}", value))]
    log = folder / "server.log"
    found = TlsRedis(port, passwords, authority, client, log)
    child = spawn(argv, log=log)
    try:
        until(lambda: _answers(found) or child.poll() is not None, PATIENCE_S)
        assert child.poll() is None, log.read_text()
        yield found
    finally:
        end(child, PATIENCE_S)


def _answers(server: TlsRedis) -> bool:
    try:
        with server.inspector() as client:
            return bool(client.ping())
    except redis.RedisError:
        return False
