"""An approver's passkeys: made and used by his browser, on a page that a command serves; known by a file of theirs.

The file, `passkeys` in the data folder, has for each the line that a file of allowed signers gets, with the id of the
credential as its comment. Nothing in it is secret.
"""

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from aetheris.cli.console import CommandError, Exit, progress
from aetheris.cli.page import exact, passkey_page
from aetheris.cli.page_server import HOST, PageAnswerRefused, PersonalPage, answer, served
from aetheris.console.core.passkey_answers import COMMENT, OwnPasskey, PasskeyRefused, challenge_of, signature_by
from aetheris.protocol.base.sshsig import (
    PASSKEY,
    SshKey,
    SshSignatureInvalid,
    read_key,
    unbase64,
)
from aetheris.protocol.planning.approval_text import NAMESPACE

FILE = "passkeys"

NoBrowser = Annotated[
    bool, typer.Option("--no-browser", help="Open no browser: print where the page is, for one on this machine.")
]

_LINE = re.compile(rf'([^ ]+) namespaces="{NAMESPACE}" {re.escape(PASSKEY)} ([^ ]+) {COMMENT}([A-Za-z0-9_-]+)')


@dataclass(frozen=True, slots=True)
class KnownPasskey:
    """One that was made here, and whose it is."""

    name: str
    made: OwnPasskey

    @property
    def key(self) -> SshKey:
        """Its public key."""
        return self.made.key

    @property
    def line(self) -> str:
        """For a file of allowed signers."""
        return self.made.line_for(self.name)


def known(data: Path, name: str) -> list[KnownPasskey]:
    """Those of a person.

    Raises:
        CommandError: there is none here, or the file holds something else.
    """
    path = data / FILE
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = [_known(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    own = [one for one in found if one.name == name]
    if not own:
        message = f"{path} has no passkey of {name}: make one by aetheris passkey add {name}"
        raise CommandError(Exit.BAD_INPUT, "no_passkey", message, file=str(path))
    return own


def signed(message: bytes, arguments: Mapping[str, Any], own: list[KnownPasskey], *, opens: bool) -> str:
    """The signature of a text by a passkey, armored, after the browser has shown it and the arguments that it is about.

    Raises:
        CommandError: nobody signed in time.
    """
    for line in message.decode().splitlines():
        progress("signs", line)
    keys = {one.made.credential: one.key for one in own}
    challenge = challenge_of(message)
    asks = {
        "title": f"{own[0].name} signs",
        "what": "Whatever can't be seen is written as \\u and a number. Sign nothing that you have not read.",
        "shown": {
            "Arguments": exact(json.dumps(arguments, indent=2, ensure_ascii=False)),
            "What is signed": exact(message.decode()),
        },
        "button": "Sign with a passkey",
        "options": {"challenge": base64url(challenge), "rp": HOST, "allowed": list(keys)},
    }
    page = PersonalPage(lambda nonce: passkey_page(asks, nonce), lambda body: signature_of(body, message, keys))
    with served(page):
        return answer(page, opens=opens)


def _known(path: Path, number: int, line: str) -> KnownPasskey:
    found = _LINE.fullmatch(line)
    try:
        key = read_key(unbase64(found[2])) if found is not None else None
    except SshSignatureInvalid:
        key = None
    if found is None or key is None:
        message = f"{path}, line {number}: is not as aetheris passkey add writes it"
        raise CommandError(Exit.BAD_INPUT, "bad_passkeys", message, file=str(path))
    return KnownPasskey(found[1], OwnPasskey(key, found[3]))


def signature_of(body: bytes, message: bytes, keys: Mapping[str, SshKey]) -> str:
    """An SSH signature of what the browser made, if it is just what was asked for; else raises PageAnswerRefused."""
    said = json_members(body)
    response: Any = said.get("response")
    key = keys.get(str(said.get("id")))
    if key is None or not isinstance(response, dict):
        raise PageAnswerRefused("another passkey signed than was asked")
    try:
        return signature_by(cast("dict[str, Any]", response), message, key)
    except PasskeyRefused as refused:
        raise PageAnswerRefused(str(refused)) from None


def json_members(body: bytes) -> dict[str, Any]:
    """What a page sent; raises PageAnswerRefused."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise PageAnswerRefused("the answer is no JSON object")
    return cast("dict[str, Any]", found)


def base64url(data: bytes) -> str:
    """As browsers write bytes."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
