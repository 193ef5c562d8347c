"""Keys that a root has revoked: each job that lives, and each new one, carries its word once, whoever takes over."""

import pytest

from aetheris.protocol.base.signing import Revocation
from aetheris.protocol.fold.revocations import Revocations, ToldRevocation
from aetheris.protocol.messages import events as ev
from tests.testkit.histories import JOB
from tests.testkit.ledgers import Surroundings, one

ROOT = bytes(32)
REVOCATION = Revocation("k" * 64, "2026-01-01T00:00:00Z", "stolen", ROOT)


def surroundings(installation: str | None = REVOCATION.installation) -> Surroundings:
    found = Surroundings(one("pure"), revocations=Revocations([ToldRevocation(REVOCATION, (0,))]))
    found.log[0] = found.log[0].model_copy(update={"installation": installation})
    return found


def test_a_live_job_gets_it_before_its_first_grant_and_once() -> None:
    around = surroundings()
    ledger = around.ledger()
    ledger.request("a")
    assert ledger.written() == ["key_revoked"]
    assert [grant.nodes for grant in ledger.grants] == [("a",)]
    assert around.ledger().written() == ["key_revoked"], "whoever takes over writes no second"
    (said,) = (event for event in around.log if isinstance(event, ev.KeyRevoked))
    assert (said.job_id, said.key_id, said.reason) == (JOB, REVOCATION.key_id, "stolen")


@pytest.mark.parametrize("installation", [None, "0" * 64])
def test_a_job_of_another_root_or_none_gets_nothing(installation: str | None) -> None:
    ledger = surroundings(installation).ledger()
    ledger.request("a")
    assert ledger.written() == []


def test_what_a_job_carries_already_is_not_said_again() -> None:
    around = surroundings()
    around.log.append(ToldRevocation(REVOCATION, (0,)).event(JOB))
    around.ids.append("")
    ledger = around.ledger()
    ledger.request("a")
    assert "key_revoked" not in ledger.written()
    assert len([event for event in around.log if isinstance(event, ev.KeyRevoked)]) == 1


def test_a_job_that_is_over_gets_nothing() -> None:
    around = surroundings()
    around.log.append(ev.JobFailed(job_id=JOB, error="e"))
    around.ids.append("")
    assert "key_revoked" not in around.ledger().written()
