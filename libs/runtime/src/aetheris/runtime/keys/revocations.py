"""The file of revocations that services are told of: a JSON list, each signed by a root, with where the log ended."""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from aetheris.protocol.base.ed25519 import verify
from aetheris.protocol.base.signing import Revocation, is_revocation, read_revocation
from aetheris.protocol.fold.revocations import Revocations, ToldRevocation
from aetheris.runtime.keys.files import KeyUnusable


def load_revocations(path: Path | None, roots: Collection[str]) -> Revocations:
    """Those of a file; none, where there is none to read.

    Raises:
        KeyUnusable: it can't be read, or one is not signed by a root of `roots`: a revocation is never passed over.
    """
    if path is None:
        return Revocations()
    told = read_told(path)
    if not all(is_revocation(one.revocation, one.revocation.installation, verify) for one in told):
        raise KeyUnusable(f"AETHERIS_REVOCATIONS: {path} holds one that its root has not signed")
    if not all(one.revocation.installation in roots for one in told):
        raise KeyUnusable(f"AETHERIS_REVOCATIONS: {path} holds one of a root that AETHERIS_INSTALLATION does not name")
    return Revocations(told)


def read_told(path: Path) -> Sequence[ToldRevocation]:
    """What a file of revocations says; whether their roots signed them is not looked at.

    Raises:
        KeyUnusable: it can't be read.
    """
    try:
        listed: Any = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        listed = None
    read = [_read(one) for one in cast("list[Any]", listed)] if isinstance(listed, list) else [None]
    told = [one for one in read if one is not None]
    if len(told) < len(read):
        raise KeyUnusable(f"{path} holds no list of revocations, as `aetheris root bring` writes it")
    return told


def written(told: Sequence[ToldRevocation]) -> bytes:
    """The file's content."""
    return json.dumps([{**one.revocation.to_json(), "below": one.below} for one in told], indent=2).encode() + b"\n"


def read_one(content: bytes) -> Revocation | None:
    """The revocation in a file of `aetheris root revoke`, if its root has signed it."""
    try:
        found = read_revocation(json.loads(content))
    except (ValueError, RecursionError):
        return None
    return found if found is not None and is_revocation(found, found.installation, verify) else None


def _read(said: object) -> ToldRevocation | None:
    revocation = read_revocation(said)
    below = cast("Mapping[str, Any]", said).get("below") if revocation is not None else None
    if revocation is None or not isinstance(below, list):
        return None
    offsets = cast("list[Any]", below)
    return ToldRevocation(revocation, tuple(offsets)) if all(type(one) is int for one in offsets) else None
