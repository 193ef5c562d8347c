"""aiokafka's task that learns who leads what ends for good with the first error that it does not expect.

Seen under reset connections, with a RuntimeError: whoever asked through that client waited for ever. Here it goes on.
"""

import asyncio
from typing import Any, NoReturn

import structlog
from aiokafka.client import AIOKafkaClient

_log = structlog.get_logger(__name__)

_AGAIN_S = 0.2
_learn: Any = AIOKafkaClient._md_synchronizer  # pyright: ignore[reportPrivateUsage]  it has no public hook


async def _learn_on(client: AIOKafkaClient) -> NoReturn:
    while True:
        try:
            await _learn(client)
        except Exception as error:  # noqa: BLE001  whatever it is, brokers must be asked again
            _log.warning("learning who leads is begun anew", error=type(error).__name__)
            await asyncio.sleep(_AGAIN_S)


def mend() -> None:
    """From now on, in this process."""
    setattr(AIOKafkaClient, "_md_synchronizer", _learn_on)  # noqa: B010  declared private
