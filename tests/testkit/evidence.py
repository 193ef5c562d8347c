"""Sealed jobs and their evidence, as a verifier would make them, without one."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aetheris.proofs import ProofReport, RawRecord, bundle, verify
from aetheris.proofs.claims import line_leaf
from aetheris.proofs.due_amendments import due_amendment
from aetheris.proofs.evidence import Evidence, judge
from aetheris.proofs.merkle import Tree
from aetheris.proofs.notes import InclusionProof, sign_checkpoint
from aetheris.proofs.redacted_records import Redaction
from aetheris.proofs.seals import seal_payload, sign
from aetheris.proofs.trust import TrustedKey
from tests.testkit.proof_histories import Log
from tests.testkit.standalone import assert_agrees

KEY = Ed25519PrivateKey.from_private_bytes(b"\x01" * 32)
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(b"\x02" * 32)
TRUSTED = (TrustedKey(KEY.public_key()),)
SEALED_AT = "2026-01-01T00:00:00+00:00"
SALT = "5a" * 16
ORIGIN = "example.com/seals"


def checked(log: Log, **options: Any) -> ProofReport:
    """The report on a log, by a verifier that trusts KEY; the standalone one must agree."""
    report = verify(log.records, keys=TRUSTED, **options)
    if not options:
        assert_agrees(report, log.records, TRUSTED)
    return report


def violations(log: Log, **options: Any) -> set[tuple[str, str]]:
    """Rule and event of what the report finds broken."""
    return {(broken.rule, broken.event_id) for broken in checked(log, **options).violations}


def seal(log: Log, key: Ed25519PrivateKey = KEY, **changed: Any) -> str:
    """Add a seal over all that the log has, with these fields changed before it is signed; its event's id."""
    report = checked(log)
    payload = seal_payload(
        tenant=log.tenant,
        job_id=log.job,
        event_count=report.event_count,
        root=report.event_chain_root_hash,
        tree=report.event_tree_root_hash,
        execution_hash=report.execution_hash,
        outcome_hash=report.outcome_hash,
        sealed_at=SEALED_AT,
        salt=SALT,
        calls=report.calls,
    )
    signed = sign({**payload, **changed}, key)
    return log.add("job_sealed", **{name: value for name, value in signed.items() if name != "job_id"})


def sealed(log: Log, key: Ed25519PrivateKey = KEY, sealed_at: str = SEALED_AT) -> Log:
    """The log with a seal over all that it has."""
    seal(log, key, sealed_at=sealed_at)
    return log


def amend(log: Log, key: Ed25519PrivateKey = KEY, **changed: Any) -> str:
    """Add the amendment that is due, with these fields changed before it is signed; its event's id."""
    due = due_amendment(log.records, TRUSTED, None)
    assert due is not None
    signed = sign({**due.payload(sealed_at=SEALED_AT, salt=SALT), **changed}, key)
    return log.add("job_sealed", **{name: value for name, value in signed.items() if name != "job_id"})


def inclusion(seal: bytes, key: Ed25519PrivateKey = KEY, before: int = 5, after: int = 3) -> str:
    """A proof that a log of seals, with other leaves around it, has this one."""
    tree = Tree()
    for at in range(before + 1 + after):
        tree.append(line_leaf(seal if at == before else b"other %d" % at))
    note = sign_checkpoint(ORIGIN, len(tree), tree.root(), key)
    return InclusionProof(before, tuple(tree.inclusion(before, len(tree))), note).dumps()


def signer(key: Ed25519PrivateKey) -> bundle.Sign:
    """Signs envelopes."""

    def sign_envelope(message: bytes) -> Mapping[str, str]:
        signature = base64.b64encode(key.sign(message)).decode()
        return {"keyid": TrustedKey(key.public_key()).key_id, "sig": signature}

    return sign_envelope


def evidence_of(
    records: Sequence[RawRecord], blobs: Mapping[str, bytes] | None = None, keys: Sequence[TrustedKey] = TRUSTED
) -> Evidence:
    """The evidence of a job whose last record is its seal."""
    return Evidence((records[0].key or b"").decode(), records, blobs or {}, inclusion(records[-1].value), keys)


def bundle_of(
    records: Sequence[RawRecord], blobs: Mapping[str, bytes] | None = None, keys: Sequence[TrustedKey] = TRUSTED
) -> bytes:
    """Its bundle."""
    evidence = evidence_of(records, blobs, keys)
    return bundle.build(evidence, [judge(records, keys, evidence.blobs.__getitem__)], signer(KEY))


def redacted_of(
    records: Sequence[RawRecord], *names: str, audience: str = "", keys: Sequence[TrustedKey] = TRUSTED
) -> bytes:
    """Its bundle, without the records that are to be left out."""
    evidence = evidence_of(records, keys=keys)
    judged = judge(records, keys, evidence.blobs.__getitem__)
    return bundle.build_redacted(evidence, [judged], Redaction.of(names, audience), signer(KEY))
