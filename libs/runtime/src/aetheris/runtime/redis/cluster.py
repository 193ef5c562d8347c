"""A cluster: each command goes to the master of its key's slot. Who has which slot, redis-py asks."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

import hiredis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.crc import key_slot
from redis.exceptions import RedisClusterException, RedisError

from aetheris.runtime.redis.link import NOEVICTION, Pushed, ServerLink, dialling, seen
from aetheris.runtime.redis.location import Address, RedisLocation
from aetheris.runtime.redis.resp import Command, RedisConnection
from aetheris.runtime.redis.sentinel import asking

_WITHOUT_KEY = frozenset({"PING", "INFO", "PUBLISH"})
_PAUSE_S = 0.01
"""Before a command is sent again that a slot's move stood in the way of, from the second time on."""


class SlotsUnknown(ConnectionError):
    """No node that answers says who has the slots, or nobody has this one."""


class _Sent(NamedTuple):
    """A command and where it goes; `asking`: to who will have the slot, while it is being moved."""

    at: int
    command: Command
    to: Address
    asking: bool = False


class ClusterRoute:
    """A link to each master that was asked."""

    def __init__(self, location: RedisLocation, deadline_s: float) -> None:
        self._location = location
        self._deadline_s = deadline_s
        self._links: dict[Address, ServerLink] = {}
        self._owners: dict[int, Address] = {}
        self._learning: asyncio.Task[None] | None = None
        self._stale = True
        if location.tls is not None:
            location.tls.context()  # refused here, not once somebody asks
        each_s = deadline_s / (len(location.addresses) + 1)
        self._nodes = RedisCluster(
            startup_nodes=[ClusterNode(*address) for address in location.addresses],
            require_full_coverage=False,  # the others' keys can be asked for
            dynamic_startup_nodes=False,  # names that the URL gives outlive the nodes' addresses
            **asking(location.login, location.tls, each_s),
        ).nodes_manager

    async def exchange(self, commands: Sequence[Command], within_s: float, *, refusals: bool) -> list[Any]:
        """RedisRoute's; what is refused because its slot has moved is sent again."""
        async with asyncio.timeout(within_s):
            if self._stale:
                await self._learn()
            sent = [
                _Sent(at, command, to)
                for at, (command, to) in enumerate(zip(commands, self._targets(commands), strict=True))
            ]
            replies = await self._followed(sent, within_s)
        if not refusals:
            for reply in replies:
                if isinstance(reply, Exception):
                    raise reply
        return replies

    async def each(self, commands_of: Callable[[str], Sequence[Command]], within_s: float) -> list[list[Any]]:
        """RedisRoute's."""
        async with asyncio.timeout(within_s):
            if self._stale:
                await self._learn()
            asked = [(address, commands_of(tag)) for address, tag in self._tags()]
            sent = [(to, command) for to, commands in asked for command in commands]
            replies = await self._followed([_Sent(at, command, to) for at, (to, command) in enumerate(sent)], within_s)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        found = iter(replies)
        return [[next(found) for _ in commands] for _, commands in asked]

    async def dial(self, pushed: Pushed | None) -> RedisConnection:
        """RedisRoute's: messages reach every node."""
        if self._stale:
            await self._learn()
        return await dialling(self._location, next(iter(self._owners.values())))(pushed)

    def evicting(self) -> str | None:
        """RedisRoute's."""
        for at in set(self._owners.values()) & self._links.keys():
            policy = self._links[at].evicting
            if policy is not None:
                return f"maxmemory-policy of {at.host}:{at.port} must be {NOEVICTION}, is {policy}"
        return None

    async def close(self) -> None:
        """RedisRoute's."""
        if self._learning is not None:
            self._learning.cancel()
            await asyncio.gather(self._learning, return_exceptions=True)
        for link in self._links.values():
            await link.close()
        await self._nodes.aclose("startup_nodes")
        await self._nodes.aclose()

    def _targets(self, commands: Sequence[Command]) -> list[Address]:
        """Where each goes; one without a key with the one before it, else behind it."""
        slots = [_slot(command) for command in commands]
        last = next((slot for slot in slots if slot is not None), None)
        targets: list[Address] = []
        for slot in slots:
            last = slot if slot is not None else last
            target = next(iter(self._owners.values()), None) if last is None else self._owners.get(last)
            if target is None:
                self._stale = True
                raise SlotsUnknown(f"nobody has slot {last}")
            targets.append(target)
        return targets

    def _tags(self) -> list[tuple[Address, str]]:
        """Each master with a hash tag whose slot it has: the same in every process that knows the same owners."""
        wanted, found = set(self._owners.values()), dict[Address, str]()
        for number in count():
            if len(found) == len(wanted):
                return sorted((address, tag) for address, tag in found.items())
            owner = self._owners.get(key_slot(str(number).encode()))
            if owner is not None:
                found.setdefault(owner, str(number))
        raise AssertionError

    async def _followed(self, sent: Sequence[_Sent], within_s: float) -> list[Any]:
        replies: list[Any] = [None] * len(sent)
        rounds = 0
        while sent:
            if rounds > 1:
                await asyncio.sleep(_PAUSE_S)
            rounds += 1
            again: list[_Sent] = []
            for one, reply in await self._sent(sent, within_s):
                elsewhere = _elsewhere(one, reply) if isinstance(reply, hiredis.ReplyError) else None
                if elsewhere is None:
                    replies[one.at] = reply
                    continue
                self._stale = self._stale or not elsewhere.asking
                again.append(elsewhere)
            if self._stale and again:
                await self._learn()
            sent = sorted(again)
        return replies

    async def _sent(self, sent: Sequence[_Sent], within_s: float) -> list[tuple[_Sent, Any]]:
        at: dict[Address, list[_Sent]] = {}
        for one in sent:
            at.setdefault(one.to, []).append(one)
        if len(at) == 1:
            ((to, ours),) = at.items()
            return await self._ask(to, ours, within_s)
        answers = await asyncio.gather(
            *(self._ask(to, ours, within_s) for to, ours in at.items()), return_exceptions=True
        )
        found: list[tuple[_Sent, Any]] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            found += answer
        return found

    async def _ask(self, to: Address, sent: Sequence[_Sent], within_s: float) -> list[tuple[_Sent, Any]]:
        link = self._links.get(to)
        if link is None:
            link = self._links[to] = ServerLink(dialling(self._location, to), self._deadline_s)
        commands = [part for one in sent for part in ((("ASKING",), one.command) if one.asking else (one.command,))]
        try:
            replies = iter(await link.exchange(commands, within_s, refusals=True))
        except (OSError, TimeoutError, hiredis.HiredisError):
            self._stale = True
            raise
        found: list[tuple[_Sent, Any]] = []
        for one in sent:
            if one.asking:
                next(replies)
            reply = next(replies)
            if isinstance(reply, hiredis.ReplyError) and str(reply).startswith(("READONLY", "CLUSTERDOWN")):
                self._stale = True
            found.append((one, reply))
        return found

    async def _learn(self) -> None:
        """Who has which slot now, asked by whoever comes first."""
        if self._learning is None:
            self._learning = asyncio.create_task(self._ask_owners())
            self._learning.add_done_callback(seen)
        await asyncio.shield(self._learning)

    async def _ask_owners(self) -> None:
        try:
            known = [(address.host, address.port) for address in set(self._owners.values())]
            await self._nodes.initialize(additional_startup_nodes_info=known)
        except (RedisError, RedisClusterException, LookupError, ValueError) as error:
            raise SlotsUnknown(type(error).__name__) from None
        finally:
            self._learning = None
        self._owners = {
            slot: Address(nodes[0].host, int(nodes[0].port)) for slot, nodes in self._nodes.slots_cache.items()
        }
        self._stale = False
        masters = set(self._owners.values())
        for address in [one for one, link in self._links.items() if one not in masters and not link.open]:
            del self._links[address]


def _elsewhere(one: _Sent, reply: hiredis.ReplyError) -> _Sent | None:
    """Where a command goes on, and that it does: `MOVED 3999 host:port`, `ASK 3999 host:port`, `TRYAGAIN …`."""
    kind, *said = str(reply).split(" ")
    if kind == "TRYAGAIN":
        return one
    if kind not in ("MOVED", "ASK") or len(said) < 2:
        return None
    host, _, port = said[1].rpartition(":")
    return one._replace(to=Address(host or one.to.host, int(port)), asking=kind == "ASK")


def _slot(command: Command) -> int | None:
    if command[0] in _WITHOUT_KEY:
        return None
    key = command[3] if command[0] == "EVAL" else command[1]
    return key_slot(key if isinstance(key, bytes) else str(key).encode())
