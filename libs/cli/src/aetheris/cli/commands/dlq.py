"""`aetheris dlq ls | show | redrive`: what no service could decode, and saying it again."""

import asyncio
import base64
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from aetheris.cli import dead_letter_queue, local
from aetheris.cli.console import CommandError, Exit, Json, errors_as_exits, fields, print_json, progress, table
from aetheris.cli.dead_letter_queue import DeadLetter
from aetheris.protocol.base.topics import Topic

dlq = typer.Typer(
    name="dlq", no_args_is_help=True, help="List, show and redrive dead letters: what could not be decoded."
)

Place = Annotated[str, typer.Argument(metavar="TOPIC/PARTITION/OFFSET", help="As `aetheris dlq ls` prints it.")]
Where = Annotated[str | None, typer.Argument(metavar="TOPIC/PARTITION/OFFSET", help="As `aetheris dlq ls` prints it.")]
OfTopic = Annotated[str | None, typer.Option("--topic", help="Only what could not be read from this topic.")]


@dlq.command()
def ls(*, topic: OfTopic = None, data: local.Data = local.DEFAULT_DATA, as_json: Json = False) -> None:
    """List dead letters, each once; what was redriven stays listed, with the time."""
    with errors_as_exits(as_json=as_json):
        found = asyncio.run(_all(local.kafka(data), topic))
        if as_json:
            print_json([_summary(dead_letter) for dead_letter in found])
        else:
            rows = [(str(one.address), one.reason, one.time, one.redriven, one.dlq_id) for one in found]
            table(("letter", "reason", "time", "redriven", "dlq_id"), rows)


@dlq.command()
def show(
    place: Place,
    *,
    with_bytes: Annotated[bool, typer.Option("--bytes", help="Also the record's bytes, in base64.")] = False,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Show a dead letter: why it is one, and the headers that it came with."""
    with errors_as_exits(as_json=as_json):
        dead_letter = asyncio.run(_one(local.kafka(data), place))
        content = {"value": base64.b64encode(dead_letter.record.value).decode()} if with_bytes else {}
        headers = dead_letter_queue.shown_headers(dead_letter.headers)
        if as_json:
            print_json({**_summary(dead_letter), "headers": headers, **content})
        else:
            fields([*_summary(dead_letter).items(), *headers.items(), *content.items()])


@dlq.command()
def redrive(
    place: Where = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Every command that was not redriven yet.")] = False,
    topic: OfTopic = None,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Append a dead letter to its topic again, as it came: once the services can read it."""
    with errors_as_exits(as_json=as_json):
        _check_usage(place, topic, everything=everything)
        bootstrap = local.kafka(data)
        chosen = asyncio.run(_pending(bootstrap, topic) if place is None else _redrivable(bootstrap, place))
        if chosen and not yes:
            _ask(chosen)
        done = asyncio.run(_redrive(bootstrap, chosen)) if chosen else []
        if as_json:
            print_json({"redriven": [_summary(dead_letter) for dead_letter in done]})
        else:
            _say(done)


async def _all(bootstrap: str, topic: str | None) -> list[DeadLetter]:
    topics = list(Topic) if topic is None else [dead_letter_queue.parse_topic(topic)]
    async with dead_letter_queue.reachable(bootstrap) as log:
        return await dead_letter_queue.read(log, topics)


async def _one(bootstrap: str, place: str) -> DeadLetter:
    address = dead_letter_queue.parse_address(place)
    async with dead_letter_queue.reachable(bootstrap) as log:
        return await dead_letter_queue.find(log, address)


async def _redrivable(bootstrap: str, place: str) -> list[DeadLetter]:
    dead_letter = await _one(bootstrap, place)
    dead_letter_queue.check_redrivable(dead_letter)
    return [dead_letter]


async def _pending(bootstrap: str, topic: str | None) -> list[DeadLetter]:
    found = await _all(bootstrap, topic)
    return [one for one in found if one.redriven is None and one.address.topic in dead_letter_queue.COMMANDS]


async def _redrive(bootstrap: str, chosen: Sequence[DeadLetter]) -> list[DeadLetter]:
    async with dead_letter_queue.reachable(bootstrap) as log:
        return await dead_letter_queue.redrive(log, chosen)


def _check_usage(place: str | None, topic: str | None, *, everything: bool) -> None:
    if everything == (place is not None):
        raise CommandError(Exit.BAD_INPUT, "bad_usage", "give TOPIC/PARTITION/OFFSET or --all", field="LETTER")
    if topic is not None and not everything:
        raise CommandError(Exit.BAD_INPUT, "bad_usage", "--topic: only with --all", field="--topic")


def _ask(chosen: Sequence[DeadLetter]) -> None:
    again = [one for one in chosen if one.redriven is not None]
    already = f" (redriven before, at {again[0].redriven})" if again else ""
    topics = ", ".join(sorted({str(one.address.topic) for one in chosen}))
    if not typer.confirm(f"Append {len(chosen)} of {topics} again{already}?", err=True):
        raise CommandError(Exit.FAILED, "not_confirmed", "nothing was redriven")


def _say(done: Sequence[DeadLetter]) -> None:
    for dead_letter in done:
        progress(
            "redriven",
            f"{dead_letter.address} to {dead_letter.address.topic}, partition {dead_letter.address.partition}",
        )
    if not done:
        progress("redriven", "nothing: there is no command that was not redriven yet")


def _summary(dead_letter: DeadLetter) -> dict[str, Any]:
    return {
        "letter": str(dead_letter.address),
        "topic": str(dead_letter.address.topic),
        "partition": dead_letter.address.partition,
        "offset": dead_letter.address.offset,
        "origin_offset": dead_letter.origin_offset,
        "reason": dead_letter.reason,
        "time": dead_letter.time,
        "dlq_id": dead_letter.dlq_id,
        "redriven": dead_letter.redriven,
    }
