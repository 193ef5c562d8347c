"""The prober's composition root: everything that it consists of is made here, and none of it is a key."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import structlog

from aetheris.protocol.base.topics import Topic
from aetheris.runtime.base.refusal import ToolsRefused
from aetheris.runtime.process.installation import worker_name
from aetheris.runtime.process.lifecycle import freeze_memory
from aetheris.runtime.process.names import living
from aetheris.runtime.process.runtime import runtime
from aetheris.runtime.worker.handler import Cadence, Inputs
from aetheris.runtime.worker.loop import Pace, PartitionWorker
from aetheris.sdk.isolation import kernel
from aetheris.sdk.isolation.hosts import HostSetup
from aetheris.sdk.isolation.tools import isolated_tools
from aetheris.sdk.loader import Toolbox, ToolboxError, load
from aetheris.sdk.tool_output import ToolOutput
from aetheris.verifier.prober.handlers import ProberDependencies, ProberPartition
from aetheris.verifier.prober.hidden import known
from aetheris.verifier.prober.probes import Prober
from aetheris.verifier.prober.settings import ProberSettings

GROUP = "aetheris.prober"

_log = structlog.get_logger(__name__)

INPUTS = Inputs(
    authority=Topic.VERIFICATIONS,
    authority_cadence=Cadence.EAGER,
    quarantines=frozenset({Topic.VERIFICATIONS}),
    made_again=frozenset({Topic.VERIFICATIONS}),
)


async def serve(settings: ProberSettings, stop: asyncio.Event) -> None:
    """Ask external systems, and say what they answer, until `stop` is set.

    Raises:
        ToolsRefused: what the settings name can't be used.
        WorkerIdTaken: another process lives under this name.
        Exception: whatever escaped; the next process restores from the log.
    """
    kernel.unreadable()
    here = _imported(settings)
    output = ToolOutput(_say, partial(known, settings.secrets), reported=settings.tool_output)
    async with (
        runtime(settings, "prober", stop, with_redis=False) as parts,
        living(parts, GROUP, stop) as tenure,
        _isolated(here, settings, output) as toolbox,
    ):
        prober = Prober(toolbox, parts.blobs, settings.probe_timeout_s, settings.probes_at_once, output)

        def handler(_partition: int) -> ProberPartition:
            return ProberPartition(ProberDependencies(parts, worker, prober))

        worker = PartitionWorker(
            parts.log,
            parts.appender,
            INPUTS,
            handler,
            group=GROUP,
            member=worker_name(settings),
            tenure=tenure,
            pace=Pace.of(settings),
        )
        worker.show(parts.health, parts.metrics)
        freeze_memory()
        with output.installed(toolbox):
            await worker.run(stop)


def _imported(settings: ProberSettings) -> Toolbox | None:
    """None where other processes are to import them."""
    if settings.tool_isolation == "process":
        return None
    try:
        return load(",".join(settings.tools), settings.tools_folder)
    except ToolboxError as fault:
        raise ToolsRefused(str(fault)) from None


@asynccontextmanager
async def _isolated(here: Toolbox | None, settings: ProberSettings, output: ToolOutput) -> AsyncGenerator[Toolbox]:
    given = HostSetup(settings.tool_env, settings.tool_user or None)
    modules = ",".join(settings.tools)
    async with AsyncExitStack() as closing:
        try:
            tools = isolated_tools(here, modules, settings.tools_folder, given, output.relay)
            found = await closing.enter_async_context(tools)
        except ToolboxError as fault:
            raise ToolsRefused(str(fault)) from None
        yield found


def _say(level: int, event: str, fields: Mapping[str, Any]) -> None:
    _log.log(level, event, **fields)
