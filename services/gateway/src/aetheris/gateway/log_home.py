"""The gateway says on which Kafka cluster the log is, where nobody has yet; every service holds its brokers to that."""

import structlog

from aetheris.gateway.command_writer import SOURCE
from aetheris.gateway.message_signer import signed
from aetheris.gateway.views import timestamp
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.envelope import draft
from aetheris.runtime.base.fresh_ids import fresh_id
from aetheris.runtime.keys.records import RecordKeys
from aetheris.runtime.log.log_home import LogHomeTable
from aetheris.runtime.process.runtime import Runtime

_log = structlog.get_logger(__name__)


async def keep_home(parts: Runtime, home: LogHomeTable, keys: RecordKeys) -> None:
    """Refuse other brokers than those that the log is on; say which they are, where nothing says it.

    Raises:
        LogMoved: they are others.
        LogUnreachable: they don't say who they are.
        Unavailable: this gateway's certificate has ended.
    """
    await home.check(parts.log)
    if home.homes.last is not None:
        return
    cluster = await parts.log.cluster_id()
    if cluster is None:
        _log.warning("the brokers don't say which cluster they are: a copy of the log elsewhere would not be noticed")
        return
    said = home.homes.next(cluster, timestamp(parts.clock.now()))
    record = draft(Topic.POLICIES, said, key=said.key, id=fresh_id(), source=SOURCE, time=said.at)
    await parts.appender.append([(signed(record, keys),)])
