"""Aetheris as an MCP server: for agents that live elsewhere, to have jobs done and checked (docs/mcp.md)."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

from aetheris.cli.mcp_submissions import NameTaken, Submissions
from aetheris.protocol.base.canonical import InvalidArgs
from aetheris.protocol.base.ids import NAME, InvalidName, check_name
from aetheris.sdk.client import ApiError, AsyncClient, Goal
from aetheris.sdk.equal_calls import NoSuchCall, PersonalTool

LONGEST_WAIT_S = 60.0
_LOOK_AGAIN_S = 0.25
_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_SAME_TWICE = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True)

INSTRUCTIONS = """Aetheris runs jobs whose tool calls take effect at most once, through any crash. Submit a plan, watch
it until it has ended or waits for a human, then verify it. A submission that means the same as an earlier one is the
same job, and is not run again unless it surely took no effect. What waits for a human is not yours to approve, unless
an approve tool is offered to you."""

JobId = Annotated[str, Field(description="The job's id, as submit gave it")]


class GoalSubmission(BaseModel):
    """A goal for a model of Aetheris to plan for."""

    goal: str = Field(max_length=10_000)
    tools: tuple[str, ...] = Field(description="Names or patterns of the tools that may be called")
    model: str | None = None


Name = Annotated[
    str, Field(min_length=1, max_length=200, description="Your own name for this job, and for no other content")
]
Plan = Annotated[dict[str, Any] | None, Field(description='{"nodes": […]}; `tools` has the names')]
Wanted = Annotated[GoalSubmission | None, Field(description="Instead of a plan")]
RepeatOf = Annotated[
    str | None,
    Field(pattern=NAME.pattern, description="Leave it out. An equal, completed job, to do it once more on purpose"),
]


def server(
    client: AsyncClient, approver: AsyncClient | None = None, *, run: str = "", repeats: bool = False
) -> MCPServer[Any]:
    """The server.

    Args:
        approver: a client in the name of whoever may approve; None: nobody does here.
        run: in which equal submissions are one, also when the server is started again.
        repeats: the agent may do the same again on purpose.
    """
    made: MCPServer[Any] = MCPServer("aetheris", instructions=INSTRUCTIONS, log_level="CRITICAL")
    submissions = Submissions(client, run)
    (_let_repeat if repeats else _let_submit)(made, submissions)

    @made.tool(annotations=_READS)
    async def watch(job_id: JobId, wait_s: Annotated[float, Field(ge=0, le=LONGEST_WAIT_S)] = 20.0) -> dict[str, Any]:
        """Where a job stands, and why: at once if it has ended or waits, else after wait_s seconds at the latest.

        A step that waits for a human's answer has the `request_id` of its request.
        """
        until_s = time.monotonic() + wait_s
        async with _told(job_id):
            job = await client.job(job_id)
            while not job.ended and job.status != "waiting" and time.monotonic() < until_s:
                await asyncio.sleep(_LOOK_AGAIN_S)
                job = await client.job(job_id)
            return job.model_dump(mode="json")

    @made.tool(annotations=_READS)
    async def verify(job_id: JobId) -> dict[str, Any]:
        """The four proofs of a job, its seal, and each rule that its stream breaks."""
        async with _told(job_id):
            return await client.verify(job_id)

    @made.tool(annotations=_READS)
    async def tools() -> dict[str, Any]:
        """The tools that a plan may name, with their arguments' schemas."""
        async with _told():
            return {"tools": await client.tools()}

    @made.tool(annotations=_READS)
    async def approvals() -> dict[str, Any]:
        """What waits for a human, of all jobs, oldest first; what has just begun to wait may be missing."""
        async with _told():
            return (await client.approvals()).model_dump(mode="json")

    if approver is not None:
        _let_approve(made, approver)
    return made


def _let_submit(made: MCPServer[Any], submissions: Submissions) -> None:
    @made.tool(annotations=_SAME_TWICE)
    async def submit(
        idempotency_key: Name, plan: Plan = None, goal: Wanted = None, options: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Submit a job: a plan, or a goal. What means the same as an earlier submission is that job."""
        async with _told():
            return await submissions.submit(idempotency_key, _asked(plan, goal), options)


def _let_repeat(made: MCPServer[Any], submissions: Submissions) -> None:
    @made.tool(annotations=_SAME_TWICE)
    async def submit(
        idempotency_key: Name,
        plan: Plan = None,
        goal: Wanted = None,
        options: dict[str, Any] | None = None,
        repeat_of: RepeatOf = None,
    ) -> dict[str, Any]:
        """Submit a job: a plan, or a goal. What means the same as an earlier submission is that job."""
        async with _told():
            return await submissions.submit(idempotency_key, _asked(plan, goal), options, repeat_of)


def _asked(plan: dict[str, Any] | None, goal: GoalSubmission | None) -> Mapping[str, Any] | Goal:
    if (plan is None) is (goal is None):
        raise ToolError("bad_request: either plan or goal")
    return plan or {} if goal is None else Goal(goal=goal.goal, tools=goal.tools, model=goal.model)


def _let_approve(made: MCPServer[Any], approver: AsyncClient) -> None:
    @made.tool(annotations=_SAME_TWICE)
    async def approve(
        request_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,200}$")],
        action: Literal["approve", "reject"],
        comment: Annotated[str, Field(min_length=1, max_length=2_000, description="Why")],
    ) -> dict[str, Any]:
        """Say yes or no to exactly what a request shows. A repeat of the same answer changes nothing."""
        async with _told():
            return (await approver.respond(request_id, action, comment=comment)).model_dump(mode="json")


@asynccontextmanager
async def _told(job_id: str | None = None) -> AsyncGenerator[None]:
    """What the gateway refuses, or can't answer, in its own words."""
    try:
        if job_id is not None:
            check_name(job_id, "job_id")
        yield
    except (InvalidName, InvalidArgs) as refused:
        raise ToolError(f"bad_request: {refused}") from None
    except NoSuchCall:
        raise ToolError("conflict: repeat_of is no completed job that means the same; leave it out") from None
    except PersonalTool as refused:
        raise ToolError(f"{refused.code}: {refused}") from None
    except NameTaken:
        raise ToolError("conflict: another submission has this idempotency_key") from None
    except ApiError as refused:
        raise ToolError(f"{refused.code}: {refused.message}") from None
