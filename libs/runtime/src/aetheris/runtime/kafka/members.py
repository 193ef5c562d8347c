"""Who is in a consumer group under a stable name."""

import asyncio
from ssl import SSLContext
from typing import Any

from aiokafka.errors import KafkaError, for_code

from aetheris.runtime.kafka.admin import Admin
from aetheris.runtime.log.interface import LogUnreachable

_DEADLINE_S = 10.0
_UUID = len("-01234567-0123-0123-0123-0123456789ab")


async def members(bootstrap: str, group: str, *, tls: SSLContext | None = None) -> dict[str, str]:
    """Member id → name. A broker gives each life of a static member the id `<name>-<uuid>`; all else it says of it may
    be of an earlier one.

    Raises:
        LogUnreachable: the brokers can't say.
    """
    try:
        async with asyncio.timeout(_DEADLINE_S), Admin(bootstrap, tls) as admin:
            answers: Any = await admin.describe_consumer_groups([group])
    except (KafkaError, TimeoutError) as error:
        raise LogUnreachable(f"who is in {group} is not known: {type(error).__name__}") from None
    code, _group, _state, _kind, _protocol, described, *_ = answers[0].groups[0]
    if code:
        raise LogUnreachable(f"who is in {group} is not known: {for_code(code).__name__}")
    return {member_id: member_id[:-_UUID] for member_id, *_ in described}
