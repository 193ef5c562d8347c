"""Living under a name in a consumer group: whoever else lives under it is not robbed of its partitions.

Kafka lets any process take a static member's place, and the two would take it from each other for ever. So who joins,
or joins again, looks first who is in the group:

nobody of this name                       joins
a member that a lock proves to have ended joins
any other, gone within its session        joins: it has ended
any other                                 refused
"""

from collections.abc import Awaitable, Callable, Collection, Mapping

import structlog

from aetheris.runtime.base.clock import Clock
from aetheris.runtime.base.refusal import WorkerIdTaken
from aetheris.runtime.log.interface import LogUnreachable

_log = structlog.get_logger(__name__)

SESSIONS = 3
"""After so many session timeouts who is still in the group lives: a new coordinator counts each member's anew."""

_PAUSE_S = 0.25

Members = Mapping[str, str]
"""Member id → the stable name that it has joined with."""


async def unclaimed(
    ask: Callable[[], Awaitable[Members]],
    name: str,
    ended: Collection[str],
    *,
    clock: Clock,
    session_timeout_s: float,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Wait until nobody is in the group as `name`, beside who is known to have ended; or until it is stopped.

    Raises:
        WorkerIdTaken: somebody still is after some sessions.
    """
    since: dict[str, float] = {}
    while not stopped():
        now_s = clock.monotonic()
        others = [one for one, its in (await _asked(ask)).items() if its == name and one not in ended]
        if not others:
            return
        if any(now_s - since.setdefault(one, now_s) > SESSIONS * session_timeout_s for one in others):
            raise WorkerIdTaken(f"another process lives as {name}: give this one another AETHERIS_WORKER_ID")
        await clock.sleep(_PAUSE_S)


async def _asked(ask: Callable[[], Awaitable[Members]]) -> Members:
    """Nobody, where that can't be known: an outage keeps no one from joining, and who joins is looked for again."""
    try:
        return await ask()
    except LogUnreachable as error:
        _log.warning("who is in the group is not known", error=str(error))
        return {}
