"""What aiokafka's group members don't survive by themselves: a connection that just broke, a coordinator that hangs.

Under uvloop a write to a connection that has just broken raises RuntimeError, where aiokafka expects an OSError
(aio-libs/aiokafka#1038): it ended heartbeats, or all coordination, for good. Here it is a broken connection.

A coordinator that hangs is left when a request is not answered within `REQUEST_S`. Only who joins waits longer, for the
other members: meanwhile another broker is asked who coordinates by now.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any

from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import KafkaConnectionError, KafkaError
from aiokafka.protocol.group import JoinGroupRequest, SyncGroupRequest

REQUEST_S = 3.0
"""After so long without an answer the coordinator is looked for again."""
_BEYOND_REBALANCE_S = 5.0
_LATE_S = 2.0
"""After which, and then each time as long, another broker is asked who coordinates."""

_send: Any = AIOKafkaConnection.send
_send_to_coordinator: Any = GroupCoordinator._send_req  # pyright: ignore[reportPrivateUsage]  it has no public hook


def _send_on(connection: Any, request: Any, expect_response: bool = True) -> Awaitable[Any]:
    usual_s = connection._request_timeout
    connection._request_timeout = max(usual_s, getattr(request, "answer_s", usual_s))
    try:
        return _send(connection, request, expect_response)
    except RuntimeError as error:
        if type(error) is not RuntimeError:  # aiokafka's own errors are RuntimeErrors too
            raise
        connection.close(reason=CloseReason.CONNECTION_BROKEN)
        raise KafkaConnectionError(f"the connection to {connection.host}:{connection.port} broke") from error
    finally:
        connection._request_timeout = usual_s


async def _send_watched(coordinator: Any, request: Any) -> Any:
    if not isinstance(request, (JoinGroupRequest, SyncGroupRequest)):
        return await _send_to_coordinator(coordinator, request)
    asked = coordinator.coordinator_id
    request.answer_s = coordinator._rebalance_timeout_ms / 1000 + _BEYOND_REBALANCE_S  # pyright: ignore[reportAttributeAccessIssue]  for _send_on
    sending = asyncio.ensure_future(_send_to_coordinator(coordinator, request))
    try:
        while not (await asyncio.wait({sending}, timeout=_LATE_S))[0]:
            if await _another_coordinates(coordinator, asked):
                _break(coordinator, asked)
        return sending.result()
    finally:
        sending.cancel()


async def _another_coordinates(coordinator: Any, asked: int | None) -> bool:
    try:
        found = await coordinator._client.coordinator_lookup(CoordinationType.GROUP, coordinator.group_id)
    except KafkaError:
        return False
    return bool(found != asked)


def _break(coordinator: Any, asked: int | None) -> None:
    """So that what waits there is told, and looks for the coordinator again."""
    connection = coordinator._client._conns.get((asked, ConnectionGroup.COORDINATION))
    if connection is not None:
        connection.close(reason=CloseReason.CONNECTION_TIMEOUT)


def mend() -> None:
    """From now on, in this process."""
    setattr(AIOKafkaConnection, "send", _send_on)  # noqa: B010  whose own says otherwise
    setattr(GroupCoordinator, "_send_req", _send_watched)  # noqa: B010  declared private
