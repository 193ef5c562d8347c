"""Who wraps the keys of subjects, so that their store alone opens nothing: a key in a file, or another service's.

SubjectKeyError
├── SubjectErased        the key was destroyed, and the subject is not enrolled anew
├── SubjectHeld          the key must not be destroyed
├── SubjectKeyMissing    this store has no such key: another one may
├── SubjectKeysAway      the store, or who wraps its keys, does not answer
└── HiddenCorrupt        what lies under the name is not what was hidden
"""

import os
import secrets
from abc import ABC, abstractmethod
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV

from aetheris.runtime.base.refusal import StartRefused
from aetheris.runtime.keys.files import is_private
from aetheris.runtime.keys.key_file import write_once

_NONCE_BYTES = 12
_KEY_BYTES = 32


class SubjectKeyError(Exception):
    """A subject's key can't be had, or what it opens; no message names a subject or a value."""

    code = "subject_key_error"


class SubjectErased(SubjectKeyError):
    """The key was destroyed: nothing of it can be opened, and nothing new is hidden under it."""

    code = "erased"


class SubjectHeld(SubjectKeyError):
    """The subject is on hold: what is hidden under its key must be kept."""

    code = "held"


class SubjectKeyMissing(SubjectKeyError):
    """There is no such key in this store, and no word that it was destroyed."""

    code = "subject_key_missing"


class SubjectKeysAway(SubjectKeyError):
    """The store of keys, or who wraps them, does not answer: whether there is a key is not known."""

    code = "subject_keys_away"


class HiddenCorrupt(SubjectKeyError):
    """The ciphertext is another one's, was changed, or does not open to what the commitment says."""

    code = "hidden_corrupt"


class KmsRefused(StartRefused):
    """What wraps the keys of subjects can't be used: the message names the setting."""

    code = "kms_refused"


class Kms(ABC):
    """Wraps keys of 32 bytes. Calls may wait: give them a thread."""

    @abstractmethod
    def wrap(self, key: bytes, about: bytes) -> str:
        """The key, for keeping; `about` is what it is for, and is asked for again.

        Raises:
            SubjectKeysAway.
        """

    @abstractmethod
    def unwrap(self, wrapped: str, about: bytes) -> bytes:
        """The key again.

        Raises:
            SubjectKeysAway: it does not answer.
            HiddenCorrupt: it answers that this is none of its own, or of something else.
        """


class FileKms(Kms):
    """A key in a file that nobody else may read: hex, 32 bytes. AES-256-GCM-SIV under it.

    Raises:
        KmsRefused: it isn't there, may be read by others, or holds no key.
    """

    def __init__(self, path: Path) -> None:
        try:
            seen = path.stat()
            key = bytes.fromhex(path.read_text(encoding="ascii").strip())
        except (OSError, ValueError):
            raise KmsRefused(f"{path} holds no readable key (64 hex digits): see AETHERIS_SUBJECT_KMS") from None
        if not is_private(seen.st_mode, seen.st_uid, os.geteuid()):
            raise KmsRefused(f"{path} may be read by others: it must be this user's, with mode 0600")
        if len(key) != _KEY_BYTES:
            raise KmsRefused(f"{path} holds no key of {_KEY_BYTES} bytes")
        self._cipher = AESGCMSIV(key)

    def wrap(self, key: bytes, about: bytes) -> str:
        """nonce and ciphertext, hex."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return (nonce + self._cipher.encrypt(nonce, key, about)).hex()

    def unwrap(self, wrapped: str, about: bytes) -> bytes:
        """Raises HiddenCorrupt."""
        try:
            data = bytes.fromhex(wrapped)
            return self._cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], about)
        except (ValueError, InvalidTag):
            raise HiddenCorrupt("a subject's key does not open with this wrapping key") from None


def make_file_key(path: Path) -> None:
    """A fresh wrapping key; of two that try, the first wins."""
    write_once(path, secrets.token_bytes(_KEY_BYTES).hex().encode() + b"\n")
