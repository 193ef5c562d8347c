"""How far a service had read its authority, kept beside its mark: whoever reads on from there finds the log as it was.

Brokers can be made to elect a leader that lacks what was acknowledged (an unclean election, forced by who administers
them; a broker's disk put back to yesterday's). Such a log looks whole. What it lacks may have been acted upon.
"""

import hashlib
from dataclasses import dataclass

from aetheris.protocol.base.records import Record
from aetheris.runtime.base.refusal import StartRefused
from aetheris.runtime.log.interface import Log, Place
from aetheris.runtime.log.replay import replay

_VERSION = "1"


class LogCut(StartRefused):
    """The log is not the one that was read: it ends below, or has another record there."""

    code = "log_cut"


@dataclass(frozen=True, slots=True)
class LastRead:
    """The last record that was handled, and what it was."""

    offset: int
    fingerprint: str
    """SHA-256 of its key and value, 32 hexadecimal digits of it."""

    @classmethod
    def at(cls, record: Record) -> "LastRead":
        """This one."""
        key = record.key or b""
        digest = hashlib.sha256(len(key).to_bytes(4) + key + record.value).hexdigest()
        return cls(record.offset, digest[:32])

    def note(self) -> str:
        """As it is kept."""
        return f"{_VERSION} {self.offset} {self.fingerprint}"


def noted(note: str) -> LastRead | None:
    """What was kept; None where nothing was, or in words of another version."""
    match note.split(" "):
        case ["1", offset, fingerprint] if offset.isdecimal():
            return LastRead(int(offset), fingerprint)
        case _:
            return None


def ends_below(end: int, before: LastRead) -> str:
    """Why a log that ends there is not the one that was read; it goes on from "the log"."""
    return f"ends at {end}; it was read to {before.offset}"


def is_another(before: LastRead) -> str:
    """Why a log that has another record there is not the one that was read."""
    return f"has another record at {before.offset} than was read there"


async def why_cut(log: Log, place: Place, before: LastRead) -> str | None:
    """Why the log is not the one that was read, as the brokers say now; None: nothing says so.

    A leader that was deposed may tell an end of long ago: ask again, after GAP_BELIEVED_S.

    Raises:
        LogUnreachable: the brokers can't say.
    """
    end = (await log.end_offsets([place]))[place]
    if end <= before.offset:
        return ends_below(end, before)
    if (await log.beginning_offsets([place]))[place] <= before.offset:
        async for records in replay(log, place, before.offset, before.offset + 1):
            if records[0].offset == before.offset and LastRead.at(records[0]) != before:
                return is_another(before)
    return None  # one that was deleted since can't say


def cut(topic: str, partition: int, why: str) -> LogCut:
    """The refusal; `why` goes on from "the log"."""
    return LogCut(
        f"{topic}[{partition}]: the log {why}. Records that were acknowledged are gone, and what they say may have "
        "happened. Nothing of it runs on: end every service, back up what is left and restore it behind a fence "
        "(docs/kafka-cluster.md, Unclean elections)"
    )
