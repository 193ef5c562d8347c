"""A new passkey: made by the browser on a page that a command serves."""

import secrets
from pathlib import Path

from aetheris.cli.console import CommandError, Exit
from aetheris.cli.page import passkey_page
from aetheris.cli.page_server import HOST, PageAnswerRefused, PersonalPage, answer, served
from aetheris.cli.passkey_signatures import FILE, KnownPasskey, base64url, json_members
from aetheris.console.core.new_passkeys import new_passkey
from aetheris.console.core.passkey_answers import PasskeyRefused, can_be_named


def add(name: str, data: Path, *, opens: bool) -> KnownPasskey:
    """Let a person make one, and keep it in the file.

    Raises:
        CommandError: the name can't stand in a file of signers, or nobody made one in time.
    """
    if not can_be_named(name):
        message = f"NAME: {name!r} can't stand in a file of allowed signers: it has a space, or one of , * ? ! \" # \\"
        raise CommandError(Exit.BAD_INPUT, "bad_name", message, field="NAME")
    challenge = secrets.token_bytes(32)
    asks = {
        "title": f"A passkey for {name}",
        "what": "It will sign what you approve. Make it where only you can use it.",
        "shown": {"Whose": name},
        "button": "Make a passkey",
        "options": {
            "challenge": base64url(challenge),
            "rp": HOST,
            "id": base64url(secrets.token_bytes(32)),
            "user": name,
        },
    }
    page = PersonalPage(
        lambda nonce: passkey_page(asks, nonce), lambda body: made_of(body, name, challenge, page.origin)
    )
    with served(page):
        made: KnownPasskey = answer(page, opens=opens)
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (data / FILE).open("a", encoding="utf-8") as file:
        file.write(f"{made.line}\n")
    return made


def made_of(body: bytes, name: str, challenge: bytes, origin: str) -> KnownPasskey:
    """The passkey that a browser made for this challenge on this page; raises PageAnswerRefused."""
    try:
        made = new_passkey(json_members(body), challenge, HOST, origin)
    except PasskeyRefused as refused:
        raise PageAnswerRefused(str(refused)) from None
    return KnownPasskey(name, made)
