"""An executor's partition that runs a workflow's bodies, with a ledger that grants and reopens all that it may."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from aetheris.protocol.base.keys import idempotency_key
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.rules import apply
from aetheris.protocol.fold.state import JobState, KeyStatus, create_job
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import RegistryEntry, ToolGrant
from aetheris.protocol.planning.schemas import pin_of
from aetheris.runtime.redis.effects import EffectStore
from aetheris.sdk import Failed, ToolContext, tool
from aetheris.sdk.tools import AnyTool
from aetheris.sdk.workflows.bodies import BodyStart, CallSettled
from aetheris.sdk.workflows.declaration import AnyWorkflow
from aetheris.sdk.workflows.errors import StopReason
from aetheris.sdk.workflows.local_bodies import LocalBodies
from aetheris.sdk.workflows.local_calls import called
from aetheris.tool_executor.workflows import Workflows
from tests.testkit.executor_bench import HandlerBench
from tests.testkit.histories import JOB, created, planned

PARENT = "p"
EFFECTS: Counter[tuple[str, str]] = Counter()
"""What took effect: tool and external key."""


@tool(effect_class="idempotent")
async def do(ctx: ToolContext, n: int) -> int:
    """An effect."""
    EFFECTS["do", ctx.external_key] += 1
    return n


@tool(effect_class="pure")
async def read(n: int) -> int:
    """None."""
    return 10 * n


@tool(effect_class="idempotent")
async def fails(n: int) -> int:
    """Certainly none."""
    raise Failed(f"no {n}")


RELEASE = [asyncio.Event()]
"""Until then a held call holds."""


@tool(effect_class="idempotent")
async def held(n: int) -> int:
    """Nothing, but late."""
    await RELEASE[0].wait()
    return n


LARGE = 100 * 1024


class Page(BaseModel):
    """What a page is; its body is longer than what a record holds."""

    body: str
    links: list[str]


@tool(effect_class="pure")
async def page(name: str) -> Page:
    """A large result."""
    return Page(body=name * LARGE, links=[name, f"{name}2"])


@tool(effect_class="idempotent")
async def keep(ctx: ToolContext, text: str, name: str = "") -> str:
    """An effect of a large argument; what it was."""
    EFFECTS["keep", ctx.external_key] += 1
    return f"{name}{text[:1]} {len(text)}"


@tool(effect_class="pure")
async def describe(page: Page) -> int:
    """Of a page, all of it."""
    return len(page.body) + len(page.links)


TOOLS: Sequence[AnyTool] = (do, read, fails, held, page, keep, describe)


class _Local:
    """Bodies in this process, as an executor asks for them."""

    def __init__(self, workflow: AnyWorkflow, workflows: Workflows) -> None:
        self._bodies = LocalBodies([workflow], workflows.heard)
        self.told: list[str] = []
        self.results: list[Any] = []
        """What it was told that calls came to."""
        self.stopped: list[StopReason] = []

    async def begin(self, start: BodyStart, history: Sequence[CallSettled] = ()) -> None:
        self._note(history)
        self._bodies.begin(start, history)

    def settled(self, body: str, settled: Sequence[CallSettled]) -> None:
        self._note(settled)
        self._bodies.settled(body, settled)

    def _note(self, settled: Sequence[CallSettled]) -> None:
        self.told += [one.node_id for one in settled]
        self.results += [one.result for one in settled]

    def stop(self, body: str, why: StopReason) -> None:
        self.stopped.append(why)
        self._bodies.stop(body, why)

    async def make(self, body: str, node_id: str) -> Any:
        function = self._bodies.local(body, node_id)
        assert function is not None
        return await called(function)


class BodyBench(HandlerBench):
    """A job whose node `p` is a workflow, in one life of an executor."""

    def __init__(
        self,
        folder: Path,
        workflow: AnyWorkflow,
        licensed: Sequence[str] = ("do", "read", "fails"),
        idle_s: float = 30.0,
        store: EffectStore | None = None,
    ) -> None:
        known = Workflows(idle_s)
        self.local = _Local(workflow, known)
        known.add(self.local, {**workflow.registry_entry(), "ref": workflow.ref})
        self.tools = (*TOOLS, *known.tools())
        super().__init__(folder, store=store, tools=self.tools, workflows=known)
        self.workflow = workflow
        self.licence = dict.fromkeys(licensed, "rule")
        self._granted: set[tuple[str, int, str]] = set()
        self.appended: list[Sequence[Any]] = []

    async def append(self, groups: Sequence[Any]) -> None:
        self.appended.append([one for group in groups for one in group])
        await super().append(groups)

    @property
    def job(self) -> JobState:
        """As the log says."""
        first, *rest = self.events()
        assert isinstance(first, ev.JobCreated)
        job = create_job(first, 0)
        for offset, event in enumerate(rest, 1):
            apply(job, event, offset)
        return job

    async def born(self, **args: Any) -> None:
        """The job, with its plan."""
        entries = [RegistryEntry.model_validate(one.registry_entry()) for one in (self.workflow, *self.tools)]
        pins = {one.name: pin_of(one).model_dump(mode="json") for one in entries}
        node = {"id": PARENT, "kind": "workflow", "tool": self.workflow.name, "args": args}
        plan = planned({"tools": pins, "nodes": [node]}).model_copy(update={"bodies": True})
        await self.write(created(), plan)
        await self.read()

    @property
    def body(self) -> str:
        """The first that has begun."""
        return next(one.invocation_id for one in self.events() if isinstance(one, ev.ToolInvocationStarted))

    async def grants(self) -> bool:
        """Grant, once, whatever may start by itself no more; whether there was anything."""
        job, found = self.job, False
        if job.terminal is not None:
            return False
        for node_id, entries in job.entries.items():
            node = entries[-1].node
            call = entries[-1].call
            key = idempotency_key(JOB, node_id, node.tool_name, node.args) if call is None else call.key
            state = job.keys.get(key)
            by = call.invocation_id if call is not None else ""
            status, token = (state.status, state.fencing_token) if state is not None else (KeyStatus.NONE, 1)
            if status not in (KeyStatus.NONE, KeyStatus.REOPENED) or (key, token, by) in self._granted:
                continue
            if node_id == PARENT and self._sleeps(job):
                continue
            self._granted.add((key, token, by))
            found = True
            granted = ToolGrant(
                job_id=JOB,
                birth=0,
                as_of=len(self.records) - 1,
                revision=0,
                plan_hash=job.plan_hash,
                nodes=(node_id,),
                idempotency_key=key,
                token=token,
                lease_id="l",
                deadline_s=5,
                licence=self.licence if node_id == PARENT else None,
            )
            await self.handler.handle(
                {Topic.TOOLS_GRANTS: [self._record(self._draft(Topic.TOOLS_GRANTS, granted), len(self._granted))]}
            )
        return found

    def _sleeps(self, job: JobState) -> bool:
        ends = [one for one in self.events() if isinstance(one, ev.ToolInvocationFinished) and one.node_id == PARENT]
        until = ends[-1].until if ends else None
        return until is not None and not any(job.settled_key(one) for one in until)

    async def until_still(self) -> None:
        """Grant and read until nothing moves; a body that waits does not move."""
        still = 0
        while still < 3:
            moved = await self.grants()
            if self._read < len(self.records):
                moved = True
                await self.read()
            for _ in range(20):
                await asyncio.sleep(0)
            if self._read == len(self.records) and not moved:
                await asyncio.sleep(0.003)  # what waits for company waits no longer
                moved = self._read < len(self.records)
            still = 0 if moved else still + 1

    async def take_over(self, records: list[Any]) -> None:
        """A life that begins with this log, and shares it: what was under way in the one before is reopened."""
        self.records = records
        self._read = len(self.records)
        self.handler.fold(self.records)
        await self.handler.learn()
        await self.handler.restored()
        for key, state in self.job.keys.items():
            if state.status is KeyStatus.STARTED and state.current_invocation is not None:
                await self.write(
                    ev.InvocationReopened(
                        job_id=JOB,
                        node_id=state.node_id,
                        idempotency_key=key,
                        invocation_id=state.current_invocation,
                        next_token=state.fencing_token + 1,
                        by="policy",
                    )
                )

    async def stop_all(self) -> None:
        """As a partition is given back."""
        await self.handler.close()

    def outcome(self) -> Mapping[str, Any]:
        """Of the workflow: how its key stands."""
        job = self.job
        (key,) = job.node_keys[PARENT]
        state = job.keys[key]
        return {"status": state.status, "outcome": state.outcome, "result": state.result, "reason": state.reason}
