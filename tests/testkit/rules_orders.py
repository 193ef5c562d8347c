"""Orders of later rules, and the barriers of partitions, as an installation's services write them."""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from aetheris.proofs import records
from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.messages import event_base
from aetheris.protocol.messages.commands import RULES_BARRIER_KEY, RULES_KEY, RulesAnswer, RulesBarrier, RulesOrder
from aetheris.protocol.messages.envelope import draft
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.keys.files import load_service_key, make_installation
from aetheris.runtime.keys.records import RecordKeys, RecordSigner
from aetheris.runtime.keys.signing import Signer

PARTIES = (Party.PLANNER, Party.GATEWAY, Party.LEDGER)


@contextmanager
def both_known() -> Generator[None]:
    """This build knows versions 1 and 2."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (event_base, records):
            patch.setattr(module, "KNOWN_RULES", frozenset({1, 2}))
        yield


class RulesWriters:
    """Planner, gateway and ledger of an installation."""

    def __init__(self, folder: Path) -> None:
        now = datetime.now(UTC)
        self.root = make_installation(folder / "keys", PARTIES, now - timedelta(1), now + timedelta(1))
        self.keys = {party: self._keys(folder, party) for party in PARTIES}

    def _keys(self, folder: Path, party: Party) -> RecordKeys:
        held = load_service_key(folder / "keys", party)
        signer = RecordSigner({party: Signer(held.private_key, held.certificate)}, SystemClock())
        return RecordKeys(frozenset({self.root}), signer)

    def order(self, number: int = 2, by: Party = Party.GATEWAY) -> Draft:
        """What is written to the topic `policies`."""
        said = RulesOrder(number=number, by="olga", at="now")
        return self.keys[by].message(draft(Topic.POLICIES, said, key=RULES_KEY, id="o", source="s", time=""))

    def barrier(self, number: int = 2, by: Party | None = Party.LEDGER, order: Draft | None = None) -> Draft:
        """What is written to jobs.events; `by` nobody: unsigned."""
        said = RulesBarrier(number=number, order=(order or self.order(number)).value.decode())
        made = draft(Topic.JOBS_EVENTS, said, key=RULES_BARRIER_KEY, id="b", source="s", time="", partition=0)
        return made if by is None else self.keys[by].message(made)

    def answer(self, barrier: int, number: int = 2, by: Party = Party.LEDGER, partition: int = 0) -> Draft:
        """What is written to the topic `policies`, of the barrier's offset."""
        said = RulesAnswer(number=number, partition=partition, barrier=barrier)
        return self.keys[by].message(draft(Topic.POLICIES, said, key=RULES_KEY, id="a", source="s", time=""))


def read_at(made: Draft, offset: int, partition: int = 0) -> Record:
    """The record that it becomes."""
    return Record(str(made.topic), partition, offset, 0, made.key, made.headers, made.value)
