"""Jobs asked for over a unix socket, for peers that are a library in the worker's own process.

A line of JSON asks for a job (note.Job), a line with its name says that it has completed. Who asks again for a job that
was begun by a worker since killed is answered once it has completed.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable

from note import Job

Run = Callable[[Job], Awaitable[None]]


async def serve(path: str, run: Run) -> None:
    """Take jobs until the process ends."""

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        running: set[asyncio.Task[None]] = set()
        while line := await reader.readline():
            task = asyncio.create_task(_answer(run, json.loads(line), writer))
            running.add(task)
            task.add_done_callback(running.discard)

    server = await asyncio.start_unix_server(on_connection, path)
    await server.serve_forever()


async def _answer(run: Run, job: Job, writer: asyncio.StreamWriter) -> None:
    try:
        await run(job)
        ended = {"job": job["job"]}
    except Exception as error:  # noqa: BLE001  told to who asked
        ended = {"job": job["job"], "error": f"{type(error).__name__}: {error}"}
    writer.write(json.dumps(ended).encode() + b"\n")
