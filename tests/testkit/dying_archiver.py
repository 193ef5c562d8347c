"""An archiver that kills itself with -9 at a place of its writing; `python -m tests.testkit.dying_archiver`.

ARCHIVER_DIES=place:count names the place and which time that it gets there: settle, settled, put, written. Without it
nobody dies. ARCHIVER_RANGE is how many jobs a range has at most.
"""

import os
import signal
import sys
from asyncio import Event
from collections import Counter

from aetheris.archiver import app, handlers
from aetheris.archiver.core.ranges import SealRange
from aetheris.archiver.parquet_store import ParquetStore
from aetheris.archiver.settings import ArchiverSettings
from aetheris.runtime.process import lifecycle
from aetheris.runtime.process.settings import load

PLACES = ("settle", "settled", "put", "written")
"""Before and after a range is settled; before and after each of its files is there."""

_place, _, _count = os.environ.get("ARCHIVER_DIES", "").partition(":")
_passed: Counter[str] = Counter()


def _at(place: str) -> None:
    _passed[place] += 1
    if place == _place and _passed[place] == int(_count):
        os.kill(os.getpid(), signal.SIGKILL)


class DyingStore(ParquetStore):
    async def settle(self, wanted: SealRange) -> SealRange:
        _at("settle")
        found = await super().settle(wanted)
        _at("settled")
        return found

    async def put(self, path: str, data: bytes) -> None:
        _at("put")
        await super().put(path, data)
        _at("written")


async def _main(stop: Event) -> None:
    await app.serve(load(ArchiverSettings), stop)


if __name__ == "__main__":
    app.ParquetStore = DyingStore  # pyright: ignore[reportPrivateImportUsage]
    handlers.MOST_JOBS = int(os.environ.get("ARCHIVER_RANGE", "1000"))
    sys.exit(lifecycle.run(_main, service="archiver"))
