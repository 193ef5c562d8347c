"""A Vault wraps the keys of subjects: its transit engine encrypts them, each bound to what it is for.

POST /v1/MOUNT/encrypt/NAME and /decrypt/NAME (Vault's HTTP API, "Transit"), with associated data.
"""

import base64
import binascii
import re
import time
from collections.abc import Callable

from aetheris.runtime.keys.vault import VaultAway, VaultTransit, VaultUnusable, VaultUri
from aetheris.runtime.subjects.kms import HiddenCorrupt, Kms, KmsRefused, SubjectKeysAway

_BAD_REQUEST = 400
"""What a Vault says of a ciphertext that is none of the key's, or of other associated data."""
_TRIAL, _FOR, _NOT_FOR = bytes(32), b"aetheris: a trial", b"aetheris: not the trial"
_CIPHERTEXT = re.compile(r"vault:v[0-9]{1,9}:[A-Za-z0-9+/=]{16,4096}")


class VaultKms(Kms):
    """Wraps under a key of a Vault, which is asked once for each subject's key and process.

    Raises:
        KmsRefused: the URI, the token or the key is none that does this, or it can't be asked.
    """

    def __init__(self, uri: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        try:
            self._vault = VaultTransit(VaultUri.parse(uri), monotonic)
            wrapped = self.wrap(_TRIAL, _FOR)
            opens = self.unwrap(wrapped, _FOR) == _TRIAL
            bound = self._is_bound(wrapped)
        except (VaultUnusable, SubjectKeysAway, HiddenCorrupt) as why:
            raise KmsRefused(f"AETHERIS_SUBJECT_KMS: {why}") from None
        if not opens or not bound:
            raise KmsRefused("AETHERIS_SUBJECT_KMS: the Vault's key does not bind what it wraps: make it aes256-gcm96")

    def wrap(self, key: bytes, about: bytes) -> str:
        """Raises SubjectKeysAway."""
        found = self._asked("encrypt", {"plaintext": _text(key), "associated_data": _text(about)}, "ciphertext")
        if not _CIPHERTEXT.fullmatch(found):
            raise SubjectKeysAway("vault: what it says is no ciphertext")
        return found

    def unwrap(self, wrapped: str, about: bytes) -> bytes:
        """Raises SubjectKeysAway, HiddenCorrupt."""
        if not _CIPHERTEXT.fullmatch(wrapped):
            raise HiddenCorrupt("a subject's key was not wrapped by a Vault")
        found = self._asked("decrypt", {"ciphertext": wrapped, "associated_data": _text(about)}, "plaintext")
        try:
            return base64.b64decode(found, validate=True)
        except (binascii.Error, ValueError):
            raise SubjectKeysAway("vault: what it says is no plaintext") from None

    def _is_bound(self, wrapped: str) -> bool:
        try:
            self.unwrap(wrapped, _NOT_FOR)
        except HiddenCorrupt:
            return True
        return False

    def _asked(self, what: str, given: dict[str, str], name: str) -> str:
        """Raises SubjectKeysAway, HiddenCorrupt."""
        refused: list[VaultAway] = []

        def ask() -> str:
            try:
                found = self._vault.asked("POST", what, given).get(name)
            except VaultAway as away:
                if away.status != _BAD_REQUEST or what != "decrypt":
                    raise
                refused.append(away)  # it is there, and says no
                return ""
            if not isinstance(found, str):
                raise VaultAway(f"vault: its answer has no {name}")
            return found

        try:
            found = self._vault.done(ask)
        except VaultAway as away:
            raise SubjectKeysAway(str(away)) from None
        if refused:
            raise HiddenCorrupt("a subject's key does not open with this wrapping key")
        return found


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
