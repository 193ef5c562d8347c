"""The composition root: everything that the verifier consists of is made here."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from aetheris.http_server.internal import InternalKey
from aetheris.http_server.server import HttpServer
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.base.refusal import ToolsRefused
from aetheris.runtime.log.history import JobLogReader
from aetheris.runtime.log.job_lines import JobLines
from aetheris.runtime.process.installation import worker_name
from aetheris.runtime.process.lifecycle import freeze_memory
from aetheris.runtime.process.names import living
from aetheris.runtime.process.runtime import runtime
from aetheris.runtime.worker.handler import Cadence, Inputs
from aetheris.runtime.worker.loop import Pace, PartitionWorker
from aetheris.sdk.loader import ToolboxError, load
from aetheris.sdk.tool_output import ToolOutput
from aetheris.verifier.handlers import VerifierDependencies, VerifierPartition
from aetheris.verifier.hidden import known
from aetheris.verifier.http import api
from aetheris.verifier.keys import load_seal_keys
from aetheris.verifier.prober import Prober
from aetheris.verifier.proofs import Proofs
from aetheris.verifier.seallog import SealLog
from aetheris.verifier.settings import VerifierSettings

GROUP = "aetheris.verifier"

_log = structlog.get_logger(__name__)

INPUTS = Inputs(
    commands={Topic.VERIFICATIONS: Cadence.EAGER},
    authority_cadence=Cadence.LAZY,
    tables=(Topic.JOBS_INDEX,),
    rows={Topic.JOBS_INDEX: JobLines},
    quarantines=frozenset({Topic.JOBS_EVENTS, Topic.VERIFICATIONS}),
    made_again=frozenset({Topic.VERIFICATIONS}),
    checkpoints=Topic.AUDIT_CHECKPOINTS,
)


async def serve(settings: VerifierSettings, stop: asyncio.Event) -> None:
    """Audit, seal, probe and prove until `stop` is set.

    Raises:
        InternalKeyMissing, SealKeyMissing, SealKeyUnusable, ToolsRefused: what the settings name can't be used.
        WorkerIdTaken: another process lives under this name.
        Exception: whatever escaped; the next process restores from the log.
    """
    keys = load_seal_keys(settings.seal_key, settings.seal_keys, settings.data, dev=settings.dev)
    internal = InternalKey.load(settings.internal_key, settings.data, dev=settings.dev)
    try:
        toolbox = load(",".join(settings.tools), settings.tools_folder)
    except ToolboxError as fault:
        raise ToolsRefused(str(fault)) from None
    async with (
        runtime(settings, "verifier", stop) as parts,
        living(parts, GROUP, stop) as tenure,
        asyncio.TaskGroup() as tasks,
    ):
        output = ToolOutput(_say, partial(known, settings.secrets), reported=settings.tool_output)
        prober = Prober(toolbox, parts.blobs, settings.probe_timeout_s, settings.probes_at_once, output)

        def handler(partition: int) -> VerifierPartition:
            return VerifierPartition(VerifierDependencies(parts, worker, prober, keys, proofs), partition)

        worker = PartitionWorker(
            parts.log,
            parts.appender,
            replace(INPUTS, checkpoint_every=settings.checkpoint_every),
            handler,
            group=GROUP,
            member=worker_name(settings),
            tenure=tenure,
            pace=Pace.of(settings),
        )
        parts.health.add("worker", worker.unready)
        parts.health.report("lag", lambda: worker.lag)
        worker.measure(parts.metrics)
        history = JobLogReader(parts.log)
        seals = SealLog(parts.log, keys, settings.seal_log, settings.data / "keys" / "checkpoint", settings.read_s)
        proofs = Proofs(parts, worker.tables[Topic.JOBS_INDEX], history, keys, seals, settings.read_s)
        http = HttpServer.of(settings, api(proofs, internal, parts.clock))
        tasks.create_task(http.run())
        freeze_memory(only_facts=True)
        try:
            with output.installed(toolbox):
                await worker.run(stop)
        finally:
            http.stop()
            await history.close()


def _say(level: int, event: str, fields: Mapping[str, Any]) -> None:
    _log.log(level, event, **fields)
