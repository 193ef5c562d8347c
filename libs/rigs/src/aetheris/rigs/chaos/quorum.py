"""Who leads in a Kafka cluster: a partition, or the controllers themselves; asked of whichever broker answers."""

import asyncio
import struct
from collections.abc import Sequence

from aetheris.protocol.base.topics import Topic
from aetheris.runtime.kafka.brokers import Brokers
from aetheris.runtime.kafka.connection import Address, Disconnected, connect
from aetheris.runtime.kafka.wire import Api
from aetheris.runtime.log.interface import LogUnreachable

WITHIN_S = 3.0
_DESCRIBE_QUORUM = Api(55, 0)
_METADATA_LOG = b"__cluster_metadata"
# header's tagged fields (none); one topic, its name, one partition, number 0; tagged fields (none) at each level
_QUESTION = b"\0\x02" + bytes([len(_METADATA_LOG) + 1]) + _METADATA_LOG + b"\x02" + struct.pack(">i", 0) + b"\0\0\0"


async def leader_of(partition: int, addresses: Sequence[Address]) -> Address | None:
    """The broker that leads a partition of jobs.events; None where nobody says."""
    place = (str(Topic.JOBS_EVENTS), partition)
    brokers = Brokers(",".join(f"{host}:{port}" for host, port in addresses), None)
    try:
        async with asyncio.timeout(2 * WITHIN_S):
            await brokers.start()
            return (await brokers.leaders({place})).get(place)
    except (LogUnreachable, TimeoutError):
        return None
    finally:
        await brokers.stop()


async def controller(addresses: Sequence[Address]) -> int | None:
    """The node of the controller in charge; None where no broker says."""
    for address in addresses:
        try:
            async with asyncio.timeout(WITHIN_S):
                connection = await connect(address, None)
                try:
                    return _leader(await connection.call(_DESCRIBE_QUORUM, _QUESTION))
                finally:
                    connection.close()
        except (Disconnected, TimeoutError, IndexError, struct.error):
            continue
    return None


def _leader(answer: bytes) -> int | None:
    """Past the header's tagged fields: an error, one topic and its name, one partition, its number and error."""
    (error,) = struct.unpack_from(">h", answer, 1)
    at = 1 + 2 + 1
    at += answer[at]  # a compact text: its length and one
    _number, wrong, leader = struct.unpack_from(">ihi", answer, at + 1)
    return leader if not error and not wrong and leader >= 0 else None
