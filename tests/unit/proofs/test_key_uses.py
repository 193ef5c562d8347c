"""What seals doesn't sign the log of seals, and the other way round, where the keys are listed so."""

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aetheris.proofs import bundle
from aetheris.proofs.evidence import judge
from aetheris.proofs.trust import LOG, SEAL, BadKeys, TrustedKey, keys_of
from tests.testkit import standalone
from tests.testkit.evidence import KEY, evidence_of, inclusion, sealed, signer
from tests.testkit.forged_bundles import named, opinions
from tests.testkit.proof_histories import clean

LOG_KEY = Ed25519PrivateKey.from_private_bytes(b"\x03" * 32)
LISTED = (TrustedKey(KEY.public_key(), use=SEAL), TrustedKey(LOG_KEY.public_key(), use=LOG))


def bundled(sealing: Ed25519PrivateKey, enveloping: Ed25519PrivateKey, logging: Ed25519PrivateKey) -> bytes:
    """By any keys; they are all taken where it is made."""
    records = sealed(clean(), sealing).records
    anybody = [TrustedKey(key.public_key()) for key in (KEY, LOG_KEY)]
    evidence = replace(evidence_of(records, keys=anybody), inclusion=inclusion(records[-1].value, logging))
    return bundle.build(evidence, [judge(records, anybody, evidence.blobs.__getitem__)], signer(enveloping))


def test_each_key_for_its_own() -> None:
    for report in opinions(bundled(KEY, KEY, LOG_KEY), LISTED):
        assert (report["ok"], report["violations"]) == (True, [])


@pytest.mark.parametrize(
    ("keys", "rule"),
    [
        ((LOG_KEY, KEY, LOG_KEY), "seal_unknown_key"),
        ((KEY, LOG_KEY, LOG_KEY), "envelope_unknown_key"),
        ((KEY, KEY, KEY), "checkpoint_unknown_key"),
    ],
    ids=["the log's key seals", "the log's key signs an envelope", "the seal's key signs the log"],
)
def test_no_key_for_another_s(keys: tuple[Ed25519PrivateKey, Ed25519PrivateKey, Ed25519PrivateKey], rule: str) -> None:
    for report in opinions(bundled(*keys), LISTED):
        assert not report["ok"]
        assert rule in {broken for broken, _ in named(report)}


def test_a_use_that_there_is_not_is_refused() -> None:
    entry = {**LISTED[0].to_json(), "use": "both"}
    with pytest.raises(BadKeys, match="use"):
        keys_of([entry])
    with pytest.raises(ValueError, match="use"):
        standalone.verify.Key(entry)
