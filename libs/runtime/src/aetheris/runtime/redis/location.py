"""Where Redis is, as AETHERIS_REDIS says it: one server, a master that Sentinels name, or a cluster."""

import ssl
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from aetheris.runtime.base.refusal import StartRefused

_PORT, _SENTINEL_PORT = 6379, 26379
_TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_SENTINEL_LOGIN = ("sentinel_username", "sentinel_password")
_SCHEMES = "redis://, redis+sentinel://, redis+cluster://, each with rediss for TLS, or unix://"


class BadRedisUrl(StartRefused, ValueError):
    """A URL that names no Redis; the message names what is wrong, never the password."""

    code = "redis_url_unusable"


class RedisKind(StrEnum):
    """Who says which server is to be asked."""

    SERVER = "server"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


class Address(NamedTuple):
    """A server of Redis, or a Sentinel."""

    host: str
    port: int


@dataclass(frozen=True)
class RedisLogin:
    """Whom a server knows us as; without a password it asks for none."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class RedisTls:
    """PEM files: whom we trust instead of the system's authorities, and who we are."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    def context(self) -> ssl.SSLContext:
        """TLS that checks the server's certificate and name.

        Raises:
            BadRedisUrl: a file can't be used.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key)
        except OSError as error:
            raise BadRedisUrl(f"a certificate or key of the Redis URL can't be used: {type(error).__name__}") from None
        return context


@dataclass(frozen=True)
class RedisLocation:
    """What the URL says."""

    kind: RedisKind
    addresses: tuple[Address, ...]
    """The server; the Sentinels; some nodes of the cluster."""
    path: str | None = None
    """Of the one server's socket, in place of an address."""
    login: RedisLogin = RedisLogin()
    database: int = 0
    tls: RedisTls | None = None
    """None: in the clear."""
    master: str = ""
    """What the Sentinels call it."""
    sentinel_login: RedisLogin = RedisLogin()


def redis_at(url: str) -> RedisLocation:
    """What a URL says: `redis://[user:password@]host[:port][/db]`, `unix://[user:password@]path[?db=n]`,
    `redis+sentinel://[user:password@]host[:port],…/master[/db][?sentinel_username=…&sentinel_password=…]`,
    `redis+cluster://[user:password@]host[:port],…`; with `rediss` in place of `redis` over TLS, and behind `?`
    ssl_ca_certs, ssl_certfile, ssl_keyfile.

    Raises:
        BadRedisUrl: naming what is wrong.
    """
    # Not urlsplit: it refuses several hosts where one is an IPv6 address.
    scheme, _, rest = url.partition("://")
    rest, _, query = rest.partition("?")
    authority, _, path = rest.partition("/")
    base, _, kind_name = scheme.partition("+")
    if base not in ("redis", "rediss") and scheme != "unix":
        raise BadRedisUrl(f"a Redis URL begins with {_SCHEMES}")
    try:
        kind = RedisKind(kind_name) if kind_name else RedisKind.SERVER
    except ValueError:
        raise BadRedisUrl(f"a Redis URL begins with {_SCHEMES}") from None
    options = _options(scheme, query, kind)
    tls = RedisTls(*(options.get(name) for name in _TLS_FILES)) if base == "rediss" else None
    # Of a user or a password nothing is split at commas: they end at the last @.
    credentials, _, hosts = authority.rpartition("@")
    login = _login(credentials)
    if scheme == "unix":
        return RedisLocation(kind, (), unquote(f"/{path}"), login, _database(options.get("db", "")))
    addresses = _addresses(hosts, kind)
    names = [unquote(name) for name in path.split("/") if name]
    if kind is RedisKind.SERVER:
        return RedisLocation(kind, addresses, None, login, _database("/".join(names)), tls)
    if kind is RedisKind.CLUSTER:
        if names not in ([], ["0"]):
            raise BadRedisUrl("a cluster has no databases: nothing stands behind its hosts")
        return RedisLocation(kind, addresses, None, login, 0, tls)
    if not names:
        raise BadRedisUrl("behind the Sentinels stands what they call the master: redis+sentinel://host,host/mymaster")
    sentinel = RedisLogin(options.get("sentinel_username"), options.get("sentinel_password"))
    return RedisLocation(kind, addresses, None, login, _database("/".join(names[1:])), tls, names[0], sentinel)


def _options(scheme: str, query: str, kind: RedisKind) -> dict[str, str]:
    options = dict(parse_qsl(query))
    known = {"unix": ("db",), "rediss": _TLS_FILES}.get(scheme.partition("+")[0], ())
    if kind is RedisKind.SENTINEL:
        known = (*known, *_SENTINEL_LOGIN)
    strange = sorted(options.keys() - set(known))
    if strange:
        raise BadRedisUrl(f"a {scheme}:// URL has no option {strange[0]}")
    return options


def _login(credentials: str) -> RedisLogin:
    username, _, password = credentials.partition(":")
    return RedisLogin(unquote(username) or None, unquote(password)) if password else RedisLogin()


def _addresses(hosts: str, kind: RedisKind) -> tuple[Address, ...]:
    default = _SENTINEL_PORT if kind is RedisKind.SENTINEL else _PORT
    named = [one.strip() for one in hosts.split(",")]
    if len(named) > 1 and kind is RedisKind.SERVER:
        raise BadRedisUrl("several servers are redis+sentinel:// or redis+cluster://")
    try:
        split = [urlsplit(f"//{one}") for one in named]
        return tuple(Address(one.hostname or "localhost", one.port or default) for one in split)
    except ValueError:
        raise BadRedisUrl("the port and the database of a Redis URL are numbers") from None


def _database(text: str) -> int:
    try:
        return int(text or "0")
    except ValueError:
        raise BadRedisUrl("the port and the database of a Redis URL are numbers") from None
