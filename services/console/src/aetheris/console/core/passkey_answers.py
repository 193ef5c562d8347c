"""What an approver signs with a passkey, and the SSH signature that a browser's assertion is (docs/approvals.md)."""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from aetheris.console.core.shown_requests import ShownRequest
from aetheris.protocol.api import Action
from aetheris.protocol.base.canonical import InvalidArgs, parse
from aetheris.protocol.base.passkeys import Assertion
from aetheris.protocol.base.sshsig import (
    PASSKEY,
    SshKey,
    SshSignatureInvalid,
    assertion_signature,
    read_key,
    read_signature,
    signed_bytes,
    unbase64,
)
from aetheris.protocol.planning.approval_text import NAMESPACE, ApprovalText, SignatureRefused, SignedRequest
from aetheris.protocol.planning.approvals import job_of

_NAME = re.compile(r"[^\s,*?!\"#\\]+")
_HASH = b"sha512"
_HASHED = 32
"""Bytes of authenticator data that are the host's hash, which is made of the key again."""


COMMENT = "passkey:"
"""Before the credential's id, behind the key in its line."""


class PasskeyRefused(ValueError):
    """What the browser sent is not what was asked for; the message is shown."""


@dataclass(frozen=True, slots=True)
class OwnPasskey:
    """Its public key, for one host, and the id by which browsers know it."""

    key: SshKey
    credential: str

    def line_for(self, name: str) -> str:
        """Its line in a file of allowed signers: it signs approvals, and nothing else, under this name."""
        key = base64.b64encode(self.key.blob).decode()
        return f'{name} namespaces="{NAMESPACE}" {PASSKEY} {key} {COMMENT}{self.credential}'


def can_be_named(name: str) -> bool:
    """Whether a file of allowed signers can name somebody so: no space, and none of , * ? ! " # \\."""
    return _NAME.fullmatch(name) is not None and name.isprintable()


def text_to_sign(shown: ShownRequest, action: Action) -> bytes:
    """What is signed of an answer, to the byte, of the arguments that are shown.

    Raises:
        PasskeyRefused: the gateway's word on the request is not what is shown.
    """
    found = shown.asked.to_sign
    if found is None or not shown.is_bound or found.args_hash != shown.args_hash:
        raise PasskeyRefused("what is shown is not what would be signed")
    if found.request != shown.id or found.job != job_of(shown.id):
        raise PasskeyRefused("the gateway names another request to sign than was asked about")
    asked = SignedRequest(**found.model_dump(exclude={"approver", "passkeys"}))
    text = ApprovalText(asked=asked, approver=found.approver, decision=action, data_hash=None, break_glass=False)
    try:
        return text.encoded()
    except SignatureRefused as refused:
        raise PasskeyRefused(str(refused)) from None


def challenge_of(message: bytes) -> bytes:
    """What a passkey is given to sign a text with."""
    return signed_bytes(NAMESPACE.encode(), _HASH, message)


def own_passkeys(shown: ShownRequest, host: str) -> list[SshKey]:
    """Those of the approver that a page of this host can ask."""
    known = shown.asked.to_sign.passkeys if shown.asked.to_sign is not None else ()
    try:
        keys = [read_key(unbase64(one)) for one in known]
    except SshSignatureInvalid:
        return []
    return [key for key in keys if key.is_passkey and key.application == host.encode()]


def signature_by_one(response: Mapping[str, Any], message: bytes, keys: Sequence[SshKey]) -> str:
    """The armored signature of a text by whichever of the keys made it; raises PasskeyRefused."""
    refused = PasskeyRefused("none of your passkeys for this console is known to the gateway")
    for key in keys:
        try:
            return signature_by(response, message, key)
        except PasskeyRefused as error:
            refused = error
    raise refused


def signature_by(response: Mapping[str, Any], message: bytes, key: SshKey) -> str:
    """The armored signature of a text that a key's assertion is, if it is just what was asked for.

    Raises:
        PasskeyRefused.
    """
    data, client_data, der = (_bytes(response.get(one)) for one in ("authenticatorData", "clientDataJSON", "signature"))
    try:
        r, s = decode_dss_signature(der)
        said: Any = parse(client_data)
        origin = str(cast("Mapping[str, Any]", said).get("origin")).encode()
        made = assertion_signature(key, NAMESPACE, _HASH, Assertion(r, s, data[_HASHED:], origin, client_data))
        good = read_signature(made).holds(message)
    except (ValueError, AttributeError, InvalidArgs) as error:
        raise PasskeyRefused(f"the signature can't be used: {error}") from None
    if not good:
        raise PasskeyRefused("the passkey signed something else than was asked")
    return made


def _bytes(text: object) -> bytes:
    try:
        return base64.b64decode(f"{text}{'=' * (-len(str(text)) % 4)}", altchars="-_", validate=True)
    except (binascii.Error, ValueError):
        raise PasskeyRefused("the answer is not base64url") from None
