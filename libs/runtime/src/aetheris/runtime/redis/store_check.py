"""Whether Redis keeps what it is given: an evicted effect is a call that nobody can settle without asking outside."""

import structlog

from aetheris.runtime.base.refusal import StartRefused
from aetheris.runtime.redis.client import Redis, RedisUnavailable
from aetheris.runtime.redis.link import evicts, info_field

_log = structlog.get_logger(__name__)


class StoreRefused(StartRefused):
    """The effect store could throw effects away; the message names the keys to set."""

    code = "store_refused"
    passes = True


async def check_store(redis: Redis, *, dev: bool = False) -> None:
    """Refuse a Redis that evicts; one that is away is not judged: services run without it for a while.

    Raises:
        StoreRefused: naming the key that is wrong, unless `dev`.
    """
    try:
        answers = await redis.each(lambda _tag: [("INFO", "memory"), ("INFO", "persistence")])
    except RedisUnavailable as error:
        _log.warning("the effect store could not be asked whether it keeps what it is given", error=str(error))
        return
    for memory, persistence in answers:
        policy = info_field(memory, b"maxmemory_policy")
        if evicts(policy):
            if not dev:
                raise StoreRefused(
                    f"AETHERIS_REDIS: {redis.evicting() or f'maxmemory-policy must be noeviction, is {policy}'}"
                )
            _log.warning("effects could be evicted (allowed by dev)", policy=policy)
        if info_field(persistence, b"aof_enabled") == "0":
            _log.warning("appendonly is no: effects of calls under way are lost with the process of Redis")
