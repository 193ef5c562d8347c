"""The prober's composition root: everything that it consists of is made here; its one key signs its answers."""

import asyncio
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any

import structlog

from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.runtime.base.refusal import ToolsRefused
from aetheris.runtime.process.lifecycle import freeze_memory
from aetheris.runtime.process.names import living
from aetheris.runtime.process.record_keys import record_keys, while_in_force
from aetheris.runtime.process.runtime import runtime
from aetheris.runtime.worker.handler import Cadence, Inputs
from aetheris.runtime.worker.loop import PartitionWorker
from aetheris.sdk.isolation import kernel
from aetheris.sdk.isolation.programs import close_to_programs
from aetheris.sdk.isolation.tools import all_tools, imported, readable_credentials
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
    here = imported(settings, ToolsRefused)
    close_to_programs(settings.credential_files)
    if readable := readable_credentials(settings):
        _log.warning("probes in processes of their own can read this service's credentials", files=list(readable))
    output = ToolOutput(_say, partial(known, settings.secrets), reported=settings.tool_output)
    async with (
        runtime(settings, "prober", stop, with_redis=False) as parts,
        living(parts, GROUP, stop) as tenure,
        all_tools(settings, here, output.relay, ToolsRefused) as toolbox,
    ):
        prober = Prober(toolbox, parts.blobs, settings.probe_timeout_s, settings.probes_at_once, output)

        def handler(_partition: int) -> ProberPartition:
            return ProberPartition(ProberDependencies(parts, worker, prober, keys))

        worker = PartitionWorker.of(parts, INPUTS, handler, group=GROUP, tenure=tenure)
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


def _say(level: int, event: str, fields: Mapping[str, Any]) -> None:
    _log.log(level, event, **fields)
