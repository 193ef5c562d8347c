"""Jobs that completed, from Kafka into SQLite, exactly once: `python topics/completed.py KAFKA DATABASE`."""

import asyncio
import sqlite3
import sys

from aetheris.sdk.subscription import subscribe

TABLES = """
CREATE TABLE IF NOT EXISTS position (partition INTEGER PRIMARY KEY, next INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS completed (job_id TEXT PRIMARY KEY, payload BLOB NOT NULL);
"""


async def copy(kafka: str, database: str) -> None:
    """Go on where the rows end, until now."""
    rows = sqlite3.connect(database)
    rows.executescript(TABLES)
    start = dict(rows.execute("SELECT partition, next FROM position"))
    async with subscribe(kafka, start=start or "beginning", types={"job_completed"}) as subscription:
        async for one in subscription.events(until_now=True):
            with rows:  # one transaction
                rows.execute("INSERT OR IGNORE INTO completed VALUES (?, ?)", (one.job_id, one.value))
                rows.execute("INSERT OR REPLACE INTO position VALUES (?, ?)", (one.partition, one.offset + 1))
    for job_id, payload in rows.execute("SELECT job_id, payload FROM completed"):
        sys.stdout.write(f"{job_id} {payload.decode()}\n")
    rows.close()


if __name__ == "__main__":
    asyncio.run(copy(*sys.argv[1:]))
