"""How long queries over many jobs in Parquet take: `python -m tests.bench.query --jobs 100000 --to FOLDER`.

Their streams are made here, and sealed; they are judged and written by the archiver's own code.
Neither Kafka nor a gateway is asked.
"""

import argparse
import asyncio
import time
from pathlib import Path

from aetheris.cli.query_tables import Tables
from aetheris.views.query_rows import QueryRows
from tests.testkit.written_rows import written

QUERIES = {
    "count": "SELECT count(*) FROM jobs",
    "one job": "SELECT * FROM events WHERE job_id = (SELECT max(job_id) FROM jobs) ORDER BY seq",
    "an external id": "SELECT job_id, node_id FROM effects WHERE external_id = 're_4242'",
    "paid by day": """
        SELECT day, count(*), sum((args ->> '$.amount')::BIGINT) FROM steps
        WHERE tool = 'refund' AND state = 'completed' GROUP BY day ORDER BY day""",
    "why they fail": "SELECT tool, reason, count(*) FROM steps WHERE state = 'failed' GROUP BY ALL",
    "how long they take": """
        SELECT quantile_cont(epoch(ended_at) - epoch(created_at), [0.5, 0.99]) FROM jobs WHERE status = 'completed'""",
    "every event": "SELECT type, count(*), sum(length(payload)) FROM events GROUP BY type ORDER BY 2 DESC",
}


def main() -> None:
    """Write, then ask; the best of three."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--to", type=Path, required=True)
    given = parser.parse_args()
    begin_s = time.monotonic()
    if not given.to.exists():
        asyncio.run(written(given.to, given.jobs))
        print(f"written in {time.monotonic() - begin_s:.0f} s, of which making the streams is the most")  # noqa: T201  a script
    files = list(given.to.rglob("*.parquet"))
    print(f"{len(files)} files, {sum(path.stat().st_size for path in files) / 1e6:.1f} MB")  # noqa: T201  a script
    for name, query in QUERIES.items():
        took_s: list[float] = []
        found = 0
        for _ in range(3):
            begin_s = time.monotonic()
            tables = Tables(given.to, None)
            tables.close(QueryRows())
            _, rows = tables.ask(query)
            found = len(list(rows))
            took_s.append(time.monotonic() - begin_s)
        print(f"{name:20} {min(took_s):6.2f} s  {found} rows")  # noqa: T201  a script


if __name__ == "__main__":
    main()
