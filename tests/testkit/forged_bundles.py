"""Bundles as somebody would change them, and what both verifiers say of them."""

import base64
import io
import json
import zipfile
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aetheris.proofs import bundle, bundle_zip, seals
from aetheris.proofs.evidence import BadEvidence, dumps
from aetheris.proofs.trust import NEVER, TrustedKey
from tests.testkit import standalone
from tests.testkit.evidence import KEY, TRUSTED, signer

NAME = bundle_zip.ENVELOPE


def opinions(
    data: bytes, keys: Sequence[TrustedKey] | None = TRUSTED, now: datetime | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both implementations' reports."""
    own: dict[str, Any]
    try:
        own = bundle.judge(data, keys, now=now or NEVER, whole=False)
    except BadEvidence as error:
        own = {"ok": False, "violations": [{"rule": error.rule, "event_id": ""}]}
    script, at = standalone.verify, now or NEVER
    trusted = None if keys is None else {key.key_id: script.Key(key.to_json(), at) for key in keys}
    try:
        other = script.check_bundle(data, trusted, now=at)
    except script.Bad as error:
        other = {"ok": False, "violations": [{"rule": error.args[0], "event_id": ""}]}
    return own, other


def named(report: dict[str, Any]) -> set[tuple[str, str]]:
    return {(broken["rule"], broken["event_id"]) for broken in report["violations"]}


def envelope_of(data: bytes) -> dict[str, Any]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return json.loads(archive.read(bundle_zip.ENVELOPE))


def statement_in(data: bytes) -> dict[str, Any]:
    """What the envelope says."""
    return json.loads(base64.b64decode(envelope_of(data)["payload"]))


def resigned(data: bytes, change: Callable[[dict[str, Any]], object], key: Ed25519PrivateKey = KEY) -> bytes:
    """As somebody who holds a key would change it."""
    statement = statement_in(data)
    change(statement)
    payload = dumps(statement)
    signature = dict(signer(key)(seals.pae(bundle.PAYLOAD_TYPE, payload)))
    return bundle_zip.pack(bundle.envelope(payload, [signature]))


def repacked(data: bytes, **changed: Any) -> bytes:
    """The same envelope with other parts, packed as a bundle is."""
    return bundle_zip.pack(dumps(envelope_of(data) | changed))


def zipped(*entries: tuple[str, bytes], **options: Any) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content, **options)
    return target.getvalue()


def envelope_bytes(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.read(NAME)


def payload_of(data: bytes) -> bytes:
    return base64.b64decode(envelope_of(data)["payload"])


def signed(payload: bytes) -> bytes:
    """By the key that is trusted, whatever it is."""
    return bundle_zip.pack(bundle.envelope(payload, [dict(signer(KEY)(seals.pae(bundle.PAYLOAD_TYPE, payload)))]))
