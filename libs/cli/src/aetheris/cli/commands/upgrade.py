"""`aetheris upgrade check`: run by the new version against what runs, before anything is replaced."""

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from aetheris.cli import local, streamfile
from aetheris.cli.commands.cancels import OPEN
from aetheris.cli.console import CommandError, Exit, Json, end, errors_as_exits, print_json, table
from aetheris.cli.embedded.errors import NotRunningError
from aetheris.cli.gateway import connected
from aetheris.cli.given import Config, Tools, given
from aetheris.cli.large import LazyResults
from aetheris.cli.project_faults import Checked, checked
from aetheris.cli.reachable_log import reachable
from aetheris.cli.source import read_job
from aetheris.cli.upgrade_check import UpgradeFinding, open_job, policy_in_force, rules_and_services
from aetheris.proofs import RawRecord
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.base.refusal import StartRefused
from aetheris.runtime.kafka.admin import check_broker
from aetheris.runtime.kafka.tls import tls_context
from aetheris.runtime.kafka.topics import Assured
from aetheris.runtime.log.interface import LogError
from aetheris.runtime.process.settings import RuntimeSettings, load
from aetheris.sdk.client import Client
from aetheris.sdk.loader import ToolboxError, workflows_in
from aetheris.sdk.tools import AnyTool
from aetheris.sdk.workflows.declaration import AnyWorkflow

upgrade = typer.Typer(name="upgrade", no_args_is_help=True, help="What this version would make of what runs.")
_PAGE = 200
Codes = Annotated[
    list[str] | None,
    typer.Option("--code", metavar="MODULE[:FUNCTION]", help="The new code of workflows; repeatedly."),
]


@upgrade.callback()
def upgrade_commands() -> None:
    """What this version would make of what runs."""


@upgrade.command("check")
def check(
    folder: Annotated[
        Path | None, typer.Argument(help="A folder of exported streams and bundles: nothing that runs is asked.")
    ] = None,
    *,
    code: Codes = None,
    jobs: Annotated[int, typer.Option(min=0, help="So many open jobs are read at most, the newest.")] = 1_000,
    config: Config = None,
    tools: Tools = None,
    who: local.As = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Say what this version would refuse, or let stand, of what an earlier one runs or has written; changes nothing."""
    with errors_as_exits(as_json=as_json):
        codes = _workflows(code or ())
        with given(config, tools):
            settings = checked()
        found = [*_settings(settings)]
        if folder is not None:
            found += _exported(folder, codes, data, settings.tools)
        else:
            with connected(data, who) as client:
                found += rules_and_services(client.rules(), version("aetheris-cli"))
                found.append(policy_in_force(client.policy()))
                found += _open_jobs(client, codes, data, jobs, settings.tools)
            found.append(_topics(data))
    blocks = any(one.blocks for one in found)
    if as_json:
        told = [{name: getattr(one, name) for name in ("subject", "detail", "remedy", "blocks")} for one in found]
        print_json({"version": version("aetheris-cli"), "blocked": blocks, "findings": told})
    else:
        table(
            ("", "what", "found", "to do"), [["✗" if f.blocks else "ok", f.subject, f.detail, f.remedy] for f in found]
        )
    end(Exit.FAILED if blocks else Exit.HOLDS)


def _workflows(given_code: Sequence[str]) -> Mapping[str, AnyWorkflow]:
    """By the name that plans call them by.

    Raises:
        CommandError: one can't be loaded.
    """
    try:
        return {one.name: one for source in given_code for one in workflows_in(source, Path.cwd())}
    except ToolboxError as error:
        raise CommandError(Exit.BAD_INPUT, "bad_code", str(error), field="--code") from None


def _settings(found: Checked) -> Iterator[UpgradeFinding]:
    """Settings, tools and files, as services of this version would be started with."""
    for subject, detail in found.loaded:
        yield UpgradeFinding(subject, detail)
    for fault in found.faults:
        yield UpgradeFinding(fault.subject, fault.detail, "Mend it; `aetheris check` looks again.", blocks=fault.stops)


def _exported(
    folder: Path, codes: Mapping[str, AnyWorkflow], data: Path, tools: Iterable[AnyTool]
) -> Iterator[UpgradeFinding]:
    """Each stream and bundle of a folder.

    Raises:
        CommandError: there is none, or one can't be read.
    """
    paths = sorted(path for path in folder.rglob("*") if path.suffix in (".jsonl", ".zip"))
    if not paths:
        raise CommandError(
            Exit.BAD_INPUT, "nothing_exported", f"{folder}: no .jsonl or .zip; `aetheris export` writes them"
        )
    blocked = 0
    for path in paths:
        records, large = read_job(path, data)
        found = [*open_job(path.stem, records, codes, large, tools)]
        blocked += any(one.blocks for one in found)
        yield from found
    yield UpgradeFinding("jobs", f"{len(paths)} read, {len(paths) - blocked} of them go on, or are read, as they are")


def _open_jobs(
    client: Client, codes: Mapping[str, AnyWorkflow], data: Path, most: int, tools: Iterable[AnyTool]
) -> Iterator[UpgradeFinding]:
    """Each that has not ended, from its own records."""
    ids, read, blocked = [*_listed(client)], 0, 0
    for job_id in ids[:most]:
        raw = streamfile.of_answer(client.raw_stream(job_id)).raw()
        found = [*open_job(job_id, map(_record, raw), codes, LazyResults(data), tools)]
        read, blocked = read + 1, blocked + any(one.blocks for one in found)
        yield from found
    left = f"; {len(ids) - read} more were not read (--jobs)" if read < len(ids) else ""
    yield UpgradeFinding("jobs", f"{read} open, {read - blocked} of them go on as they are{left}")


def _listed(client: Client) -> Iterator[str]:
    for status in OPEN:
        cursor: str | None = None
        while True:
            page = client.jobs(status=status, cursor=cursor, limit=_PAGE)
            yield from (one.job_id for one in page.jobs)
            cursor = page.cursor
            if cursor is None:
                break


def _topics(data: Path) -> UpgradeFinding:
    """What this version's services would say of the brokers, where these are known here."""
    try:
        bootstrap = local.kafka(data)
    except NotRunningError:
        return UpgradeFinding("topics", "not looked at: no brokers are known here", "Set AETHERIS_KAFKA.")
    try:
        risks = asyncio.run(_checked(bootstrap))
    except StartRefused as refused:
        return UpgradeFinding(
            "topics", str(refused), "Alter them before a service of this version starts.", blocks=True
        )
    except LogError as error:
        raise CommandError(Exit.UNREACHABLE, "brokers_unreachable", str(error)) from None
    return UpgradeFinding("topics", "as they must be" + (f", but for dev: {'; '.join(risks)}" if risks else ""))


async def _checked(bootstrap: str) -> list[str]:
    """Raises StartRefused, LogError."""
    settings = load(RuntimeSettings)
    count = settings.partitions
    if not os.environ.get("AETHERIS_PARTITIONS"):
        async with reachable(bootstrap) as log:
            count = await log.partitions(Topic.JOBS_INDEX)
    is_tried_out = settings.dev or not os.environ.get("AETHERIS_KAFKA")
    return await check_broker(
        bootstrap,
        count,
        dev=is_tried_out,
        tls=tls_context(settings),
        prefix=settings.prefix,
        assured=Assured(settings.kafka_in_sync, settings.kafka_retention_days),
    )


def _record(raw: RawRecord) -> Record:
    return Record(Topic.JOBS_EVENTS, 0, raw.offset, 0, raw.key, raw.headers, raw.value)
