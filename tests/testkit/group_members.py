"""Who shares a consumer group's partitions, as a broker says."""

from typing import Any

from aiokafka.admin import AIOKafkaAdminClient

from aetheris.runtime.kafka.bootstrap import client_options


async def stable_members(admin: AIOKafkaAdminClient, group: str) -> int:
    """How many members a group has; 0 while it is being rebalanced."""
    described: Any = await admin.describe_consumer_groups([group])
    ((_error, _name, state, _type, _protocol, members, *_),) = described[0].groups
    return len(members) if state == "Stable" else 0


async def sharing(kafka: str, group: str) -> int:
    """The same, asked once."""
    admin = AIOKafkaAdminClient(**client_options(kafka))
    await admin.start()
    try:
        return await stable_members(admin, group)
    finally:
        await admin.close()
