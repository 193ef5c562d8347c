"""Who is in a consumer group, in which version, and which rules each says that it knows."""

import asyncio
import json
import time
from collections.abc import Collection
from ssl import SSLContext
from typing import Any

from aiokafka import TopicPartition
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from aiokafka.errors import KafkaError, for_code

from aetheris.protocol.tables.attendants import Attendant
from aetheris.runtime.kafka.admin import Admin
from aetheris.runtime.log.interface import LogUnreachable, Place

_DEADLINE_S = 10.0
_UUID = len("-01234567-0123-0123-0123-0123456789ab")
_PAUSE_S = 0.25
_MOST_VERSION = 40
"""Characters: who may join a group says what he likes."""
_SETTLED = ("Stable", "Empty", "Dead")
"""States of a group in which a broker knows what each of its members says of itself."""


async def members(bootstrap: str, group: str, *, tls: SSLContext | None = None) -> dict[str, str]:
    """Member id → name. A broker gives each life of a static member the id `<name>-<uuid>`; what else it says of it may
    be of an earlier one, as long as the group has not settled.

    Raises:
        LogUnreachable: the brokers can't say.
    """
    _, described = await _described(bootstrap, group, tls)
    return {member_id: member_id[:-_UUID] for member_id, *_ in described}


async def attendants(bootstrap: str, group: str, *, tls: SSLContext | None = None) -> dict[str, Attendant]:
    """By name, what its members know of the rules: none, where one doesn't say. Who joins is waited for.

    Raises:
        LogUnreachable: the brokers can't say.
    """
    until_s = time.monotonic() + _DEADLINE_S
    while True:
        state, described = await _described(bootstrap, group, tls)
        if state in _SETTLED:
            break
        if time.monotonic() >= until_s:
            raise LogUnreachable(f"who is in {group} is not known: {state}")
        await asyncio.sleep(_PAUSE_S)
    found: dict[str, Attendant] = {}
    for member_id, _client, _host, said, *_ in described:
        name, one = member_id[:-_UUID], _said(said)
        other = found.get(name, one)
        found[name] = Attendant(one.rules & other.rules, one.version if one.version == other.version else None)
    return found


async def committed(
    bootstrap: str, group: str, places: Collection[Place], *, tls: SSLContext | None = None, prefix: str = ""
) -> dict[Place, int]:
    """What a group has committed; `group` is its whole name, and topics get the prefix.

    Raises:
        LogUnreachable: the brokers can't say.
    """
    return {place: offset for place, (offset, _) in (await _committed(bootstrap, group, places, tls, prefix)).items()}


async def noted(
    bootstrap: str, group: str, places: Collection[Place], *, tls: SSLContext | None = None, prefix: str = ""
) -> dict[Place, str]:
    """What a group has noted beside what it committed; `group` is its whole name, and topics get the prefix.

    Raises:
        LogUnreachable: the brokers can't say.
    """
    return {place: note for place, (_, note) in (await _committed(bootstrap, group, places, tls, prefix)).items()}


async def _committed(
    bootstrap: str, group: str, places: Collection[Place], tls: SSLContext | None, prefix: str
) -> dict[Place, tuple[int, str]]:
    asked = {TopicPartition(prefix + topic, number): (topic, number) for topic, number in places}
    try:
        async with asyncio.timeout(_DEADLINE_S), Admin(bootstrap, tls) as admin:
            found: Any = await admin.list_consumer_group_offsets(group, partitions=list(asked))
    except (KafkaError, TimeoutError) as error:
        raise LogUnreachable(f"what {group} has committed is not known: {type(error).__name__}") from None
    return {asked[at]: (said.offset, said.metadata) for at, said in found.items() if at in asked and said.offset >= 0}


async def _described(bootstrap: str, group: str, tls: SSLContext | None) -> tuple[str, list[Any]]:
    try:
        async with asyncio.timeout(_DEADLINE_S), Admin(bootstrap, tls) as admin:
            answers: Any = await admin.describe_consumer_groups([group])
    except (KafkaError, TimeoutError) as error:
        raise LogUnreachable(f"who is in {group} is not known: {type(error).__name__}") from None
    code, _group, state, _kind, _protocol, described, *_ = answers[0].groups[0]
    if code:
        raise LogUnreachable(f"who is in {group} is not known: {for_code(code).__name__}")
    return state, described


def _said(metadata: bytes) -> Attendant:
    try:
        said: Any = json.loads(ConsumerProtocolMemberMetadata.decode(metadata).user_data)
        runs = said.get("version")
        is_named = isinstance(runs, str) and runs.isprintable() and len(runs) <= _MOST_VERSION
        return Attendant(frozenset(one for one in said["rules"] if type(one) is int), runs if is_named else None)
    except Exception:  # noqa: BLE001  whoever may join a group says what he likes, and knows nothing then
        return Attendant(frozenset())
