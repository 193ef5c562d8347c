"""`aetheris subscribe`: events as JSON lines, straight from the log."""

import asyncio
import json
import re
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Annotated, Any

import typer

from aetheris.cli import local
from aetheris.cli.console import CommandError, Exit, Json, errors_as_exits, print_json_line
from aetheris.protocol.messages.events import EVENTS
from aetheris.runtime.kafka.tls import tls_context
from aetheris.runtime.log.interface import LogError
from aetheris.runtime.process.settings import RuntimeSettings, load
from aetheris.sdk.received import Received
from aetheris.sdk.subscription import MemberTaken, Start, Subscription
from aetheris.sdk.subscription import subscribe as subscribed

_GROUP = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_INTERRUPTED = 130


def subscribe(
    *,
    start: Annotated[
        str, typer.Option("--from", metavar="WHERE", help="beginning, now, or PARTITION:OFFSET[,…].")
    ] = "beginning",
    group: Annotated[str | None, typer.Option(help="Resume what was printed under this name.")] = None,
    member: Annotated[str, typer.Option(help="This process's name in the group; its members share the work.")] = "0",
    kinds: Annotated[list[str] | None, typer.Option("--type", help="Only this event type; may be repeated.")] = None,
    jobs: Annotated[list[str] | None, typer.Option("--job", help="Only this job; may be repeated.")] = None,
    until_now: Annotated[bool, typer.Option("--until-now", help="End where the log ends now.")] = False,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Print every job's events as they come, one JSON document a line."""
    with errors_as_exits(as_json=as_json):
        begin = _start(start)
        _check(group, member, kinds or ())
        settings = load(RuntimeSettings)
        try:
            found = subscribed(
                local.kafka(data),
                start=begin,
                group=group,
                member=member,
                types=kinds or (),
                jobs=jobs or (),
                tls=tls_context(settings),
                prefix=settings.prefix,
            )
            asyncio.run(_print(found, until_now=until_now))
        except MemberTaken as error:
            raise CommandError(Exit.FAILED, error.code, str(error)) from None
        except LogError as error:
            raise CommandError(Exit.UNREACHABLE, error.code, str(error)) from None
        except BrokenPipeError:
            return
        except KeyboardInterrupt:
            raise typer.Exit(_INTERRUPTED) from None


async def _print(found: AbstractAsyncContextManager[Subscription], *, until_now: bool) -> None:
    async with found as subscription:
        async for received in subscription.events(until_now=until_now):
            print_json_line(line(received))
            await subscription.done(received)


def line(received: Received) -> dict[str, Any]:
    """What is printed of an event; `payload` is null for what is no JSON."""
    payload: Any = None
    with suppress(ValueError):
        payload = json.loads(received.value)
    return {
        "partition": received.partition,
        "offset": received.offset,
        "id": received.id,
        "type": received.type,
        "job_id": received.job_id,
        "time": received.time,
        "payload": payload,
    }


def _start(text: str) -> Start:
    if text in ("beginning", "now"):
        return "beginning" if text == "beginning" else "now"
    try:
        named = [part.split(":") for part in text.split(",")]
        return {int(partition): int(offset) for partition, offset in named}
    except ValueError:
        rule = "--from: must be beginning, now, or PARTITION:OFFSET[,PARTITION:OFFSET…]"
        raise CommandError(Exit.BAD_INPUT, "bad_usage", rule, field="--from") from None


def _check(group: str | None, member: str, kinds: Sequence[str]) -> None:
    for option, name in (("--group", group), ("--member", member)):
        if name is not None and not _GROUP.fullmatch(name):
            rule = f"{option}: must be 1 to 64 letters, digits, dots, dashes or underscores"
            raise CommandError(Exit.BAD_INPUT, "bad_usage", rule, field=option)
    unknown = [kind for kind in kinds if kind not in EVENTS]
    if unknown:
        rule = f"--type: there is no event type {unknown[0]}"
        raise CommandError(Exit.BAD_INPUT, "bad_usage", rule, field="--type")
