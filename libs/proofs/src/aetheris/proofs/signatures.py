"""Signed records: who signed one, for which place, under which root (docs/adr/0009-signed-records.md)."""

import base64
import binascii
import hashlib
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from nacl.bindings import crypto_sign_open
from nacl.exceptions import BadSignatureError

from aetheris.proofs.canonical import canonical
from aetheris.proofs.merkle import leaf_hash, root_of_path
from aetheris.proofs.seals import pae

RECORD = "application/vnd.aetheris.record"
BATCH = "application/vnd.aetheris.records"
CERTIFICATE = "application/vnd.aetheris.certificate+json"
REVOCATION = "application/vnd.aetheris.revocation+json"

_NAMED = ("service", "public_key", "not_before", "not_after", "root")
_PLAIN = re.compile(r"[A-Za-z0-9._:-]*")
_MARK = b',"sig":{'
_LONGEST_PATH = 20
_KEY_BYTES, _SIGNATURE_BYTES = 32, 64
_MOST_KEPT = 8192
_made_here: OrderedDict[tuple[bytes, bytes, bytes], None] = OrderedDict()
"""Of what this process signs, the newest: (public key, signature, message)."""
_NUMBER, _TEXT = rb"(0|[1-9][0-9]{0,6})", rb'"([^"]+)"'
_ALONE = re.compile(rb'"key":%b,"value":%b\}\}' % (_TEXT, _TEXT))
_TOGETHER = re.compile(
    rb'"index":%b,"key":%b,"path":%b,"size":%b,"value":%b\}\}' % (_NUMBER, _TEXT, _TEXT, _NUMBER, _TEXT)
)


class BadSignature(Exception):
    """A record that is not signed as it must be; the message says why, and quotes nothing."""


@dataclass(slots=True)
class Signed:
    """A record's payload without its signature, to the byte, and what its signature says; never changed."""

    payload: bytes
    key_id: str
    value: bytes
    index: int = 0
    size: int = 1
    path: tuple[bytes, ...] = ()


@lru_cache(maxsize=1024)
def fingerprint(public_key: bytes) -> str:
    """hex SHA-256 of a raw public key: its key id."""
    return hashlib.sha256(public_key).hexdigest()


def opened(value: bytes) -> Signed:
    """A signed record's value: its last member is the signature.

    Raises:
        BadSignature: it has none of the form.
    """
    payload, mark, tail = value.rpartition(_MARK)
    if not mark or not payload:
        raise BadSignature("without a signature")
    if (alone := _ALONE.fullmatch(tail)) is not None:
        return Signed(payload + b"}", alone[1].decode(errors="replace"), _decoded(alone[2], 64))
    if (together := _TOGETHER.fullmatch(tail)) is None:
        raise BadSignature("of another form")
    hashes = _decoded(together[3])
    if len(hashes) % 32 or len(hashes) > 32 * _LONGEST_PATH:
        raise BadSignature("of another form")
    path = tuple(hashes[at : at + 32] for at in range(0, len(hashes), 32))
    index, size = int(together[1]), int(together[4])
    return Signed(payload + b"}", together[2].decode(errors="replace"), _decoded(together[5], 64), index, size, path)


def signed_bytes(payload: bytes, place: Mapping[str, Any]) -> bytes:
    """What is signed of a record; `place` is {installation, topic, type, key, born, sequence}, the last two or None."""
    return pae(RECORD, _line(place) + b"\n" + payload)


def holds(signed: Signed, place: Mapping[str, Any], public_key: bytes) -> bool:
    """Did this key sign this record for this place?"""
    leaf = leaf_hash(signed_bytes(signed.payload, place))
    root = root_of_path(leaf, signed.index, signed.size, signed.path)
    if signed.key_id != fingerprint(public_key) or root is None:
        return False
    return is_by(public_key, signed.value, pae(BATCH, root))


def certified(certificate: object, installation: str) -> tuple[str, bytes] | None:
    """(service, raw public key) of a certificate that this installation's root signed; None for any other."""
    if not isinstance(certificate, dict):
        return None
    body = cast("dict[str, object]", certificate)
    texts = tuple(one for name in (*_NAMED, "signature") if isinstance(one := body.get(name), str))
    return _certified(texts, installation) if len(texts) > len(_NAMED) else None


@lru_cache(maxsize=1024)
def _certified(texts: tuple[str, ...], installation: str) -> tuple[str, bytes] | None:
    """Of a certificate's texts, in the order of their names and its signature last; the same comes in job after job."""
    named = dict(zip((*_NAMED, "signature"), texts, strict=True))
    root, public_key, signature = (_bytes(named[name]) for name in ("root", "public_key", "signature"))
    if root is None or public_key is None or signature is None or len(public_key) != 32:
        return None
    if fingerprint(root) != installation:
        return None
    said = canonical({name: named[name] for name in _NAMED})
    return (named["service"], public_key) if is_by(root, signature, pae(CERTIFICATE, said)) else None


def revoked(body: Mapping[str, Any], installation: str) -> str | None:
    """The id of the key that this installation's root revokes; None where it has not signed that.

    Raises:
        ValueError: it says what has no canonical form.
    """
    root, signature = _bytes(body.get("root")), _bytes(body.get("signature"))
    named = {name: body.get(name) for name in ("key_id", "at", "reason")}
    if root is None or signature is None or not all(isinstance(one, str) for one in named.values()):
        return None
    if fingerprint(root) != installation:
        return None
    said = pae(REVOCATION, canonical({**named, "installation": installation}))
    return str(named["key_id"]) if is_by(root, signature, said) else None


def is_by(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """Did a raw public key sign a message? The records of a batch have one signature, which is asked for once."""
    return (public_key, signature, message) in _made_here or _is_by(public_key, signature, message)


def signed_here(public_key: bytes, signature: bytes, message: bytes) -> None:
    """This process has just signed it with that key: of what it reads back, to the byte, it need not ask."""
    _made_here[public_key, signature, message] = None
    if len(_made_here) > _MOST_KEPT:
        _made_here.popitem(last=False)


@lru_cache(maxsize=_MOST_KEPT)
def _is_by(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """What libsodium takes, OpenSSL takes too, in twice the time.

    What it refuses (a point of small order), OpenSSL may take.
    """
    if len(public_key) == _KEY_BYTES and len(signature) == _SIGNATURE_BYTES:
        try:
            crypto_sign_open(signature + message, public_key)
        except BadSignatureError:
            pass
        else:
            return True
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def _line(place: Mapping[str, Any]) -> bytes:
    """A place as canonical JSON; nearly every one has plain texts alone, which need no encoder."""
    born, sequence = place["born"], place["sequence"]
    texts = [place["installation"], place["key"], place["topic"], place["type"], "" if born is None else born]
    if sequence is not None or not (all(type(one) is str for one in texts) and _PLAIN.fullmatch("".join(texts))):
        return canonical(dict(place))
    installation, key, topic, kind, _ = texts
    line = f'"installation":"{installation}","key":"{key}","sequence":null,"topic":"{topic}","type":"{kind}"}}'
    return (f'{{"born":null,{line}' if born is None else f'{{"born":"{born}",{line}').encode()


def _decoded(text: bytes, size: int | None = None) -> bytes:
    try:
        data = binascii.a2b_base64(text)
    except binascii.Error:
        raise BadSignature("of another form") from None
    if size not in (None, len(data)) or binascii.b2a_base64(data, newline=False) != text:
        raise BadSignature("of another form")
    return data


def _bytes(reported: object) -> bytes | None:
    if not isinstance(reported, str):
        return None
    try:
        data = base64.b64decode(reported, validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if base64.b64encode(data).decode() == reported else None
