"""Hides values, and opens them again: the keys of their subjects, and a ciphertext in the store of blobs.

A ciphertext lies at hidden/TENANT/k/c: AES-256-GCM-SIV, its nonce the first 12 bytes of c, bound to tenant, job, k
and c.
"""

import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV

from aetheris.protocol.base.canonical import canonical
from aetheris.protocol.base.hidden_values import HiddenValue, associated_data, blob_key, hidden, joint_key, salt_of
from aetheris.runtime.blobs.store import Blobs
from aetheris.runtime.subjects.kms import HiddenCorrupt
from aetheris.runtime.subjects.subject_keys import SubjectKeys

_NONCE_BYTES = 12


@dataclass(frozen=True, slots=True)
class SealedValue:
    """A hidden value, and its ciphertext, which is yet to be kept."""

    value: HiddenValue
    path: str
    data: bytes


class HiddenStore:
    """Hides and opens the values of jobs."""

    def __init__(self, keys: SubjectKeys, blobs: Blobs) -> None:
        self.keys = keys
        self._blobs = blobs

    async def keep(self, sealed: Sequence[SealedValue]) -> None:
        """Keep the ciphertexts, before anything is written that names them.

        Raises:
            BlobsUnreachable.
        """
        for one in sealed:
            await self._blobs.put_at(one.path, one.data)

    async def opened(self, tenant: str, job_id: str, value: HiddenValue) -> tuple[Any, Mapping[str, bytes]]:
        """(a job's hidden value in the clear, the keys of its subjects).

        Raises:
            SubjectErased, SubjectKeyMissing, SubjectKeysAway: its key can't be had.
            BlobMissing, BlobsUnreachable: its ciphertext can't be had.
            HiddenCorrupt: it is another job's, or not what was hidden.
        """
        keys = await self.keys.known(value.pseudonyms)
        data = await self._blobs.get_at(blob_path(tenant, value))
        return unsealed(keys, tenant, job_id, value, data), keys


def opening(keys: Mapping[str, bytes], tenant: str, job_id: str, value: Any) -> str:
    """The salt, hex, that shows beside a value that it is the one which was hidden."""
    return salt_of(joint_key(keys)[1], tenant, job_id, value).hex()


def sealed(keys: Mapping[str, bytes], tenant: str, job_id: str, value: Any) -> SealedValue:
    """Hide a value of a job under all its subjects' keys (pseudonym → key).

    Raises:
        InvalidArgs: it has no canonical form.
    """
    k, key = joint_key(keys)
    found = hidden(key, k, tenant, job_id, value)
    cipher, about = AESGCMSIV(blob_key(key)), associated_data(tenant, job_id, found)
    return SealedValue(found, blob_path(tenant, found), cipher.encrypt(_nonce(found), canonical(value), about))


def unsealed(keys: Mapping[str, bytes], tenant: str, job_id: str, value: HiddenValue, data: bytes) -> Any:
    """What was hidden; raises HiddenCorrupt."""
    _, key = joint_key(keys)
    try:
        plain = AESGCMSIV(blob_key(key)).decrypt(_nonce(value), data, associated_data(tenant, job_id, value))
        found = json.loads(plain)
    except (InvalidTag, ValueError):
        raise HiddenCorrupt("a hidden value does not open: it is another job's, or was changed") from None
    if not hmac.compare_digest(hidden(key, value.k, tenant, job_id, found).c, value.c):
        raise HiddenCorrupt("a hidden value opens to something else than was recorded")
    return found


def blob_path(tenant: str, value: HiddenValue) -> str:
    """Where the ciphertext lies in the store of blobs."""
    return f"hidden/{quote(tenant, safe='').replace('.', '%2E')}/{value.k}/{value.c}"


def _nonce(value: HiddenValue) -> bytes:
    return bytes.fromhex(value.c)[:_NONCE_BYTES]
