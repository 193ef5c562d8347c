"""Where the log of seals speaks of an open job: no tenant's lines push out another's."""

import json

import pytest

from aetheris.proofs.log_lines import interim_payload
from aetheris.verifier.core.line_index import LineIndex


def line(tenant: str, job_id: str) -> bytes:
    jobs = [(job_id, 1, "0" * 64)]
    said = interim_payload(tenant=tenant, partition=0, jobs=jobs, at="", salt="s")
    return json.dumps(said, separators=(",", ":")).encode()


def test_of_each_tenant_the_newest_interim_seals_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aetheris.verifier.core.line_index.MOST_INTERIM", 2)
    index = LineIndex()
    for offset, said in enumerate([line("acme", "a"), *(line("globex", f"g{at}") for at in range(3))]):
        assert index.take(offset, said)
    assert index.of_job("acme", "a") == [0]
    assert [index.of_job("globex", f"g{at}") for at in range(3)] == [[], [2], [3]]
    assert index.of_job("globex", "a") == []
