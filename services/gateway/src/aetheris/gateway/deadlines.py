"""How long a request may take: what does not answer in time, or at all, is a 503."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aetheris.gateway.core.problems import Unavailable
from aetheris.gateway.index import JobIndex
from aetheris.gateway.views import ViewsLost
from aetheris.runtime.log.interface import ArchiveUnusable, LogError
from aetheris.runtime.redis.client import RedisUnavailable


class Deadlines:
    """Around all that a request asks of Kafka, Redis or the verifier; not around its wait for an answer in the log."""

    def __init__(self, index: JobIndex, request_s: float) -> None:
        self._index = index
        self.request_s = request_s

    @asynccontextmanager
    async def deadline(self) -> AsyncGenerator[None]:
        """Raises Unavailable for what fails inside, or is late."""
        try:
            async with asyncio.timeout(self.request_s):
                yield
        except TimeoutError:
            raise Unavailable("deadline", "Kafka, Redis or the verifier is late; what was sent may still act") from None
        except ViewsLost:
            self._index.report_loss()
            raise
        except RedisUnavailable as error:
            raise Unavailable(error.code, "Redis does not answer") from None
        except ArchiveUnusable as error:
            raise Unavailable(error.code, str(error)) from None
        except LogError as error:
            raise Unavailable(error.code, "Kafka does not answer") from None
