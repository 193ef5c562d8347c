"""The executor's composition root: everything is built here, in the order in which it depends on each other."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from aetheris.protocol.base.sealed import REACH
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.revocations import Revocations
from aetheris.protocol.messages.commands import ExecutorTools, ModelEntry, RegistryEntry
from aetheris.protocol.messages.registry_lines import DEFAULT_POOL
from aetheris.protocol.tables.freeze_orders import FreezeOrders
from aetheris.protocol.tables.policy_activations import PolicyActivations
from aetheris.protocol.tables.rules_orders import RulesOrders
from aetheris.protocol.tables.signed_messages import SignedMessages
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.base.refusal import StartRefused, ToolsRefused
from aetheris.runtime.keys.records import RecordKeys
from aetheris.runtime.keys.revocations import load_revocations
from aetheris.runtime.log.order_table import OrderTable
from aetheris.runtime.process.crash import crash_points
from aetheris.runtime.process.health import Health
from aetheris.runtime.process.installation import worker_name
from aetheris.runtime.process.lifecycle import freeze_memory
from aetheris.runtime.process.runtime import Runtime, runtime
from aetheris.runtime.process.subject_store import hiding_of
from aetheris.runtime.redis.effects import EffectStore
from aetheris.runtime.redis.leases import Leases
from aetheris.runtime.telemetry.metrics import Metric, Metrics
from aetheris.runtime.telemetry.tracer import Telemetry
from aetheris.runtime.worker.loop import Cadence, Inputs, PartitionWorker
from aetheris.runtime.worker.unsigned import HeardMessages
from aetheris.sdk.isolation import kernel
from aetheris.sdk.isolation.programs import close_to_programs
from aetheris.sdk.isolation.tools import all_tools, imported, readable_credentials
from aetheris.sdk.loader import Toolbox
from aetheris.sdk.remains import of_the_engine, watch
from aetheris.sdk.threads import THREADS
from aetheris.sdk.tool_output import ToolOutput
from aetheris.tool_executor import lock
from aetheris.tool_executor.core.tries import Worker
from aetheris.tool_executor.core.unread_tries import UnreadTries
from aetheris.tool_executor.dependencies import ExecutorDependencies, Spawn
from aetheris.tool_executor.effect_writer import EffectWriter
from aetheris.tool_executor.handlers import ExecutorHandler
from aetheris.tool_executor.heartbeat import Heartbeat
from aetheris.tool_executor.hidden_calls import HiddenCalls
from aetheris.tool_executor.identity import living
from aetheris.tool_executor.life_secrets import LifeSecrets
from aetheris.tool_executor.mcp_servers import mcp_tools
from aetheris.tool_executor.outdated_grants import OutdatedGrants
from aetheris.tool_executor.performer import Performer, Scribe
from aetheris.tool_executor.registration import register, tell_served
from aetheris.tool_executor.secret_store import Secrets, redact_output, secrets_of
from aetheris.tool_executor.settings import ExecutorSettings
from aetheris.tool_executor.slots import Slots
from aetheris.tool_executor.tool_calls import Calls, report_tool_output
from aetheris.tool_executor.workflows import Workflows, hosted_workflows

if TYPE_CHECKING:
    from aetheris.tool_executor.model_caller import ModelCaller

_log = structlog.get_logger(__name__)

NAME = "tool_executor"
GROUP = "aetheris.tool_executor"

INPUTS = Inputs(
    commands={Topic.TOOLS_GRANTS: Cadence.EAGER},
    tables=(Topic.FREEZES, Topic.POLICIES),
    authority_cadence=Cadence.OWN,
    quarantines=frozenset({Topic.TOOLS_GRANTS}),
    made_again=frozenset({Topic.TOOLS_GRANTS}),
    reach=REACH,
    checkpoints=Topic.LEDGER_CHECKPOINTS,
)


class ModelsRefused(StartRefused):
    """The models of AETHERIS_MODELS can't be asked: mend it, or unset it."""

    code = "invalid_models"


async def serve(settings: ExecutorSettings, stop: asyncio.Event, toolbox: Toolbox | None = None) -> None:
    """Execute until `stop` is set, then let running tools finish.

    Args:
        toolbox: instead of what the settings name.

    Raises:
        BrokerRefused: the brokers could lose what was acknowledged.
        ModelsRefused: models are named, and can't be used.
        KmsRefused: what wraps the keys of subjects can't be used.
        SecretsFileInvalid, McpServersRefused: the file of secrets, or of MCP servers, can't be used.
        SettingInvalid: AETHERIS_WORKER_ID is no name.
        ToolsRefused: a module of tools can't be loaded.
        WorkerIdTaken: another process lives under this name, or may.
        Exception: whatever escaped; the next process restores from the log.
    """
    kernel.unreadable()
    watch()
    clock = SystemClock()
    secrets = secrets_of(settings.secrets)
    if settings.secrets is not None:
        redact_output(secrets)
    is_named = toolbox is None
    here = imported(settings, ToolsRefused) if toolbox is None else toolbox
    close_to_programs(settings.credential_files)
    if readable := readable_credentials(settings):
        _log.warning("tools in processes of their own can read this service's credentials", files=list(readable))
    name = worker_name(settings)
    async with AsyncExitStack() as closing:
        with of_the_engine():
            on = await closing.enter_async_context(runtime(settings, NAME, stop))
            report = partial(_unready, on.health)
            report("has not said yet who it is")
            held = await lock.taken(settings.data, name, clock=clock, stop=stop, report=report)
        output = ToolOutput(report_tool_output, lambda: secrets.redactor, reported=settings.tool_output)
        own = await closing.enter_async_context(all_tools(settings, here, output.relay, ToolsRefused))
        toolbox = own.with_others(await closing.enter_async_context(mcp_tools(settings.mcp, secrets)))
        workflows = Workflows()
        if is_named:
            hosted = hosted_workflows(settings, settings.workflow_idle_s, imported=here is not None)
            workflows = await closing.enter_async_context(hosted)
        toolbox = toolbox.with_others(workflows.tools())
        closing.callback(_tools_spans(on.telemetry, secrets))
        THREADS.most_left, THREADS.refused = settings.stuck_threads, partial(_report_refused, on.metrics)
        models = _asking(settings.models, toolbox)
        closing.enter_context(output.installed(own))
        on.watchdog.name({code: one.key for one in own if (code := getattr(one.function, "__code__", None))})
        calls = Calls(toolbox, clock, secrets, models, output)
        revocations = load_revocations(settings.revocations, settings.installation)
        heard = HeardMessages(SignedMessages(settings.installation, revocations), on.metrics)
        alive = living(
            name,
            held,
            LifeSecrets(settings.data, name),
            log=on.log,
            appender=on.appender,
            clock=clock,
            is_theirs=heard.line_counts,
        )
        me = await closing.enter_async_context(alive)
        entries = [*calls.registry(), *workflows.registry()]
        await register(on.appender, clock, entries)
        await tell_served(on.appender, clock, _served(me, settings.pool, entries))
        heartbeat = Heartbeat(Leases(on.redis), settings.lease_ttl_s, clock, settings.lease_patience_s)
        async with invocations(settings.tool_drain_s, heartbeat.run(settings.redis, settings.prefix)) as spawn:
            if models is not None:
                closing.push_async_callback(models.close)
                spawn(models.prepare())
            worker = executor(
                on,
                settings,
                calls,
                hidden=HiddenCalls(hiding_of(settings, on.blobs, clock), on.traffic),
                heartbeat=heartbeat,
                me=me,
                spawn=spawn,
                revocations=revocations,
                workflows=workflows,
            )
            worker.show(on.health, on.metrics)
            heartbeat.show(on.metrics)
            freeze_memory()
            await worker.run(stop)


def _report_refused(metrics: Metrics, tool: str, left: Mapping[str, int]) -> None:
    _log.error("a call is refused: threads of calls that timed out still run", tool=tool, running=dict(left))
    metrics.count(Metric.TOOL_REFUSED, tool=tool)


def _served(me: Worker, pool: str, entries: Sequence[RegistryEntry | ModelEntry]) -> ExecutorTools:
    hashes = {one.key: one.schema_hash if isinstance(one, RegistryEntry) else "" for one in entries}
    return ExecutorTools(worker_id=me.worker_id, incarnation=me.incarnation, pool=pool, serves=hashes)


def _tools_spans(telemetry: Telemetry, secrets: Secrets) -> Callable[[], None]:
    """Take what tools' own instrumentation records, without secrets; what sends the rest at the end."""
    if not telemetry.on:
        return lambda: None
    from aetheris.runtime.telemetry.tool_spans import provide  # noqa: PLC0415  the SDK's tracer

    with of_the_engine():  # the thread that sends
        return provide(NAME, partial(_redacted, secrets))


def _redacted(secrets: Secrets, text: str) -> str:
    """Without the secrets as they are now."""
    return secrets.redactor.text(text)


def _unready(health: Health, why: str) -> None:
    health.add("worker", lambda: why)


def _asking(entries: Sequence[str], toolbox: Toolbox) -> "ModelCaller | None":
    """What asks models, where there are any: nobody else pays for its imports.

    Raises:
        ModelsRefused: they are named, and can't be used.
    """
    if not entries:
        return None
    try:
        from aetheris.tool_executor.model_caller import asking  # noqa: PLC0415
    except ModuleNotFoundError:
        raise ModelsRefused("AETHERIS_MODELS is set: install aetheris-tool-executor[models]") from None
    try:
        return asking(entries, toolbox)
    except ValueError as error:
        raise ModelsRefused(f"AETHERIS_MODELS: {error}") from None


def executor(
    on: Runtime,
    settings: ExecutorSettings,
    calls: Calls,
    *,
    hidden: HiddenCalls,
    heartbeat: Heartbeat,
    me: Worker,
    spawn: Spawn,
    revocations: Revocations,
    workflows: Workflows,
) -> PartitionWorker:
    """The worker with an executor in each of its partitions."""
    crash = crash_points(os.environ, settings.data)
    scribe = Scribe(on.clock, on.telemetry)
    store = EffectStore(on.redis, settings.effect_ttl_s)
    performer = Performer(
        calls=calls,
        hidden=hidden,
        effects=EffectWriter(store, on.clock, settings.effect_deadline_s, settings.effect_pause_s),
        blobs=on.blobs,
        traffic=on.traffic,
        scribe=scribe,
        telemetry=on.telemetry,
        metrics=on.metrics,
        clock=on.clock,
        crash=crash,
    )
    slots = Slots(settings.running_tools, spawn)
    outdated = OutdatedGrants(on.metrics)
    on.health.report("grants_dropped", outdated.reported)

    def handler(partition: int) -> ExecutorHandler:
        return ExecutorHandler(
            ExecutorDependencies(
                worker=me,
                appender=on.appender,
                withheld=on.withheld,
                calls=calls,
                performer=performer,
                scribe=scribe,
                metrics=on.metrics,
                slots=slots,
                outdated=outdated,
                unread_tries=UnreadTries(),
                heartbeat=heartbeat,
                crash=crash,
                wake_up=on.wake_up,
                freezes=freezes,
                policies=policies,
                rules=rules,
                spawn=spawn,
                quarantine=worker.quarantine,
                wake=worker.wake,
                installation=settings.installation,
                revocations=revocations,
                workflows=workflows,
                pool=settings.pool,
            ),
            partition,
        )

    group = GROUP if settings.pool == DEFAULT_POOL else f"{GROUP}.{settings.pool}"
    keys = RecordKeys(frozenset(settings.installation), revocations=revocations)
    worker = PartitionWorker.of(on, INPUTS, handler, group=group, keys=keys)
    heard = HeardMessages(SignedMessages(settings.installation), on.metrics)
    heard.follow(worker.tables[Topic.FREEZES], worker.tables[Topic.POLICIES])
    on.health.report("other_roots", heard.other_roots)
    freezes = OrderTable(worker.tables[Topic.FREEZES], FreezeOrders(), heard.line_counts)
    policies = OrderTable(worker.tables[Topic.POLICIES], PolicyActivations(), heard.line_counts)
    rules = OrderTable(worker.tables[Topic.POLICIES], RulesOrders(), heard.line_counts)
    return worker


@asynccontextmanager
async def invocations(drain_s: float, heartbeat: Coroutine[Any, Any, None]) -> AsyncGenerator[Spawn]:
    """Tries live as long as the process: what escapes one ends it; at the end they have `drain_s` to finish."""
    running: set[asyncio.Task[None]] = set()
    async with asyncio.TaskGroup() as tasks:

        def spawn(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
            task = tasks.create_task(work)
            running.add(task)
            task.add_done_callback(running.discard)
            return task

        beating = tasks.create_task(heartbeat)
        yield spawn
        if running:
            await asyncio.wait(running, timeout=drain_s)
        for task in (*running, beating):
            task.cancel()
