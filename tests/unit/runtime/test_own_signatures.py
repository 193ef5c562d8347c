"""A process that is told what it signed does not ask about that again, and about everything else as ever."""

from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from aetheris.proofs import signatures
from aetheris.protocol.base.writers import Party
from aetheris.protocol.fold.provenance import place_of
from aetheris.runtime.keys.files import load_service_key, make_installation
from aetheris.runtime.keys.signing import Signer

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def test_the_proofs_need_not_verify_what_their_own_process_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []
    monkeypatch.setattr(signatures, "_is_by", lambda *of: asked.append(of[1]) or False)
    root = make_installation(tmp_path, [Party.AUDITOR], NOW, NOW + timedelta(days=1))
    held = load_service_key(tmp_path, Party.AUDITOR)
    place, public = place_of(root, "job_sealed", "job-9", "b"), held.certificate.public_key
    (other,) = Signer(held.private_key, held.certificate).sign([(place, b'{"x":2}')], NOW)
    (own,) = Signer(held.private_key, held.certificate, signatures.signed_here).sign([(place, b'{"x":1}')], NOW)
    signed, said = signatures.opened(own), asdict(place)
    assert signatures.holds(signed, said, public)
    assert not asked
    lies = {
        "what it has not signed": (signatures.opened(other), said),
        "another payload": (replace(signed, payload=b'{"x":3}'), said),
        "another place": (signed, {**said, "key": "job-8"}),
        "another signature": (replace(signed, value=bytes(64)), said),
    }
    for at, (name, (lie, where)) in enumerate(lies.items(), 1):
        assert not signatures.holds(lie, where, public), name
        assert len(asked) == at, name
