"""`aetheris approvals | approve | reject`: requests to humans, and their answers."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from aetheris.cli import local, passkey_signatures, signing
from aetheris.cli.console import CommandError, Exit, Json, errors_as_exits, fields, print_json, progress, shown, table
from aetheris.cli.gateway import connected
from aetheris.cli.inputs import json_object
from aetheris.cli.job_ids import whole_id
from aetheris.cli.passkey_signatures import NoBrowser
from aetheris.protocol.api import VoteCount
from aetheris.protocol.planning.approvals import job_of
from aetheris.sdk.client import Action, Approval, Client, HumanRequest, Job, Responded

_ABOUT_TO_ASK_S = 10.0
_LOOK_AGAIN_S = 0.2

RequestId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="The request's id, as `aetheris approvals` shows it; or a job's, where it asks one thing."
    ),
]
BreakGlass = Annotated[
    bool,
    typer.Option("--break-glass", help="Alone, in an emergency, though the rule names others: every use is an alarm."),
]
SignWith = Annotated[
    Path | None,
    typer.Option(metavar="KEYFILE", help="Sign it with this SSH key, by ssh-keygen; a public one: the agent's."),
]
SignatureFile = Annotated[
    Path | None,
    typer.Option("--signature", metavar="FILE", help="A signature, made elsewhere, of what --text prints."),
]
Passkey = Annotated[
    bool, typer.Option("--passkey", help="Sign it with your passkey (aetheris passkey add), in the browser.")
]
OnlyText = Annotated[bool, typer.Option("--text", help="Say nothing: print what would be signed, to the byte.")]
Comment = Annotated[str | None, typer.Option(help="Why; it is recorded with your name.")]


def approvals(
    request_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="Show this one, with its form.")] = None,
    *,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, oldest first.")] = 50,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """List what waits for a human, oldest first; with ID, show what is asked."""
    with errors_as_exits(as_json=as_json), connected(data) as client:
        if request_id is not None:
            _print_request(client.request(_request_of(client, request_id)), as_json=as_json)
            return
        found = _oldest(client, limit)
        if as_json:
            print_json([one.model_dump(mode="json") for one in found])
        else:
            rows = [
                (one.request_id, one.title, one.node_id, one.submitted_by, one.expires_at, _count(one.votes))
                for one in found
            ]
            table(("id", "asks", "step", "for", "until", "yes"), rows)


def approve(
    request_id: RequestId,
    *,
    edit: Annotated[
        str | None, typer.Option(metavar="JSON", help="Change these arguments; the new call is asked about anew.")
    ] = None,
    answer: Annotated[str | None, typer.Option(metavar="JSON", help="What a form of the plan asks for.")] = None,
    comment: Comment = None,
    break_glass: BreakGlass = False,
    sign_with: SignWith = None,
    signature: SignatureFile = None,
    text: OnlyText = False,
    passkey: Passkey = False,
    no_browser: NoBrowser = False,
    who: local.As = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Say yes to exactly what was shown; with --edit, change it first; with --answer, fill in a form."""
    with errors_as_exits(as_json=as_json):
        if edit is not None and answer is not None:
            raise CommandError(Exit.BAD_INPUT, "bad_usage", "--answer: not with --edit", field="--answer")
        body = json_object(edit, "--edit") if edit is not None else None
        filled = json_object(answer, "--answer") if answer is not None else None
        action: Action = "edit" if edit is not None else "approve"
        with connected(data, who) as client:
            word = _Word(_request_of(client, request_id), action, body or filled, comment, break_glass)
            _say(
                client,
                word,
                _Signs(sign_with, signature, text, data if passkey else None, not no_browser),
                as_json=as_json,
            )


def reject(
    request_id: RequestId,
    *,
    comment: Comment = None,
    break_glass: BreakGlass = False,
    sign_with: SignWith = None,
    signature: SignatureFile = None,
    text: OnlyText = False,
    passkey: Passkey = False,
    no_browser: NoBrowser = False,
    who: local.As = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Say no: the call never starts."""
    with errors_as_exits(as_json=as_json), connected(data, who) as client:
        word = _Word(_request_of(client, request_id), "reject", None, comment, break_glass)
        _say(
            client, word, _Signs(sign_with, signature, text, data if passkey else None, not no_browser), as_json=as_json
        )


@dataclass(frozen=True, slots=True)
class _Word:
    """What is said to a request."""

    request_id: str
    action: Action
    data: dict[str, Any] | None
    comment: str | None
    breaks_glass: bool


@dataclass(frozen=True, slots=True)
class _Signs:
    """How it is signed: by a key, by another tool's signature, not now, or by a passkey that this folder knows."""

    key: Path | None
    file: Path | None
    only_text: bool
    passkeys: Path | None
    opens_browser: bool


def _say(client: Client, word: _Word, signs: _Signs, *, as_json: bool) -> None:
    ways = (signs.key, signs.file, signs.passkeys, signs.only_text or None)
    if sum(way is not None for way in ways) > 1:
        rule = "one of --sign-with, --signature, --passkey, --text"
        raise CommandError(Exit.BAD_INPUT, "bad_usage", rule, field="--sign-with")
    signature = signing.read(signs.file) if signs.file is not None else None
    if signs.only_text or signs.key is not None or signs.passkeys is not None:
        asked = client.request(word.request_id)
        message = signing.text(word.request_id, asked, word.action, word.data, break_glass=word.breaks_glass)
        if signs.only_text:
            typer.echo(message, nl=False)
            return
        signature = _signature(signs, word, asked, message)
    responded = client.respond(
        word.request_id,
        word.action,
        data=word.data,
        comment=word.comment,
        break_glass=word.breaks_glass,
        signature=signature,
    )
    _print_responded(responded, as_json=as_json)


def _signature(signs: _Signs, word: _Word, asked: HumanRequest, message: bytes) -> str:
    if signs.passkeys is None or asked.to_sign is None:
        return signing.signed(message, signs.key or Path())
    own = passkey_signatures.known(signs.passkeys, asked.to_sign.approver)
    return passkey_signatures.signed(message, signing.arguments(asked, word.data), own, opens=signs.opens_browser)


def _request_of(client: Client, given: str) -> str:
    """The request that is meant: its own id, or the only open one of a job, which may be about to ask.

    Raises:
        CommandError: the job asks nothing now, or several things, which it names, or the gateway names another job's.
    """
    if job_of(given) is not None:
        return given
    job_id = whole_id(client, given)
    until_s = time.monotonic() + _ABOUT_TO_ASK_S
    while not (open_ := _open_requests(job := client.job(job_id))) and not job.ended and time.monotonic() < until_s:
        time.sleep(_LOOK_AGAIN_S)
    if not open_:
        raise CommandError(Exit.FAILED, "nothing_asked", f"the job asks nothing now: it is {job.status}")
    if len(open_) > 1:
        named = ", ".join(f"{node}: {request}" for node, request in open_.items())
        raise CommandError(Exit.BAD_INPUT, "several_asked", f"ID: the job asks several things: {named}", field="ID")
    ((node, request),) = open_.items()
    if job_of(request) != job_id:
        message = "the gateway names a request of another job than the one that was asked for"
        raise CommandError(Exit.FAILED, "request_differs", message)
    progress(node, request)
    return request


def _open_requests(job: Job) -> dict[str, str]:
    """Node → what a human is asked about it."""
    return {step.node_id: step.request_id for step in job.steps if step.request_id is not None}


def _oldest(client: Client, limit: int) -> list[Approval]:
    found: list[Approval] = []
    cursor: str | None = None
    while len(found) < limit:
        page = client.approvals(cursor=cursor, limit=min(200, limit - len(found)))
        found.extend(page.approvals)
        cursor = page.cursor
        if cursor is None:
            break
    return found


def _print_request(asked: HumanRequest, *, as_json: bool) -> None:
    if as_json:
        print_json(asked.model_dump(mode="json", exclude_none=True))
        return
    form = asked.request
    context: dict[str, Any] = form.get("context", {})
    rows = [("asks", form.get("title")), ("", form.get("description")), ("job", asked.job_id), ("step", asked.node_id)]
    rows += [("submitted by", context.get("submitted_by")), ("until", form.get("expires_at")), ("status", asked.status)]
    rows += [("yes", _count(asked.votes))] if asked.votes is not None else []
    rows += (
        [("signed", "yes: approve, reject with --sign-with KEYFILE or --passkey")] if asked.to_sign is not None else []
    )
    rows += [(f"  {name}", json.dumps(value, ensure_ascii=False)) for name, value in _shown_arguments(context)]
    fields(rows)
    if form.get("fields"):
        questions = [(one.get("name"), one.get("type"), one.get("label"), _default(one)) for one in form["fields"]]
        table(("field", "type", "label", "now"), questions)


def _count(votes: VoteCount | None) -> str:
    """How many have said yes, of how many that must; empty where one is enough."""
    if votes is None:
        return ""
    by = f" ({', '.join(votes.given)})" if votes.given else ""
    return f"{len(votes.given)} of {votes.needed}{by}"


def _shown_arguments(context: dict[str, Any]) -> list[tuple[str, Any]]:
    arguments: dict[str, Any] = context.get("arguments") or {}
    return list(arguments.items())


def _default(field: dict[str, Any]) -> str:
    return json.dumps(field["default"], ensure_ascii=False) if field.get("default") is not None else ""


def _print_responded(responded: Responded, *, as_json: bool) -> None:
    if as_json:
        print_json(responded.model_dump(mode="json", exclude_none=True))
    elif responded.event is None:
        typer.echo("taken; the log has not answered yet")
    else:
        typer.echo(shown(responded.event))
        if responded.votes is not None:
            typer.echo(f"yes: {_count(responded.votes)}")
        if responded.next_request_id is not None:
            typer.echo(f"the new call waits for its own approval: aetheris approve {responded.next_request_id}")
