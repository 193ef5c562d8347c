"""The master that Sentinels name: asked by redis-py, for each connection anew."""

from typing import Any

from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from aetheris.runtime.redis.link import OneServer, Pushed
from aetheris.runtime.redis.location import Address, RedisLocation, RedisLogin, RedisTls
from aetheris.runtime.redis.resp import RedisConnection, connect


class NoMaster(ConnectionError):
    """No Sentinel that answers knows a master that is up."""


def asking(login: RedisLogin, tls: RedisTls | None, within_s: float) -> dict[str, Any]:
    """How redis-py connects; once, since whoever asks has a deadline of its own."""
    options: dict[str, Any] = {
        "username": login.username,
        "password": login.password,
        "socket_connect_timeout": within_s,
        "socket_timeout": within_s,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "driver_info": None,  # no CLIENT SETINFO: our users may not
    }
    if tls is not None:
        files = {"ssl_ca_certs": tls.ca, "ssl_certfile": tls.cert, "ssl_keyfile": tls.key}
        options |= {"ssl": True, "ssl_cert_reqs": "required", "ssl_check_hostname": True, **files}
    return options


class _Master(OneServer):
    """Beside the connection, those to the Sentinels."""

    def __init__(self, location: RedisLocation, deadline_s: float) -> None:
        # One that doesn't answer leaves time to ask the others.
        each_s = deadline_s / (len(location.addresses) + 1)
        self._location = location
        self._tls = location.tls.context() if location.tls is not None else None
        self._sentinel = Sentinel(
            [tuple(address) for address in location.addresses],
            sentinel_kwargs=asking(location.sentinel_login, location.tls, each_s),
        )
        super().__init__(self._to_master, deadline_s)

    async def close(self) -> None:
        """RedisRoute's."""
        await super().close()
        await self._sentinel.aclose()

    async def _to_master(self, pushed: Pushed | None) -> RedisConnection:
        location = self._location
        try:
            host, port = await self._sentinel.discover_master(location.master)
        except RedisError as error:
            raise NoMaster(type(error).__name__) from None
        return await connect(Address(host, port), self._tls, location.login, location.database, pushed)


def by_sentinels(location: RedisLocation, deadline_s: float) -> OneServer:
    """The route to whoever is the master."""
    return _Master(location, deadline_s)
