"""The gateway's composition root: everything is built here, in the order in which it depends on each other."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from typing import Any

import httpx

from aetheris.gateway.access_history import AccessHistory
from aetheris.gateway.access_log import AccessLog
from aetheris.gateway.activated_policies import ActivatedPolicies
from aetheris.gateway.attendance import Attendance
from aetheris.gateway.call_leases import CallLeases
from aetheris.gateway.client_sessions import ClientSessions
from aetheris.gateway.command_writer import CommandWriter
from aetheris.gateway.commands import JobCommands
from aetheris.gateway.core.holds import Holds
from aetheris.gateway.core.quotas import Quotas
from aetheris.gateway.core.reconciliations import Schedule
from aetheris.gateway.dead_letters import DeadLetters
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.effect_index import EffectIndex
from aetheris.gateway.end_waits import EndWaits
from aetheris.gateway.feed import Feed
from aetheris.gateway.hidden_submissions import HiddenSubmissions
from aetheris.gateway.http_api import build_api
from aetheris.gateway.human_requests import HumanRequests
from aetheris.gateway.index import JobIndex
from aetheris.gateway.intake import Intake
from aetheris.gateway.job_histories import JobHistories
from aetheris.gateway.job_reader import JobReader
from aetheris.gateway.job_rows import JobRows
from aetheris.gateway.job_search_index import JobSearchIndex
from aetheris.gateway.limiter import Limiter, quotas_of
from aetheris.gateway.log_home import keep_home
from aetheris.gateway.log_watch import LogWatch
from aetheris.gateway.logins import Logins
from aetheris.gateway.long_jobs import LongJobs
from aetheris.gateway.opened_values import JobOpenings
from aetheris.gateway.openid import OpenId, providers_of
from aetheris.gateway.operator_gate import OperatorGate
from aetheris.gateway.order_writer import OrderWriter
from aetheris.gateway.ordered_freezes import OrderedFreezes
from aetheris.gateway.ordered_rules import OrderedRules
from aetheris.gateway.policy_trials import PolicyTrials
from aetheris.gateway.reads import Reads
from aetheris.gateway.reconciliation import Reconciliation
from aetheris.gateway.reconciliation_scheduler import ReconciliationScheduler
from aetheris.gateway.registry import Registry
from aetheris.gateway.routes.edge import Services
from aetheris.gateway.settings import GatewaySettings
from aetheris.gateway.spent_budgets import SpentBudgets
from aetheris.gateway.stalled_jobs import StalledJobList
from aetheris.gateway.subjects import Subjects
from aetheris.gateway.submission_writer import SubmissionWriter
from aetheris.gateway.system_health import SystemHealth
from aetheris.gateway.tokens import Tokens
from aetheris.gateway.told_schedules import ToldSchedules
from aetheris.gateway.tool_releases import ToolReleases
from aetheris.gateway.undos import Undos
from aetheris.gateway.untaken import Untaken
from aetheris.gateway.verifier_proxy import VerifierProxy
from aetheris.gateway.views import Views
from aetheris.gateway.workers import WorkerDirectory
from aetheris.http_server.internal import InternalKey
from aetheris.http_server.served_tls import trusted
from aetheris.http_server.server import HttpServer
from aetheris.protocol.base.allowed_signers import AllowedSigners
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.messages.commands import JobCommand, JobIndexEntry, Submit
from aetheris.protocol.planning.policy import Policy
from aetheris.protocol.planning.schemas import check_schema
from aetheris.protocol.tables.freeze_orders import FreezeOrders
from aetheris.protocol.tables.policy_activations import PolicyActivations
from aetheris.protocol.tables.rules_orders import RulesOrders
from aetheris.runtime.base.clock import Clock, SystemClock
from aetheris.runtime.blobs.archive import JobArchive
from aetheris.runtime.keys.records import RecordKeys
from aetheris.runtime.log.archive_lines import ArchiveLines
from aetheris.runtime.log.history import JobLogReader
from aetheris.runtime.log.log_home import LogHomeTable
from aetheris.runtime.log.order_table import OrderTable
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.log.table import Table
from aetheris.runtime.process import policy_file
from aetheris.runtime.process.installation import worker_name
from aetheris.runtime.process.lifecycle import freeze_memory
from aetheris.runtime.process.record_keys import record_keys, while_in_force
from aetheris.runtime.process.runtime import Runtime, runtime
from aetheris.runtime.process.signers_file import load_signers
from aetheris.runtime.process.subject_store import hiding_of
from aetheris.runtime.redis.leases import Leases
from aetheris.runtime.redis.quarantines import QuarantineStore
from aetheris.runtime.telemetry.catalogue import Metric
from aetheris.runtime.worker.unsigned import HeardMessages

READERS = 4
"""Jobs that are read from the log at the same time."""


async def serve(settings: GatewaySettings, stop: asyncio.Event) -> None:
    """Answer requests until `stop` is set.

    Raises:
        Exception: whatever escaped; the next process starts from the log.
    """
    async with gateway(settings, stop):
        check_schema({"type": "object"})  # loads what checks schemas: the first submission shall not wait for it
        freeze_memory()
        await stop.wait()


@asynccontextmanager
async def gateway(settings: GatewaySettings, stop: asyncio.Event | None = None) -> AsyncGenerator[HttpServer]:
    """A gateway that listens.

    Raises:
        BrokerRefused: no broker that can be relied on.
        KeyUnusable, CertificateNotInForce: what signs what people say can't be used.
        HttpTlsUnusable: the certificate or the CA can't be used.
        KmsRefused: what wraps the keys of subjects can't be used.
        InternalKeyMissing: the verifier could not tell who asks it.
        LimitsFileInvalid: the file of limits can't be used.
        LogMoved: the log is on other brokers.
        PolicyFileInvalid: the file of the policy can't be used.
        SettingInvalid: AETHERIS_WORKER_ID is no name.
        ProvidersFileInvalid: the file of OpenID providers can't be used.
        SignersFileInvalid: the file of allowed signers can't be used.
        TokensFileInvalid: the file of tokens can't be used.
    """
    tokens = Tokens(settings.tokens_file, SystemClock())
    providers = providers_of(settings.oidc, dev=settings.dev) if settings.oidc is not None else ()
    quotas = quotas_of(settings.limits) if settings.limits is not None else Quotas()
    signers, policy = load_signers(settings.signers), policy_file.load(settings.policy)
    keys = record_keys(settings, Party.GATEWAY)
    internal = InternalKey.load(settings.internal_key, settings.data, dev=settings.dev)
    async with (
        runtime(settings, "gateway", stop) as parts,
        httpx.AsyncClient(
            base_url=settings.verifier_url,
            timeout=settings.request_s,
            trust_env=False,
            verify=trusted(settings.ca),
        ) as verifier,
        httpx.AsyncClient() as outside,
        AsyncExitStack() as closing,
        asyncio.TaskGroup() as tasks,
    ):
        parts.health.add("views", lambda: "the registry is being read")  # until `index` knows better: nothing listens
        sources = _sources(parts, settings, keys)
        proofs = partial(VerifierProxy, verifier, internal)
        openid = OpenId(providers, outside, parts.clock, dev=settings.dev) if providers else None
        logins = Logins(tokens, openid, parts.metrics, parts.clock)
        accesses = await closing.enter_async_context(_recording(parts, tokens))
        callers = _Callers(logins, quotas, accesses, signers, keys, policy)
        services = _services(parts, settings, sources, callers, proofs)
        home = LogHomeTable(sources.policies, HeardMessages(keys.messages, parts.metrics).line_counts)
        await sources.feed.start()
        await asyncio.gather(*(table.load() for table in sources.tables))
        await keep_home(parts, home, keys)
        parts.health.add("views", sources.index.unready)
        http = HttpServer.of(settings, build_api(services))
        listening = parts.wake_up.listen("gateway", sources.feed.wake)
        providers_keys = openid.follow() if openid is not None else ()
        ends = while_in_force(keys, parts.clock)
        attendance = Attendance(parts.log, worker_name(settings), parts.clock)
        parts.health.add("attendance", attendance.unready)
        parts_of_it = (*sources.follow(), listening, *providers_keys, accesses.run(), ends, attendance.run())
        parts_of_it = (*parts_of_it, services.subjects.end_erasures(), services.system_health.log_watch.run())
        following = [tasks.create_task(part) for part in parts_of_it]
        if settings.reconcile_every_s is not None:
            following.append(tasks.create_task(_scheduler(settings, services, sources.views, parts.clock).run()))
        serving = tasks.create_task(http.run())
        await http.listening()
        try:
            yield http
        finally:
            sources.feed.close()
            http.stop()
            await asyncio.wait({serving})
            for task in following:
                task.cancel()
            await sources.effects.close()
            await services.search.close()
            await sources.history.close()


@asynccontextmanager
async def _recording(parts: Runtime, tokens: Tokens) -> AsyncGenerator[AccessLog]:
    """Who comes is recorded, by an appender of its own: nothing else waits for what Kafka may not take of it."""
    appender = parts.log.appender()
    await appender.start()
    accesses = AccessLog(appender, parts.metrics, parts.clock)
    tokens.changed = accesses.configured
    parts.health.report("accesses", accesses.reported)
    parts.health.add("accesses", accesses.unready)
    accesses.began(f"aetheris {version('aetheris-gateway')}")
    try:
        yield accesses
    finally:
        await accesses.close()
        await appender.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sources:
    """What the log and Redis are read by."""

    views: Views
    index: JobIndex
    feed: Feed
    history: JobLogReader
    rows: JobRows
    tools: Table
    workers: Table
    freezes: Table
    policies: Table
    archive: Table
    effects: EffectIndex

    def follow(self) -> tuple[Coroutine[Any, Any, None], ...]:
        return self.feed.run(), self.index.run(), *(table.run() for table in self.tables)

    @property
    def tables(self) -> tuple[Table, ...]:
        """What is read whole before anything is answered."""
        return self.tools, self.workers, self.freezes, self.policies, self.archive


@dataclass(frozen=True, slots=True)
class _Callers:
    """Who may call, how much they may ask for, whose SSH keys sign, what signs what they say, and the policy's file."""

    logins: Logins
    quotas: Quotas
    accesses: AccessLog
    signers: AllowedSigners
    keys: RecordKeys
    policy: Policy


def _sources(parts: Runtime, settings: GatewaySettings, keys: RecordKeys) -> _Sources:
    views = Views(parts.redis)
    index = JobIndex(parts.log, views, parts.clock, settings.shown_in_lists_s)
    feed = Feed(parts.log, parts.clock, settings.lazy_pause_s, index.lies_in)
    index.on_learned(feed.learned)
    archive = Table(parts.log, Topic.JOBS_ARCHIVE, ArchiveLines())
    history = JobLogReader(parts.log, readers=READERS, archive=JobArchive(parts.blobs, archive.get))
    untaken = Untaken(parts.log, keys.messages)
    rows = JobRows(views=views, index=index, untaken=untaken, history=history, feed=feed)
    return _Sources(
        views=views,
        index=index,
        feed=feed,
        history=history,
        rows=rows,
        tools=Table(parts.log, Topic.TOOLS_REGISTRY),
        workers=Table(parts.log, Topic.WORKERS),
        freezes=Table(parts.log, Topic.FREEZES),
        policies=Table(parts.log, Topic.POLICIES),
        archive=archive,
        effects=EffectIndex(
            parts.log,
            parts.redis,
            rows,
            parts.clock,
            patience_s=settings.request_s / 2,
            found_for_s=settings.effects_found_for_s,
        ),
    )


def _search(parts: Runtime, settings: GatewaySettings, sources: _Sources, reader: JobReader) -> JobSearchIndex:
    async def records(entry: JobIndexEntry) -> Sequence[Record]:
        row = await sources.rows.listed(entry.job_id)
        return () if row is None else await reader.records(row, await reader.end(entry.job_id))

    return JobSearchIndex(
        parts.log,
        records,
        parts.clock,
        folder=settings.data / "search",
        patience_s=settings.request_s / 2,
        listed_for_s=settings.shown_in_lists_s,
    )


def _services(
    parts: Runtime,
    settings: GatewaySettings,
    sources: _Sources,
    callers: _Callers,
    proofs: Callable[..., VerifierProxy],
) -> Services:
    views, feed, clock = sources.views, sources.feed, parts.clock
    hiding = hiding_of(settings, parts.blobs, clock)
    registry, deadlines = Registry(sources.tools, parts.metrics), Deadlines(sources.index, settings.request_s)
    limits = Limiter(callers.quotas, views, deadlines, parts.metrics, clock)
    reader = JobReader(
        log=parts.log,
        history=sources.history,
        feed=feed,
        index=sources.index,
        rows=sources.rows,
        deadlines=deadlines,
    )
    named = partial(partition_of, partitions=settings.partitions)

    def command_place(command: JobCommand) -> int:
        """A submission goes where its id says for ever; what is said of a job that is known, straight to it."""
        known = None if isinstance(command, Submit) else sources.index.lies_in(command.job_id)
        return named(command.job_id) if known is None else known

    writer = CommandWriter(
        parts.appender,
        clock,
        parts.telemetry,
        answer_s=settings.answer_s,
        request_s=settings.request_s,
        keys=callers.keys,
        place=command_place,
    )
    waits = EndWaits(reader, views, deadlines, clock, callers.keys)
    reads = Reads(
        reader=reader,
        waits=waits,
        feed=feed,
        views=views,
        quarantines=QuarantineStore(parts.redis),
        registry=registry,
        deadlines=deadlines,
        clock=clock,
    )
    hidden = HiddenSubmissions(hiding)
    intake = Intake(
        reads=reads,
        reader=reader,
        writer=SubmissionWriter(writer, named, clock),
        waits=waits,
        limits=limits,
        feed=feed,
        index=sources.index,
        views=views,
        rows=sources.rows,
        registry=registry,
        deadlines=deadlines,
        clock=clock,
        hidden=hidden,
    )
    heard = HeardMessages(callers.keys.messages, parts.metrics)
    heard.follow(sources.freezes, sources.policies)
    parts.health.report("other_roots", heard.other_roots)
    activated = OrderTable(sources.policies, PolicyActivations(), heard.line_counts)
    operators = OperatorGate(activated, callers.policy, deadlines)
    orders = OrderWriter(
        partitions=partial(parts.log.partitions, Topic.JOBS_EVENTS),
        appender=parts.appender,
        deadlines=deadlines,
        clock=clock,
        answer_s=settings.answer_s,
        keys=callers.keys,
    )
    workers = WorkerDirectory(
        sources.workers,
        operators=operators,
        reads=reads,
        appender=parts.appender,
        deadlines=deadlines,
        clock=clock,
        answer_s=settings.answer_s,
        keys=callers.keys,
    )
    verifier = proofs(reader=reader, deadlines=deadlines, clock=clock)
    return Services(
        logins=callers.logins,
        limits=limits,
        accesses=callers.accesses,
        access_history=AccessHistory(parts.log, deadlines),
        reader=reader,
        intake=intake,
        reads=reads,
        commands=JobCommands(reader, writer, deadlines, hidden),
        sessions=ClientSessions(
            reader=reader, intake=intake, writer=writer, registry=registry, deadlines=deadlines, blobs=parts.blobs
        ),
        reconciliation=Reconciliation(reader, writer, registry, deadlines),
        human_requests=HumanRequests(
            reader=reader,
            writer=writer,
            views=views,
            rows=sources.rows,
            registry=registry,
            deadlines=deadlines,
            clock=clock,
            signers=callers.signers,
            hidden=hidden,
        ),
        histories=JobHistories(reads, reader, sources.effects, parts.blobs, deadlines),
        search=_search(parts, settings, sources, reader),
        verifier=verifier,
        workers=workers,
        tool_releases=ToolReleases(sources.tools, registry, parts.log, orders, operators),
        freezes=OrderedFreezes(OrderTable(sources.freezes, FreezeOrders(), heard.line_counts), orders, operators),
        undos=Undos(
            reader=reader,
            rows=sources.rows,
            views=views,
            intake=intake,
            registry=registry,
            blobs=parts.blobs,
            deadlines=deadlines,
            clock=clock,
            listed_for_s=settings.shown_in_lists_s,
        ),
        policies=ActivatedPolicies(activated, orders, callers.signers, registry),
        policy_trials=PolicyTrials(
            reader=reader,
            views=views,
            blobs=parts.blobs,
            signers=callers.signers,
            registry=registry,
            deadlines=deadlines,
            clock=clock,
            listed_for_s=settings.shown_in_lists_s,
        ),
        system_health=SystemHealth(
            parts.log,
            registry,
            workers,
            log_watch=_log_watch(parts, registry),
            deadlines=deadlines,
            clock=clock,
        ),
        dead_letters=DeadLetters(
            log=parts.log,
            appender=parts.appender,
            operators=operators,
            deadlines=deadlines,
            clock=clock,
            keys=callers.keys,
        ),
        stalled=StalledJobList(views, LongJobs(reader), deadlines, clock),
        schedules=ToldSchedules(parts.redis, views, deadlines, clock),
        leases=CallLeases(reader, views, leases=Leases(parts.redis), deadlines=deadlines, clock=clock),
        budgets=SpentBudgets(
            reader=reader,
            views=views,
            activated=activated,
            configured=callers.policy,
            deadlines=deadlines,
            clock=clock,
        ),
        subjects=Subjects(hiding, orders, verifier),
        rules=OrderedRules(
            OrderTable(sources.policies, RulesOrders(), heard.line_counts),
            orders,
            parts.log.attendants,
            registry.pools,
        ),
        openings=JobOpenings(hiding, reader, deadlines),
        health=parts.health,
        holds=Holds(settings.streams, settings.streams_per_caller),
        keepalive_s=settings.keepalive_s,
    )


def _log_watch(parts: Runtime, registry: Registry) -> LogWatch:
    watch = LogWatch(parts.log, registry.pools, parts.clock)
    parts.metrics.watch(Metric.LOG_CUT, lambda: watch.partitions)
    parts.health.report("log_cut", lambda: watch.partitions)
    return watch


def _scheduler(settings: GatewaySettings, services: Services, views: Views, clock: Clock) -> ReconciliationScheduler:
    every = timedelta(seconds=settings.reconcile_every_s or 0.0)
    return ReconciliationScheduler(
        reads=services.reads,
        reconciliation=services.reconciliation,
        views=views,
        tenants=lambda: services.logins.tenants,
        schedule=Schedule(every, timedelta(seconds=settings.reconcile_for_s)),
        clock=clock,
    )
