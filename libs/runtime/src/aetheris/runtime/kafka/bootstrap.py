"""Where the brokers are, and how we log in there: `host:port[,host:port][?login=FILE]`.

The file holds `user:password`, for SASL/PLAIN; so no secret is where an address is, in an environment or in a listing.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from ssl import SSLContext
from typing import Any
from urllib.parse import quote, unquote

from aetheris.runtime.base.refusal import StartRefused

MECHANISM = "PLAIN"
_LOGIN = "?login="


class LoginUnusable(StartRefused):
    """The file of `?login=` can't be read, or holds no user:password."""

    code = "kafka_login_unusable"


@dataclass(frozen=True)
class Login:
    """Who we are to the brokers."""

    user: str
    password: str = field(repr=False)

    def token(self) -> bytes:
        """As SASL/PLAIN has it (RFC 4616)."""
        return f"\0{self.user}\0{self.password}".encode()


def servers_of(bootstrap: str) -> str:
    """host:port[,host:port]."""
    return bootstrap.partition("?")[0]


def with_login(servers: str, login: Path) -> str:
    """The address of brokers that ask who one is."""
    return f"{servers}{_LOGIN}{quote(str(login))}"


def login_of(bootstrap: str) -> Login | None:
    """Who we are to these brokers; None where nobody asks.

    Raises:
        LoginUnusable.
    """
    _, asked, path = bootstrap.partition(_LOGIN)
    if not asked:
        return None
    path = unquote(path)
    try:
        user, colon, password = Path(path).read_text().strip().partition(":")
    except (OSError, ValueError):
        raise LoginUnusable(f"Kafka's login, {path}, can't be read") from None
    if not colon or not user or not password:
        raise LoginUnusable(f"Kafka's login, {path}, holds no user:password")
    return Login(user, password)


def client_options(bootstrap: str, tls: SSLContext | None = None) -> Mapping[str, Any]:
    """What aiokafka's clients take to connect.

    Raises:
        LoginUnusable.
    """
    login = login_of(bootstrap)
    found: dict[str, Any] = {"bootstrap_servers": servers_of(bootstrap)}
    if tls is not None:
        found |= {"security_protocol": "SSL", "ssl_context": tls}
    if login is not None:
        found |= {
            "security_protocol": "SASL_PLAINTEXT" if tls is None else "SASL_SSL",
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": login.user,
            "sasl_plain_password": login.password,
        }
    return found


class _NotInTheClear(logging.Filter):
    """aiokafka warns at every connection that a password goes out in the clear: whether it may is the operator's."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "in the clear" not in record.msg


logging.getLogger("aiokafka.conn").addFilter(_NotInTheClear())
