"""The composition root: everything that the verifier consists of is made here; no tool is loaded, for it holds keys."""

import asyncio
from dataclasses import replace
from datetime import timedelta

from aetheris.http_server.internal import InternalKey
from aetheris.http_server.server import HttpServer
from aetheris.proofs.signatures import signed_here
from aetheris.protocol.base.sealed import REACH
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.tables.rules_orders import RulesOrders
from aetheris.runtime.blobs.archive import JobArchive
from aetheris.runtime.log.archive_lines import ArchiveLines
from aetheris.runtime.log.history import JobLogReader
from aetheris.runtime.log.job_lines import JobLines
from aetheris.runtime.log.order_table import OrderTable
from aetheris.runtime.process.lifecycle import freeze_memory
from aetheris.runtime.process.names import living
from aetheris.runtime.process.record_keys import record_keys
from aetheris.runtime.process.runtime import runtime
from aetheris.runtime.telemetry.metrics import Metric
from aetheris.runtime.worker.handler import Cadence, Inputs
from aetheris.runtime.worker.loop import PartitionWorker
from aetheris.runtime.worker.unsigned import HeardMessages
from aetheris.verifier.archiver import Archiver
from aetheris.verifier.core.job_metrics import JobMeasures
from aetheris.verifier.erasure_lines import ErasureLines
from aetheris.verifier.handlers import VerifierDependencies, VerifierPartition
from aetheris.verifier.http import api
from aetheris.verifier.job_watch import show
from aetheris.verifier.keys import LISTED, SealKeys, log_key, publish, seal_keys, signing_key
from aetheris.verifier.line_writer import LoggedAnswers
from aetheris.verifier.proofs import Proofs
from aetheris.verifier.seallog import SealLog
from aetheris.verifier.settings import VerifierSettings
from aetheris.verifier.witness_watch import WitnessWatch
from aetheris.verifier.witnessed import WitnessedCheckpoints

GROUP = "aetheris.verifier"

INPUTS = Inputs(
    authority_cadence=Cadence.LAZY,
    tables=(Topic.JOBS_INDEX, Topic.POLICIES, Topic.JOBS_ARCHIVE),
    rows={Topic.JOBS_INDEX: JobLines, Topic.JOBS_ARCHIVE: ArchiveLines},
    quarantines=frozenset({Topic.JOBS_EVENTS}),
    reach=REACH,
    checkpoints=Topic.AUDIT_CHECKPOINTS,
)


async def serve(settings: VerifierSettings, stop: asyncio.Event) -> None:
    """Audit, seal and prove until `stop` is set.

    Raises:
        InternalKeyMissing, SealKeyMissing, LogKeyMissing, SealKeyUnusable, TokenKeyUnusable, SealPolicyUnusable: what
            the settings name can't be used.
        KeyUnusable, CertificateNotInForce: what signs its records can't be used.
        WorkerIdTaken: another process lives under this name.
        Exception: whatever escaped; the next process restores from the log.
    """
    own = signing_key(settings.seal_key, settings.seal_key_uri, settings.data, dev=settings.dev)
    log = log_key(settings.seal_log_key, settings.data, dev=settings.dev)
    keys = seal_keys(own, log, settings.seal_keys or settings.data / "keys" / LISTED)
    witnessed = _witnessed(settings, keys)
    if settings.dev:
        publish(keys, settings.data / "keys")
    records = record_keys(settings, Party.AUDITOR, also_told=signed_here)
    internal = InternalKey.load(settings.internal_key, settings.data, dev=settings.dev)
    async with (
        runtime(settings, "verifier", stop, with_redis=False) as parts,
        living(parts, GROUP, stop) as tenure,
        asyncio.TaskGroup() as tasks,
    ):
        handlers: dict[int, VerifierPartition] = {}

        def handler(partition: int) -> VerifierPartition:
            handlers[partition] = VerifierPartition(deps, partition)
            return handlers[partition]

        inputs = replace(INPUTS, checkpoint_every=settings.checkpoint_every)
        worker = PartitionWorker.of(parts, inputs, handler, group=GROUP, tenure=tenure, keys=records)
        heard = HeardMessages(records.messages, parts.metrics)
        rules = OrderTable(worker.tables[Topic.POLICIES], RulesOrders(), heard.line_counts)
        worker.show(parts.health, parts.metrics)
        parts.metrics.watch(Metric.UNREAD, lambda: sum(one.unread for one in list(handlers.values())))
        archive = JobArchive(parts.blobs, worker.tables[Topic.JOBS_ARCHIVE].get)
        history = JobLogReader(parts.log, archive=archive)
        signed = settings.data / "keys" / "checkpoint"
        seals = SealLog(parts.log, keys, settings.seal_log, signed, settings.read_s, witnessed=witnessed)
        proofs = Proofs(parts, worker.tables[Topic.JOBS_INDEX], history, keys, seals, settings.read_s)
        measures = JobMeasures()
        show(measures, lambda: [one.watched for one in list(handlers.values())], parts.metrics, parts.clock)
        logged = LoggedAnswers(parts.log, keys)
        deps = VerifierDependencies(
            parts, worker, keys, records, proofs, rules, logged, settings.interim_seal_s, measures
        )
        erasures = ErasureLines(parts, worker, heard.line_counts, keys, seals)
        http = HttpServer.of(settings, api(proofs, internal, parts.clock))
        tasks.create_task(http.run())
        beside = [tasks.create_task(erasures.run())]
        if settings.archive_after_days is not None:
            archiver = Archiver(parts, worker, archive, proofs, timedelta(days=settings.archive_after_days))
            archiver.show(parts.metrics)
            beside.append(tasks.create_task(archiver.run()))
        if witnessed is not None:
            watch = WitnessWatch(seals, parts.clock)
            watch.show(parts.metrics)
            beside.append(tasks.create_task(watch.run()))
        freeze_memory(only_facts=True)
        try:
            await worker.run(stop)
        finally:
            http.stop()
            for task in beside:
                task.cancel()
            await history.close()


def _witnessed(settings: VerifierSettings, keys: SealKeys) -> WitnessedCheckpoints | None:
    if settings.seal_policy is None:
        return None
    folder = settings.seal_witnessed or settings.data / "witnessed"
    return WitnessedCheckpoints.load(settings.seal_policy, folder, settings.seal_log, keys.log)
