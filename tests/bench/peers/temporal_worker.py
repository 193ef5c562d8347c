"""Temporal: a workflow for each job, an activity or a local activity for each step.

Environment: BENCH_TEMPORAL (host:port), BENCH_LOCAL (1: local activities).
"""

import asyncio
import os
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

with workflow.unsafe.imports_passed_through():
    from note import Job, note

QUEUE = "bench"
STEP_WITHIN = timedelta(seconds=5)
"""Temporal has no other sign that a worker was killed in the middle of an activity."""
_LOCAL = os.environ["BENCH_LOCAL"] == "1"


@activity.defn
async def step_of(job: str, step: int, slow: bool) -> dict[str, str]:
    """One step."""
    return await note(job, step, slow)


@workflow.defn
class JobOf:
    """One job."""

    @workflow.run
    async def run(self, job: Job) -> None:
        """All its steps."""
        if job["parallel"]:
            await asyncio.gather(*(self._step(job, step) for step in range(job["steps"])))
            return
        for step in range(job["steps"]):
            await self._step(job, step)

    async def _step(self, job: Job, step: int) -> None:
        execute = workflow.execute_local_activity if _LOCAL else workflow.execute_activity
        await execute(step_of, args=[job["job"], step, job["slow"]], start_to_close_timeout=STEP_WITHIN)


async def main() -> None:
    """Take work until the process ends."""
    client = await Client.connect(os.environ["BENCH_TEMPORAL"])
    worker = Worker(
        client,
        task_queue=QUEUE,
        workflows=[JobOf],
        activities=[step_of],
        workflow_runner=UnsandboxedWorkflowRunner(),  # faster than the sandbox
        max_concurrent_activities=200,
        max_concurrent_local_activities=200,
        max_concurrent_workflow_tasks=200,
    )
    await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
