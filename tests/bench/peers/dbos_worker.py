"""DBOS: a workflow for each job, an async step for each step. Environment: BENCH_DATABASE, BENCH_SOCKET.

A worker that is started again takes up at its launch what its predecessor left, since both are the executor `local`.
"""

import asyncio
import os

from asked import serve
from dbos import DBOS, SetWorkflowID
from note import Job, note


@DBOS.step()
async def step_of(job: str, step: int, slow: bool) -> dict[str, str]:
    """One step."""
    return await note(job, step, slow)


@DBOS.workflow()
async def job_of(job: Job) -> None:
    """One job."""
    steps = (step_of(job["job"], step, job["slow"]) for step in range(job["steps"]))
    if job["parallel"]:
        await asyncio.gather(*steps)
        return
    for step in steps:
        await step


async def run(job: Job) -> None:
    """Start it, or, where it was started before, wait for its end."""
    with SetWorkflowID(job["job"]):
        handle = await DBOS.start_workflow_async(job_of, job)
    await handle.get_result(polling_interval_sec=0.05)


async def main() -> None:
    """Launch, then take jobs."""
    DBOS(
        config={
            "name": "bench",
            "system_database_url": os.environ["BENCH_DATABASE"],
            "application_version": "1",
            "executor_id": "local",
            "log_level": "ERROR",
        }
    )
    DBOS.launch()
    await serve(os.environ["BENCH_SOCKET"], run)


if __name__ == "__main__":
    asyncio.run(main())
