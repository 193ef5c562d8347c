"""Whether these brokers are those that the log is on: a mirror of it lacks what came last, or has it elsewhere."""

from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.log_homes import LOG_HOME_KEY, LogHome
from aetheris.protocol.tables.log_homes import LogHomes, why_moved
from aetheris.protocol.tables.signed_messages import IsTheirs
from aetheris.runtime.base.refusal import StartRefused
from aetheris.runtime.log.interface import Log
from aetheris.runtime.log.table import Table


class LogMoved(StartRefused):
    """These brokers have a copy of the log: lay a backup there, or go back to the others."""

    code = "log_moved"


class LogHomeTable:
    """What `policies` says of it; make it before that table is loaded."""

    def __init__(self, table: Table, is_theirs: IsTheirs) -> None:
        self.homes = LogHomes()
        self._is_theirs = is_theirs
        table.on_change(self._take)

    async def check(self, log: Log) -> None:
        """Ask the brokers who they are; the table is loaded.

        Raises:
            LogMoved: others than those that the log is on.
            LogUnreachable: they don't say.
        """
        if self.homes.last is not None and (why := why_moved(self.homes.last, await log.cluster_id())) is not None:
            raise moved(why)

    def _take(self, key: str, value: bytes | None) -> None:
        said = self.homes.read(value or b"") if key == LOG_HOME_KEY else None
        if said is not None and self._is_theirs(Topic.POLICIES, LogHome.type_name, key.encode(), value or b""):
            self.homes.hear(said)


def moved(why: str) -> LogMoved:
    """The refusal."""
    return LogMoved(
        f"{why}. A mirror lacks what came last, which may have happened, and may have records at other offsets: "
        "nothing runs on it. Go back to the others, or `aetheris restore` a backup here (docs/backup.md, Moving)"
    )
