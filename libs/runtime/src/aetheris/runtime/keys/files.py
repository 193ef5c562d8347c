"""Keys and certificates in files: read by us alone, made once."""

import json
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from aetheris.protocol.base.ed25519 import verify
from aetheris.protocol.base.signing import Certificate, Revocation, is_certified, key_id_of, read_certificate
from aetheris.protocol.base.writers import Party
from aetheris.runtime.base.refusal import StartRefused
from aetheris.runtime.keys.key_file import write_once
from aetheris.runtime.keys.signing import raw_public_key

ROOT = "root.pem"
REVOCATIONS = "revocations.json"
_FOR_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_MORE_THAN_READ_BY_GROUP = stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP


class KeyUnusable(StartRefused):
    """A private key or its certificate can't be used: the message names the file and why."""

    code = "key_unusable"


@dataclass(frozen=True, slots=True)
class ServiceKey:
    """A service's private key, and its root's word for it."""

    private_key: Ed25519PrivateKey
    certificate: Certificate


def load_key(path: Path) -> Ed25519PrivateKey:
    """The Ed25519 key of a PEM file that nobody else may read, but for our group where root gives it to us.

    Raises:
        KeyUnusable.
    """
    try:
        seen = path.stat()
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError):
        raise KeyUnusable(f"{path} holds no readable private key") from None
    if not is_private(seen.st_mode, seen.st_uid, os.geteuid()):
        raise KeyUnusable(f"{path} may be read by others: it must be this user's, with mode 0600")
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyUnusable(f"{path} holds no Ed25519 key")
    return key


def is_private(mode: int, owner: int, user: int) -> bool:
    """Whether a file of this mode is its user's alone, or root's that his group may read, as clusters mount secrets."""
    if owner == user:
        return not mode & _FOR_OTHERS
    return owner == 0 and not mode & _MORE_THAN_READ_BY_GROUP


def load_service_key(folder: Path, service: Party) -> ServiceKey:
    """A service's key and certificate, as `make_installation` leaves them.

    Raises:
        KeyUnusable: also where the certificate is another key's, another service's or not its root's.
    """
    return read_service_key(folder / f"{service}.pem", folder / f"{service}.cert.json", service)


def read_service_key(key_path: Path, path: Path, service: Party) -> ServiceKey:
    """A service's key, and its certificate, which lies at `path`.

    Raises:
        KeyUnusable: also where the certificate is another key's, another service's or not its root's.
    """
    key = load_key(key_path)
    try:
        certificate = read_certificate(json.loads(path.read_bytes()))
    except (OSError, ValueError, RecursionError):
        certificate = None
    if certificate is None:
        raise KeyUnusable(f"{path} holds no certificate")
    if certificate.service != service or certificate.public_key != raw_public_key(key):
        raise KeyUnusable(f"{path} is the certificate of another key or service")
    if not is_certified(certificate, certificate.installation, verify):
        raise KeyUnusable(f"{path} is not signed by the root that it names")
    return ServiceKey(key, certificate)


def make_key(path: Path) -> None:
    """A fresh key: whole or not at all, readable by us alone; of two that try, the first wins."""
    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_once(path, pem)


def certified(
    root: Ed25519PrivateKey, service: Party, public_key: bytes, not_before: datetime, not_after: datetime
) -> Certificate:
    """A root's word for a service's raw public key; the times have an offset."""
    times = (not_before.isoformat(), not_after.isoformat())
    unsigned = Certificate(service, public_key, *times, root=raw_public_key(root))
    return Certificate(service, public_key, *times, root=unsigned.root, signature=root.sign(unsigned.message()))


def revoked(root: Ed25519PrivateKey, key_id: str, at: datetime, reason: str) -> Revocation:
    """A root's word that a key counts no more; the time has an offset."""
    unsigned = Revocation(key_id, at.isoformat(), reason, raw_public_key(root))
    return replace(unsigned, signature=root.sign(unsigned.message()))


def make_installation(folder: Path, services: Iterable[Party], not_before: datetime, not_after: datetime) -> str:
    """Root, keys and certificates of an installation whose root lies beside them; made once. The root's key id.

    Raises:
        KeyUnusable: what lies there can't be used.
    """
    _once(folder / ROOT)
    root = load_key(folder / ROOT)
    for service in services:
        _once(folder / f"{service}.pem")
        path = folder / f"{service}.cert.json"
        if not path.exists():
            public_key = raw_public_key(load_key(folder / f"{service}.pem"))
            write_once(path, _encoded(certified(root, service, public_key, not_before, not_after).to_json()))
        if load_service_key(folder, service).certificate.root != raw_public_key(root):
            raise KeyUnusable(f"{path} is of another root than {folder / ROOT}")
    return key_id_of(raw_public_key(root))


def _once(path: Path) -> None:
    if not path.exists():
        make_key(path)


def _encoded(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, indent=2).encode() + b"\n"
