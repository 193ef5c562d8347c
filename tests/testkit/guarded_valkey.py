"""A Valkey with the users that deploy/valkey_users.py makes, of one installation or several, and nobody else."""

import runpy
import secrets
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis

from aetheris.cli.embedded.valkey import Valkey, running_valkey
from tests.testkit.system import REPOSITORY

INSPECTOR = "inspector"
"""A user for tests, who may do anything."""
USERS = runpy.run_path(str(REPOSITORY / "deploy" / "valkey_users.py"))


class GuardedValkey(Valkey):
    """With the users of a file, and nobody else."""

    def argv(self) -> tuple[str, ...]:
        return (*super().argv(), "--aclfile", str(self.folder / "users.acl"))


@dataclass(frozen=True)
class Users:
    """A running server, and the password of each of its users."""

    socket: str
    passwords: dict[str, str]

    def url(self, user: str) -> str:
        return f"unix://{user}:{self.passwords[user]}@{self.socket}"

    def client(self, user: str) -> redis.Redis:
        return redis.Redis(unix_socket_path=self.socket, username=user, password=self.passwords[user])

    def denied(self) -> set[tuple[str, str]]:
        """(user, key or command or channel) that the server has refused: services go on without it, and hardly tell."""
        with self.client(INSPECTOR) as client:
            return {(str(one["username"]), str(one["object"])) for one in client.acl_log()}


@contextmanager
def guarded_valkey(folder: Path, prefixes: Iterable[str] = ("",)) -> Generator[Users]:
    """Up, with the users of each installation, and down again; the first is that without a prefix."""
    word = secrets.token_urlsafe()
    lines = f"user {INSPECTOR} on >{word} ~* &* +@all\n"
    passwords = {INSPECTOR: word}
    for prefix in prefixes:
        made = folder / f"of-{prefix}"
        USERS["write"](made, "nowhere:1", prefix)
        lines += (made / "users.acl").read_text()
        for path in made.glob("*.url"):
            user, password = path.read_text().removeprefix("rediss://").partition("@")[0].split(":")
            passwords[user] = password
    (folder / "users.acl").write_text(lines)
    with running_valkey(GuardedValkey(folder), folder / "valkey.log") as url:
        yield Users(url.removeprefix("unix://"), passwords)
