"""Where DuckDB reads Parquet from: the archiver's folder, or a copy of its bucket, whose files never change."""

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path

from aetheris.archiver.core.ranges import FOLDER, BadRange, SealRange, begin_of, range_path, read_range, tenant_folder
from aetheris.archiver.parquet_store import S3, store_at
from aetheris.cli.console import CommandError, Exit
from aetheris.runtime.base.whole_file import write_whole
from aetheris.runtime.blobs.store import BlobError, BlobMissing, Blobs
from aetheris.runtime.process.settings import RuntimeSettings, load

_AT_ONCE = 16


def folders_of(tenant: str | None) -> Sequence[str] | None:
    """The folders of a tenant; None: of all."""
    return None if tenant is None else (tenant_folder(tenant),)


async def folder_of(where: str, data: Path, *, may_lack: bool = False) -> Path:
    """The folder to read; of a bucket what is missing of it is fetched into the data folder first.

    `may_lack`: there need not be one yet, as nothing was written.

    Raises:
        CommandError: there is no such folder, or the bucket does not answer.
    """
    if not where.startswith(S3):
        return Path(where) if may_lack else _present(Path(where))
    copy = data / "parquet-copies" / hashlib.sha256(where.encode()).hexdigest()[:16]
    try:
        await _fetch(store_at(where, load(RuntimeSettings).prefix), copy)
    except (BlobError, BadRange, ValueError) as error:
        raise CommandError(Exit.UNREACHABLE, "parquet_unreachable", f"{where}: {error}") from None
    return copy


def _present(folder: Path) -> Path:
    if not folder.is_dir():
        rule = f"there is no folder {folder}: the archiver has written nothing"
        raise CommandError(Exit.BAD_INPUT, "no_parquet", rule)
    return folder


async def _fetch(store: Blobs, copy: Path) -> None:
    turns = asyncio.Semaphore(_AT_ONCE)

    async def file(path: str) -> bytes | None:
        if (copy / path).exists():
            return (copy / path).read_bytes() if path.startswith(FOLDER) else b""
        async with turns:
            try:
                data = await store.get_at(path)
            except BlobMissing:  # of the range that is being written
                return None
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(write_whole, copy / path, data)
        return data

    async def whole(begin: int) -> None:
        record = await file(range_path(begin))
        found: SealRange = read_range(record or b"", begin)
        for path in sorted(found.files, key=lambda one: "/jobs/" in one):  # those of jobs last, as they are written
            await file(path)

    begins = [begin for name in await store.names_at(FOLDER) if (begin := begin_of(name)) is not None]
    await asyncio.gather(*map(whole, begins))
