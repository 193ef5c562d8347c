"""A new passkey, judged by what a browser says of it (Web Authentication, level 3, §7.1)."""

import base64
from collections.abc import Mapping
from typing import Any

from webauthn import verify_registration_response
from webauthn.helpers import decode_credential_public_key
from webauthn.helpers.cose import COSEAlgorithmIdentifier
from webauthn.helpers.decode_credential_public_key import DecodedEC2PublicKey
from webauthn.helpers.exceptions import WebAuthnException

from aetheris.console.core.passkey_answers import OwnPasskey, PasskeyRefused
from aetheris.protocol.base.sshsig import SshKey, SshSignatureInvalid, read_key


def new_passkey(said: Mapping[str, Any], challenge: bytes, host: str, origin: str) -> OwnPasskey:
    """The one that a browser made for this challenge, on a page of this origin.

    Raises:
        PasskeyRefused.
    """
    try:
        made = verify_registration_response(
            credential=dict(said),
            expected_challenge=challenge,
            expected_rp_id=host,
            expected_origin=origin,
            require_user_verification=True,
            supported_pub_key_algs=[COSEAlgorithmIdentifier.ECDSA_SHA_256],
        )
        public = decode_credential_public_key(made.credential_public_key)
    except (WebAuthnException, ValueError, TypeError, KeyError) as error:
        raise PasskeyRefused(f"the passkey can't be used: {error}") from None
    if not isinstance(public, DecodedEC2PublicKey):
        raise PasskeyRefused("the passkey can't be used: it is not of ES256")
    try:
        key = read_key(SshKey(b"\4" + public.x + public.y, host.encode()).blob)
    except SshSignatureInvalid as error:
        raise PasskeyRefused(f"the passkey can't be used: {error}") from None
    return OwnPasskey(key, base64.urlsafe_b64encode(made.credential_id).decode().rstrip("="))
