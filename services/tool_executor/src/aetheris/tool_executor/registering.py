"""What this process can call, said in tools.registry."""

from collections.abc import Sequence

from aetheris.protocol.commands import ModelEntry, RegistryEntry
from aetheris.protocol.envelope import draft
from aetheris.protocol.topics import Topic
from aetheris.streams.clock import Clock
from aetheris.streams.ids import fresh_id
from aetheris.streams.log import Appender
from aetheris.tool_executor.performing import SOURCE


async def register(appender: Appender, clock: Clock, entries: Sequence[RegistryEntry | ModelEntry]) -> None:
    """Write them; plans may name them from then on."""
    time = clock.now().isoformat()
    drafts = (draft(Topic.TOOLS_REGISTRY, one, key=one.key, id=fresh_id(), source=SOURCE, time=time) for one in entries)
    await appender.append([(one,) for one in drafts])
