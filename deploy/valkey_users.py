"""Write who may do what at Valkey, with fresh passwords: `python deploy/valkey_users.py FOLDER [HOST:PORT [PREFIX]]`.

In the folder: `users.acl`, which the server reads and which holds the passwords' hashes alone, and for each service
`<service>.url`, which that service is given. `docs/deployment.md` makes secrets of them. With a prefix they are the
users of the installation that has it, below it alone: put their lines behind those of the first installation.
"""

import hashlib
import os
import re
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

HOST = "valkey:6379"
PREFIX = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
"""What may stand before names; nothing that a pattern of Valkey takes for more than itself."""
CA = "/secrets/redis/ca.crt"
"""Where a service has the CA of the server's certificate."""

# Everybody: connect, look at who has a cluster's slots and how a server keeps what it is given, wake the others.
# `aetheris:` begins a name of ours.
EVERYBODY = (
    "resetchannels &aetheris:bell:* -@all +auth +ping +select +info +asking +cluster|slots"
    " +publish +subscribe +unsubscribe"
)
RULES: Mapping[str, str] = {
    "gateway": (
        "~aetheris:gateway:* %R~aetheris:quarantine:* %R~aetheris:lease:* +@read +@write +eval -@dangerous +info"
    ),
    "planner": "",
    "ledger": (
        "~aetheris:lease:* ~aetheris:epoch ~aetheris:epoch:* ~aetheris:effect:* ~aetheris:quarantine:*"
        " +get +set +del +eval +hgetall +unlink"
    ),
    "tool-executor": (
        "~aetheris:lease:* ~aetheris:epoch ~aetheris:epoch:* ~aetheris:effect:*"
        " +get +set +del +eval +hset +hgetall +pexpire +unlink"
    ),
}
"""The keys and commands of each service, beside those of everybody."""


def users(passwords: Mapping[str, str], prefix: str = "") -> str:
    """The server's file: who has no line in it is refused. The first installation's says that nobody is the default."""
    lines = [] if prefix else ["user default off nopass nocommands"]
    for service, rule in RULES.items():
        digest = hashlib.sha256(passwords[service].encode()).hexdigest()
        rules = f"{EVERYBODY} {rule}".replace("aetheris:", f"{prefix}:aetheris:") if prefix else f"{EVERYBODY} {rule}"
        lines.append(f"user {user(service, prefix)} on #{digest} resetkeys {rules}".rstrip())
    return "\n".join(lines) + "\n"


def user(service: str, prefix: str = "") -> str:
    """Who a service is at the server."""
    return f"{prefix}-{service}" if prefix else service


def url(service: str, password: str, host: str = HOST, prefix: str = "") -> str:
    """As a service is given it."""
    return f"rediss://{user(service, prefix)}:{password}@{host}/0?ssl_ca_certs={CA}"


def write(folder: Path, host: str = HOST, prefix: str = "") -> None:
    """The files, readable by their owner alone.

    Raises:
        ValueError: it is no prefix.
    """
    if prefix and not PREFIX.fullmatch(prefix):
        raise ValueError(f"{prefix} is no prefix (docs/configuration.md)")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    passwords = {service: secrets.token_urlsafe(32) for service in RULES}
    files = {"users.acl": users(passwords, prefix)} | {
        f"{service}.url": url(service, password, host, prefix) for service, password in passwords.items()
    }
    for name, content in files.items():
        path = folder / name
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(content)


if __name__ == "__main__":
    write(Path(sys.argv[1]), *sys.argv[2:4])
