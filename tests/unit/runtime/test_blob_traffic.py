"""A store of blobs that hangs, is away, and comes back: nobody waits for it for longer than a moment."""

import asyncio
import json
from pathlib import Path

from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.blobs.store import BlobName, BlobsUnreachable, FolderBlobs
from aetheris.runtime.blobs.traffic import PATIENCE_S, BlobTraffic

VALUES = [json.dumps("x" * number).encode() for number in range(3)]


class Moody(FolderBlobs):
    """Hangs, or refuses, for as long as it is told."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.well = asyncio.Event()
        self.refuses = False
        self.asked = 0

    async def get(self, ref: BlobName) -> bytes:
        await self._answers()
        return await super().get(ref)

    async def put(self, data: bytes) -> BlobName:
        await self._answers()
        return await super().put(data)

    async def _answers(self) -> None:
        self.asked += 1
        if self.refuses and not self.well.is_set():
            raise BlobsUnreachable("away")
        await self.well.wait()


async def test_values_of_a_store_that_hangs_come_later_and_a_moment_is_all_that_is_waited(tmp_path: Path) -> None:
    store = Moody(tmp_path)
    refs = [await FolderBlobs(tmp_path).put(value) for value in VALUES]
    wanted = {ref.sha256: ref.size for ref in refs}
    traffic, woken, loop = BlobTraffic(store, SystemClock()), asyncio.Event(), asyncio.get_running_loop()
    begun_s = loop.time()
    for _ in range(20):
        assert await traffic.values(wanted, woken.set) == {}
    assert loop.time() - begun_s < 5 * PATIENCE_S
    assert store.asked == len(VALUES)
    assert traffic.reported()["reason"] == "it does not answer"
    store.well.set()
    found: dict[str, str] = {}
    async with asyncio.timeout(20):
        while len(found) < len(VALUES):
            woken.clear()
            found = await traffic.values(wanted, woken.set)
            if len(found) < len(VALUES):
                await woken.wait()
    assert sorted(found.values()) == sorted(json.loads(value) for value in VALUES)
    assert traffic.reported() == {}


async def test_what_is_to_be_kept_is_kept_when_the_store_is_back(tmp_path: Path) -> None:
    store = Moody(tmp_path)
    store.refuses = True
    traffic = BlobTraffic(store, SystemClock())
    keeping = await traffic.kept(VALUES)
    assert keeping is not None
    store.well.set()
    await asyncio.wait_for(keeping, 20)
    assert await traffic.kept(VALUES) is None
    for value in VALUES:
        assert await FolderBlobs(tmp_path).get(await FolderBlobs(tmp_path).put(value)) == value


async def test_a_value_that_is_missing_is_left_out_and_asked_for_again(tmp_path: Path) -> None:
    traffic, store = BlobTraffic(FolderBlobs(tmp_path), SystemClock()), FolderBlobs(tmp_path)
    ref = await FolderBlobs(tmp_path / "elsewhere").put(VALUES[1])
    woken = asyncio.Event()
    assert await traffic.values({ref.sha256: ref.size}, woken.set) == {}
    await asyncio.wait_for(woken.wait(), 20)
    assert await traffic.values({ref.sha256: ref.size}, woken.set) == {}
    await store.put(VALUES[1])
    found: dict[str, str] = {}
    async with asyncio.timeout(20):
        while not found:
            woken.clear()
            found = await traffic.values({ref.sha256: ref.size}, woken.set)
            if not found:
                await woken.wait()
    assert found == {ref.sha256: "x"}
