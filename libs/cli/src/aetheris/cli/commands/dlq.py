"""`aetheris dlq ls | show | redrive`: what no service could decode, and having a command read again."""

import base64
import re
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from aetheris.cli import local
from aetheris.cli.console import CommandError, Exit, Json, errors_as_exits, fields, print_json, progress, table
from aetheris.cli.gateway import connected
from aetheris.protocol.api_dead_letters import Redrive
from aetheris.protocol.base.topics import Topic, dead_letters
from aetheris.sdk.client import Client, Conflict

dlq = typer.Typer(
    name="dlq", no_args_is_help=True, help="List, show and redrive dead letters: what could not be decoded."
)

_ADDRESS = re.compile(r"(?P<topic>[^/]+)/(?P<partition>\d{1,9})/(?P<offset>\d{1,15})", re.ASCII)
_SUFFIX = dead_letters("")
_SHOWN = ("reason", "at", "type", "record_offset", "repeats", "omitted", "redrive", "redriven_at", "redriven_by")

Place = Annotated[str, typer.Argument(metavar="TOPIC/PARTITION/OFFSET", help="As `aetheris dlq ls` prints it.")]
Where = Annotated[str | None, typer.Argument(metavar="TOPIC/PARTITION/OFFSET", help="As `aetheris dlq ls` prints it.")]
OfTopic = Annotated[str | None, typer.Option("--topic", help="Only what could not be read from this topic.")]


@dataclass(frozen=True, slots=True)
class LetterAddress:
    """Where a dead letter lies: the topic that it could not be read from, and its place in that topic's `.dlq`."""

    topic: str
    partition: int
    offset: int


def address(text: str) -> LetterAddress:
    """TOPIC/PARTITION/OFFSET; raises CommandError: it is none."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        rule = "LETTER: must be TOPIC/PARTITION/OFFSET, as `aetheris dlq ls` prints it"
        raise CommandError(Exit.BAD_INPUT, "bad_usage", rule, field="LETTER")
    return LetterAddress(_topic(found["topic"]), int(found["partition"]), int(found["offset"]))


@dlq.command()
def ls(
    *, topic: OfTopic = None, who: local.As = None, data: local.Data = local.DEFAULT_DATA, as_json: Json = False
) -> None:
    """List dead letters, each once; what was redriven stays listed, with the time."""
    with errors_as_exits(as_json=as_json):
        with connected(data, who) as client:
            found = client.dead_letters(None if topic is None else _topic(topic))
        if as_json:
            print_json(found)
            return
        columns = ("letter", "reason", "at", "type", "redrive", "redriven_at")
        table(columns, [(_name(one), *(one[column] for column in columns[1:])) for one in found["dead_letters"]])
        if not found["is_whole"]:
            typer.echo("there are older ones: of each partition the newest are listed", err=True)


@dlq.command()
def show(
    place: Place,
    *,
    with_bytes: Annotated[bool, typer.Option("--bytes", help="The record's bytes alone, as they are.")] = False,
    who: local.As = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Show a dead letter: why it is one, and the headers that it came with."""
    with errors_as_exits(as_json=as_json):
        at = address(place)
        with connected(data, who) as client:
            found = client.dead_letter(at.topic, at.partition, at.offset)
        value = base64.b64decode(found["value"])
        if with_bytes:
            typer.echo(value, nl=False)
        elif as_json:
            print_json(found)
        else:
            fields([("letter", _name(found)), *((name, found[name]) for name in _SHOWN), ("bytes", len(value))])
            fields([(name, _text(value)) for name, value in found["headers"]])


@dlq.command()
def redrive(
    place: Where = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Every command that was not redriven yet.")] = False,
    reason: Annotated[str, typer.Option(help="Why; recorded with your name.")],
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
    who: local.As = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Have a command read again that was put aside: once the services can read it. Said twice, it is done once."""
    with errors_as_exits(as_json=as_json):
        if everything == (place is not None):
            raise CommandError(Exit.BAD_INPUT, "bad_usage", "give TOPIC/PARTITION/OFFSET or --all", field="LETTER")
        with connected(data, who) as client:
            chosen = [address(place)] if place is not None else _pending(client)
            if chosen and not yes and not typer.confirm(f"Append {_counted(chosen)} again?", err=True):
                raise CommandError(Exit.FAILED, "not_confirmed", "nothing was redriven")
            done, refused = _redriven(client, chosen, reason, goes_on=everything)
        if as_json:
            print_json({"redriven": done, "refused": refused})
        for one in done if not as_json else ():
            progress(_name(one), f"redriven at {one['redriven_at']}, by {one['redriven_by']}")
        for letter, why in refused.items() if not as_json else ():
            progress(letter, f"not redriven: {why}")
        if not chosen and not as_json:
            typer.echo("there is nothing to redrive", err=True)
        if refused:
            raise typer.Exit(Exit.FAILED)


def _redriven(
    client: Client, chosen: list[LetterAddress], reason: str, *, goes_on: bool
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """What was redriven, and why others were not: where many are meant, one that can't be keeps none back."""
    done: list[dict[str, Any]] = []
    refused: dict[str, str] = {}
    for one in chosen:
        try:
            done.append(client.redrive(one.topic, one.partition, one.offset, reason=reason))
        except Conflict as error:
            if not goes_on:
                raise
            refused[f"{one.topic}/{one.partition}/{one.offset}"] = error.message
    return done, refused


def _pending(client: Client) -> list[LetterAddress]:
    found: list[dict[str, Any]] = client.dead_letters(str(Topic.JOBS_COMMANDS))["dead_letters"]
    pending = [one for one in found if one["redrive"] == Redrive.AGAIN and one["redriven_at"] is None]
    return [LetterAddress(one["topic"], one["partition"], one["offset"]) for one in pending]


def _topic(text: str) -> str:
    known = text.removesuffix(_SUFFIX)
    if known not in set(Topic):
        raise CommandError(Exit.BAD_INPUT, "unknown_topic", f"there is no topic {text}", field="TOPIC")
    return known


def _text(value: str) -> str:
    return base64.b64decode(value).decode(errors="backslashreplace")


def _counted(chosen: list[LetterAddress]) -> str:
    return f"{len(chosen)} of {', '.join(sorted({one.topic for one in chosen}))}"


def _name(letter: dict[str, Any]) -> str:
    return f"{letter['topic']}/{letter['partition']}/{letter['offset']}"
