"""What tests change at a running broker: a topic's configuration, and who may write to it."""

import struct
from collections.abc import Mapping
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from aetheris.runtime.kafka.bootstrap import client_options
from aetheris.runtime.kafka.connection import KafkaConnection, connect
from aetheris.runtime.kafka.wire import Api

AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""Properties of a broker that knows permissions; where nothing is said of a topic, all is allowed."""

_CREATE, _DELETE = Api(30, 1), Api(31, 1)
_TOPIC, _LITERAL, _WRITE, _DENY = 2, 3, 4, 2
_OF_TOPIC = 1
"""Where describe_configs says that a setting comes from: the topic itself."""


async def configure(bootstrap: str, topic: str, values: Mapping[str, str]) -> None:
    """Set a topic's configuration; what is not named goes back to its default."""
    admin = AIOKafkaAdminClient(**client_options(bootstrap))
    await admin.start()
    try:
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, dict(values))])
    finally:
        await admin.close()


async def reconfigure(bootstrap: str, topic: str, values: Mapping[str, str]) -> None:
    """Set these of a topic's configuration; what else it has stays."""
    admin = AIOKafkaAdminClient(**client_options(bootstrap))
    await admin.start()
    try:
        answers: Any = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        own = {entry[0]: entry[1] for entry in answers[0].resources[0][4] if entry[3] == _OF_TOPIC}
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {**own, **values})])
    finally:
        await admin.close()


async def forbid_writing(bootstrap: str, topic: str) -> None:
    """Nobody may write to the topic (to a broker that was started with AUTHORIZED)."""
    acl = struct.pack(">ib", 1, _TOPIC) + _text(topic) + struct.pack(">b", _LITERAL)
    await _ask(bootstrap, _CREATE, acl + _text("User:ANONYMOUS") + _text("*") + struct.pack(">bb", _WRITE, _DENY))


async def allow_writing(bootstrap: str, topic: str) -> None:
    """Take that back."""
    acl = struct.pack(">ib", 1, _TOPIC) + _text(topic) + struct.pack(">b", _LITERAL)
    await _ask(bootstrap, _DELETE, acl + _text("User:ANONYMOUS") + _text("*") + struct.pack(">bb", _WRITE, _DENY))


async def _ask(bootstrap: str, api: Api, body: bytes) -> None:
    host, _, port = bootstrap.partition(":")
    connection: KafkaConnection = await connect((host, int(port)), None)
    try:
        answer = await connection.call(api, body)
    finally:
        connection.close()
    code = int.from_bytes(answer[8:10], signed=True)
    assert code == 0, answer


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
