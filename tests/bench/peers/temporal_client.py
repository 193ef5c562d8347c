"""Temporal: starts a workflow for each job that is asked for. Environment: BENCH_TEMPORAL, BENCH_SOCKET."""

import asyncio
import os

from asked import serve
from note import Job
from temporal_worker import QUEUE, JobOf
from temporalio.client import Client


async def main() -> None:
    """Connect, then take jobs."""
    client = await Client.connect(os.environ["BENCH_TEMPORAL"])

    async def run(job: Job) -> None:
        await client.execute_workflow(JobOf.run, job, id=job["job"], task_queue=QUEUE)

    await serve(os.environ["BENCH_SOCKET"], run)


if __name__ == "__main__":
    asyncio.run(main())
