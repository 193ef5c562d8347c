"""What an executor says of itself and of its tools in compacted topics."""

from collections.abc import Mapping, Sequence

from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import ExecutorTools, ModelEntry, RegistryEntry, WorkerEntry
from aetheris.protocol.messages.envelope import draft
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.base.fresh_ids import fresh_id
from aetheris.runtime.base.refusal import StartRefused
from aetheris.runtime.log.interface import Appender
from aetheris.runtime.process.withheld import write_all
from aetheris.tool_executor.performer import SOURCE


class AnnouncementRefused(StartRefused):
    """Kafka will not have what this executor says of itself or of a tool: raise the topic's max.message.bytes."""

    code = "announcement_refused"
    passes = True


async def announce(appender: Appender, clock: Clock, entry: WorkerEntry) -> None:
    """Say who lives under a name.

    Raises:
        AnnouncementRefused: it is larger than its topic allows.
    """
    await _write(appender, clock, Topic.WORKERS, {entry.worker_id: entry})


async def register(appender: Appender, clock: Clock, entries: Sequence[RegistryEntry | ModelEntry]) -> None:
    """Say what can be called; plans may name it from then on.

    Raises:
        AnnouncementRefused: a line of it is larger than its topic allows.
    """
    await _write(appender, clock, Topic.TOOLS_REGISTRY, {one.key: one for one in entries})


async def tell_served(appender: Appender, clock: Clock, line: ExecutorTools) -> None:
    """Say what this life serves; its calls are granted from then on.

    Raises:
        AnnouncementRefused: it is larger than its topic allows.
    """
    await _write(appender, clock, Topic.TOOLS_REGISTRY, {line.key: line})


async def _write(
    appender: Appender,
    clock: Clock,
    topic: Topic,
    entries: Mapping[str, WorkerEntry | RegistryEntry | ModelEntry | ExecutorTools],
) -> None:
    time = clock.now().isoformat()
    drafts = [draft(topic, one, key=key, id=fresh_id(), source=SOURCE, time=time) for key, one in entries.items()]
    for refusal in await write_all(appender, [(one,) for one in drafts]):
        name = refusal.group[0].key.decode(errors="replace")
        raise AnnouncementRefused(f"Kafka will not have the entry of {name} in {topic}: {refusal.why}")
