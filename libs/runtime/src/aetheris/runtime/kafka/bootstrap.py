"""Where the brokers are, and how we log in there.

    host:port[,host:port]                                   nobody asks, or TLS says it
    host:port…?login=FILE[&mechanism=SCRAM-SHA-512]         SASL/PLAIN, or SCRAM: the file holds user:password
    host:port…?tokens=NAME                                  OAUTHBEARER: NAME is an entry point that gives tokens

So no secret is where an address is, in an environment or in a listing.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from ssl import SSLContext
from typing import Any, cast
from urllib.parse import quote, unquote

from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import BaseSaslAuthenticator, OAuthAuthenticator, SaslPlainAuthenticator, ScramAuthenticator
from aiokafka.errors import KafkaConnectionError

from aetheris.runtime.base.refusal import StartRefused

PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512")
"""Those that a file with user:password is for."""
_TOKEN_S = 4.0
TOKENS = "aetheris.kafka_tokens"
"""Entry points: each makes an `aiokafka.abc.AbstractTokenProvider`, and is called without arguments."""


class LoginUnusable(StartRefused):
    """What is asked for behind the brokers' addresses is none, or holds nothing to log in with."""

    code = "kafka_login_unusable"


@dataclass(frozen=True)
class Login:
    """Who we are to the brokers: a user with his password, or whoever the tokens say."""

    user: str = ""
    password: str = field(default="", repr=False)
    mechanism: str = PLAIN
    tokens: AbstractTokenProvider | None = field(default=None, repr=False)

    def options(self) -> Mapping[str, Any]:
        """What aiokafka's clients are told."""
        if self.tokens is not None:
            return {"sasl_mechanism": OAUTHBEARER, "sasl_oauth_token_provider": self.tokens}
        return {
            "sasl_mechanism": self.mechanism,
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
        }

    def authenticator(self) -> BaseSaslAuthenticator:
        """aiokafka's, for one login over a connection of ours; call it where a loop runs."""
        if self.tokens is not None:
            return OAuthAuthenticator(sasl_oauth_token_provider=self.tokens)
        named: dict[str, Any] = {"loop": asyncio.get_running_loop()}
        named |= {"sasl_plain_username": self.user, "sasl_plain_password": self.password}
        if self.mechanism == PLAIN:
            return SaslPlainAuthenticator(**named)
        return ScramAuthenticator(sasl_mechanism=self.mechanism, **named)

    def token(self) -> bytes:
        """As SASL/PLAIN has it (RFC 4616)."""
        return f"\0{self.user}\0{self.password}".encode()


def servers_of(bootstrap: str) -> str:
    """host:port[,host:port]."""
    return bootstrap.partition("?")[0]


def with_login(servers: str, login: Path) -> str:
    """The address of brokers that ask who one is."""
    return f"{servers}?login={quote(str(login))}"


def login_of(bootstrap: str) -> Login | None:
    """Who we are to these brokers; None where nobody asks.

    Raises:
        LoginUnusable.
    """
    _, asked, query = bootstrap.partition("?")
    if not asked:
        return None
    said = {name: unquote(value) for name, _, value in (part.partition("=") for part in query.split("&"))}
    match said:
        case {"tokens": name, **more} if not more:
            return Login(mechanism=OAUTHBEARER, tokens=_provider(name))
        case {"login": path, **more} if more.keys() <= {"mechanism"}:
            return _in_file(path, more.get("mechanism", PLAIN))
        case _:
            rule = "?login=FILE, ?login=FILE&mechanism=… or ?tokens=NAME may stand behind the brokers' addresses"
            raise LoginUnusable(f"AETHERIS_KAFKA: {rule}, not {', '.join(sorted(said))}")


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
        found |= {"security_protocol": "SASL_PLAINTEXT" if tls is None else "SASL_SSL", **login.options()}
    return found


def _in_file(path: str, mechanism: str) -> Login:
    if mechanism not in MECHANISMS:
        raise LoginUnusable(
            f"AETHERIS_KAFKA: {mechanism} is no mechanism of a login; those are {', '.join(MECHANISMS)}"
        )
    try:
        user, colon, password = Path(path).read_text().strip().partition(":")
    except (OSError, ValueError):
        raise LoginUnusable(f"Kafka's login, {path}, can't be read") from None
    if not colon or not user or not password:
        raise LoginUnusable(f"Kafka's login, {path}, holds no user:password")
    return Login(user, password, mechanism)


@lru_cache
def _provider(name: str) -> AbstractTokenProvider:
    """One for a process, so that it may keep a token for as long as that is good."""
    found = list(entry_points(group=TOKENS, name=name))
    if not found:
        raise LoginUnusable(f"AETHERIS_KAFKA: no package that is installed has an entry point {name} in {TOKENS}")
    try:
        make: Callable[[], object] = found[0].load()
        provider = make()
    except Exception as error:  # noqa: BLE001  it is somebody else's code
        raise LoginUnusable(f"AETHERIS_KAFKA: {name}, of {TOKENS}, can't be made: {type(error).__name__}") from None
    if not isinstance(provider, AbstractTokenProvider):
        raise LoginUnusable(f"AETHERIS_KAFKA: {name}, of {TOKENS}, makes no aiokafka.abc.AbstractTokenProvider")
    return _Asked(provider)


class _Asked(AbstractTokenProvider):
    """Somebody else's provider, whose failures are those of a connection: it is asked again at the next one."""

    def __init__(self, provider: AbstractTokenProvider) -> None:
        self._provider = provider

    async def token(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]  it has no type there
        try:
            async with asyncio.timeout(_TOKEN_S):
                return cast("str", await self._provider.token())
        except Exception as error:  # noqa: BLE001  whatever it is
            raise KafkaConnectionError(f"no token: {type(error).__name__}") from None

    def extensions(self) -> dict[str, str]:
        return self._provider.extensions()


class _NotInTheClear(logging.Filter):
    """aiokafka warns at every connection that a password goes out in the clear: whether it may is the operator's."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "in the clear" not in record.msg


logging.getLogger("aiokafka.conn").addFilter(_NotInTheClear())
