"""The prober's composition root: everything that it consists of is made here; its one key signs its answers."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import structlog

from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.runtime.base.refusal import ToolsRefused
from aetheris.runtime.process.installation import worker_name
from aetheris.runtime.process.lifecycle import freeze_memory
from aetheris.runtime.process.names import living
from aetheris.runtime.process.record_keys import record_keys, while_in_force
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
        KeyUnusable, CertificateNotInForce, KeyRevoked: the key that signs its answers can't be used, or no more.
        WorkerIdTaken: another process lives under this name.
        Exception: whatever escaped; the next process restores from the log.
    """
    kernel.unreadable()
    keys = record_keys(settings, Party.PROBER)
    here = _imported(settings)
    output = ToolOutput(_say, partial(known, settings.secrets), reported=settings.tool_output)
    async with (
        runtime(settings, "prober", stop, with_redis=False) as parts,
        living(parts, GROUP, stop) as tenure,
        _isolated(here, settings, output) as toolbox,
    ):
        prober = Prober(toolbox, parts.blobs, settings.probe_timeout_s, settings.probes_at_once, output)

        def handler(_partition: int) -> ProberPartition:
            return ProberPartition(ProberDependencies(parts, worker, prober, keys))

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
            await _while_it_may_sign(worker.run(stop), while_in_force(keys, parts.clock))


async def _while_it_may_sign(work: Coroutine[Any, Any, None], in_force: Coroutine[Any, Any, None]) -> None:
    """An answer that can't be signed is one question that stays open: the process ends with its certificate."""
    ends = asyncio.create_task(in_force)
    working = asyncio.create_task(work)
    try:
        done, _ = await asyncio.wait({ends, working}, return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            one.result()
    finally:
        for one in (ends, working):
            one.cancel()
        await asyncio.gather(ends, working, return_exceptions=True)


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
