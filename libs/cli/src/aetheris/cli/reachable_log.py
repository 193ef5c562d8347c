"""Kafka, for the commands that read it themselves."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aetheris.cli.console import CommandError, Exit
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.kafka.tls import tls_context
from aetheris.runtime.log.interface import Log, LogError, LogUnreachable
from aetheris.runtime.process.settings import RuntimeSettings, load

WITHIN_S = 30.0


@asynccontextmanager
async def reachable(bootstrap: str, within_s: float | None = WITHIN_S) -> AsyncGenerator[Log]:
    """The log, for as long as the block lasts; `within_s` (None: no limit) is for all of it.

    Raises:
        CommandError: no broker answers, or not in time.
    """
    settings = load(RuntimeSettings)
    log = KafkaLog(bootstrap, tls=tls_context(settings), prefix=settings.prefix)
    try:
        async with asyncio.timeout(within_s):
            async with asyncio.timeout(WITHIN_S):
                await log.start()
            yield log
    except TimeoutError:
        raise _unreachable(f"{bootstrap} did not answer within {WITHIN_S:.0f} s") from None
    except LogError as error:
        raise _unreachable(str(error)) from None
    finally:
        await log.stop()


def _unreachable(why: str) -> CommandError:
    return CommandError(Exit.UNREACHABLE, LogUnreachable.code, f"{why}. Is it up? `aetheris up`, `aetheris doctor`.")
