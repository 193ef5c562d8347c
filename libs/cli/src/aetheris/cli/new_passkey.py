"""A new passkey: made by the browser, judged by what it says of it (Web Authentication, level 3, §7.1)."""

import re
import secrets
from pathlib import Path

from webauthn import verify_registration_response
from webauthn.helpers import decode_credential_public_key
from webauthn.helpers.cose import COSEAlgorithmIdentifier
from webauthn.helpers.decode_credential_public_key import DecodedEC2PublicKey
from webauthn.helpers.exceptions import WebAuthnException

from aetheris.cli.console import CommandError, Exit
from aetheris.cli.page import passkey_page
from aetheris.cli.page_server import HOST, PageAnswerRefused, PersonalPage, answer, served
from aetheris.cli.passkey_signatures import FILE, KnownPasskey, base64url, json_members
from aetheris.protocol.base.sshsig import SshKey, SshSignatureInvalid, read_key

_NAME = re.compile(r"[^\s,*?!\"#\\]+")


def add(name: str, data: Path, *, opens: bool) -> KnownPasskey:
    """Let a person make one, and keep it in the file.

    Raises:
        CommandError: the name can't stand in a file of signers, or nobody made one in time.
    """
    if not _NAME.fullmatch(name) or not name.isprintable():
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
        made = verify_registration_response(
            credential=json_members(body),
            expected_challenge=challenge,
            expected_rp_id=HOST,
            expected_origin=origin,
            require_user_verification=True,
            supported_pub_key_algs=[COSEAlgorithmIdentifier.ECDSA_SHA_256],
        )
        public = decode_credential_public_key(made.credential_public_key)
    except (WebAuthnException, ValueError, TypeError, KeyError) as error:
        raise PageAnswerRefused(f"the passkey can't be used: {error}") from None
    if not isinstance(public, DecodedEC2PublicKey):
        raise PageAnswerRefused("the passkey can't be used: it is not of ES256")
    try:
        key = read_key(SshKey(b"\4" + public.x + public.y, HOST.encode()).blob)
    except SshSignatureInvalid as error:
        raise PageAnswerRefused(f"the passkey can't be used: {error}") from None
    return KnownPasskey(name, key, base64url(made.credential_id))
