"""The gateway's composition root: everything is built here, in the order in which it depends on each other."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

import httpx

from aetheris.gateway.api import build_api
from aetheris.gateway.core.reconciling import Schedule
from aetheris.gateway.courses import Courses
from aetheris.gateway.effect_index import EffectIndex
from aetheris.gateway.feed import Feed
from aetheris.gateway.handlers import Jobs
from aetheris.gateway.index import Index
from aetheris.gateway.registry import Registry
from aetheris.gateway.rounds import Rounds
from aetheris.gateway.settings import GatewaySettings
from aetheris.gateway.tokens import Tokens
from aetheris.gateway.untaken import Untaken
from aetheris.gateway.views import Views
from aetheris.gateway.workers import Workers
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.planning.schemas import check_schema
from aetheris.runtime.log.history import History
from aetheris.runtime.log.table import Table
from aetheris.runtime.process.http import HttpServer
from aetheris.runtime.process.lifecycle import freeze_memory
from aetheris.runtime.process.runtime import runtime

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
        TokensFileInvalid: the file of tokens can't be used.
    """
    tokens = Tokens.load(settings.tokens_file)
    async with (
        runtime(settings, "gateway", stop) as parts,
        httpx.AsyncClient(base_url=settings.verifier_url, timeout=settings.request_s, trust_env=False) as verifier,
        asyncio.TaskGroup() as tasks,
    ):
        parts.health.add("views", lambda: "the registry is being read")  # until `_http` knows better: nothing listens
        views = Views(parts.redis)
        index = Index(parts.log, views, parts.clock)
        feed = Feed(parts.log, parts.clock, settings.lazy_pause_s)
        history = History(parts.log, readers=READERS)
        table = Table(parts.log, Topic.TOOLS_REGISTRY)
        lives = Table(parts.log, Topic.WORKERS)
        jobs = Jobs(
            log=parts.log,
            history=history,
            appender=parts.appender,
            feed=feed,
            index=index,
            views=views,
            untaken=Untaken(parts.log),
            registry=Registry(table),
            verifier=verifier,
            clock=parts.clock,
            telemetry=parts.telemetry,
            answer_s=settings.answer_s,
            request_s=settings.request_s,
        )
        workers = Workers(lives, jobs, parts.appender, parts.clock, settings.answer_s)
        await feed.start()
        await asyncio.gather(table.load(), lives.load())
        effects = EffectIndex(parts.log, parts.redis, settings.request_s / 2)
        parts.health.add("views", index.unready)
        courses = Courses(jobs, effects, parts.blobs)
        api = build_api(jobs, courses, workers, tokens=tokens, health=parts.health, keepalive_s=settings.keepalive_s)
        http = HttpServer(api, settings.listen, settings.http_port)
        following = [
            tasks.create_task(part)
            for part in (feed.run(), index.run(), table.run(), lives.run(), parts.bell.listen("gateway", feed.wake))
        ]
        if settings.reconcile_every_s is not None:
            schedule = Schedule(
                timedelta(seconds=settings.reconcile_every_s), timedelta(seconds=settings.reconcile_for_s)
            )
            rounds = Rounds(jobs, views, tokens.tenants, schedule, parts.clock)
            following.append(tasks.create_task(rounds.run()))
        serving = tasks.create_task(http.run())
        await http.listening()
        try:
            yield http
        finally:
            feed.close()
            http.stop()
            await asyncio.wait({serving})
            for task in following:
                task.cancel()
            await effects.close()
            await history.close()
