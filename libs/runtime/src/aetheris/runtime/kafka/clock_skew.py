"""How far the brokers' clock is from ours, by what the controller in charge says of itself (DescribeQuorum, KIP-836).

Times of day decide nothing about a call (docs/guarantees.md), but certificates, deadlines and schedules go by them.
"""

import asyncio
import struct
from collections.abc import Iterable
from ssl import SSLContext

from aetheris.runtime.base.clock import Clock
from aetheris.runtime.base.refusal import StartRefused
from aetheris.runtime.kafka.bootstrap import Login
from aetheris.runtime.kafka.connection import Address, Disconnected, connect
from aetheris.runtime.kafka.wire import Api

MOST_S = 300.0
_ASK_S = 5.0
_DESCRIBE_QUORUM = Api(55, 1)
_METADATA_LOG = b"__cluster_metadata"
# No tagged fields; one topic: its name, one partition, number 0; no tagged fields at each level.
_QUESTION = b"\0\x02" + bytes([len(_METADATA_LOG) + 1]) + _METADATA_LOG + b"\x02" + struct.pack(">i", 0) + b"\0\0\0"
_PARTITION = struct.Struct(">ihiiq")
_VOTER = struct.Struct(">iqqqx")


class ClockSkewed(StartRefused):
    """This machine's clock and the brokers' are too far apart."""

    code = "clock_skewed"
    passes = True


async def skew_s(
    addresses: Iterable[Address], tls: SSLContext | None, login: Login | None, clock: Clock
) -> float | None:
    """By how much the controller's clock is ahead of ours, in seconds; None where nobody says.

    Nobody does where it is no KRaft, or where we may not describe the cluster.
    """
    for address in addresses:
        try:
            async with asyncio.timeout(_ASK_S):
                connection = await connect(address, tls, login)
                try:
                    before_s = clock.now().timestamp()
                    told_ms = leaders_time_ms(await connection.call(_DESCRIBE_QUORUM, _QUESTION))
                    after_s = clock.now().timestamp()
                finally:
                    connection.close()
        except (Disconnected, TimeoutError):
            continue
        if told_ms is not None:
            return told_ms / 1000 - (before_s + after_s) / 2
    return None


def refused_skew(found_s: float | None) -> str | None:
    """Why nothing is to run with that; None where it may."""
    if found_s is None or abs(found_s) <= MOST_S:
        return None
    which = "ahead of" if found_s > 0 else "behind"
    return (
        f"the brokers' clock is {abs(found_s):.0f} s {which} this machine's, and {MOST_S:.0f} s are allowed: set both "
        "by the same time servers"
    )


def leaders_time_ms(answer: bytes) -> int | None:
    """What the controller in charge says of when it saw itself: its own time, in ms since 1970; None: nothing."""
    try:
        (error,) = struct.unpack_from(">h", answer, 1)
        if error:
            return None
        at = 1 + 2 + 1  # the header's tagged fields, the error, one topic
        at += answer[at] + 1  # its name: a compact text, and one partition
        _number, wrong, leader, _epoch, _high = _PARTITION.unpack_from(answer, at)
        at += _PARTITION.size
        voters = [_VOTER.unpack_from(answer, at + 1 + number * _VOTER.size) for number in range(answer[at] - 1)]
    except (struct.error, IndexError):
        return None
    times = [heard_ms for node, _end, _fetched, heard_ms in voters if node == leader]
    return times[0] if times and not wrong and times[0] > 0 else None
