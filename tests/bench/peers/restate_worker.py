"""Restate: the service whose handler is a job; each step is a `ctx.run`. Environment: BENCH_PORT."""

import asyncio
import os

import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config
from note import Job, note

bench = restate.Service("bench")


@bench.handler()
async def run(ctx: restate.Context, job: Job) -> None:
    """One job."""
    steps = range(job["steps"])
    if job["parallel"]:
        await restate.gather(*(_step(ctx, job, step) for step in steps))
        return
    for step in steps:
        await _step(ctx, job, step)


def _step(ctx: restate.Context, job: Job, step: int) -> restate.RestateDurableFuture[dict[str, str]]:
    return ctx.run_typed("note", note, restate.RunOptions(), job["job"], step, job["slow"])


def main() -> None:
    """Serve over HTTP/2, in this one process."""
    config = Config()
    config.bind = [f"127.0.0.1:{os.environ['BENCH_PORT']}"]
    config.h2_max_concurrent_streams = 1000  # a stream for each job in flight
    asyncio.run(serve(restate.app([bench]), config))


if __name__ == "__main__":
    main()
