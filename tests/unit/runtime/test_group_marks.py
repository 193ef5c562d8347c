"""What consumer groups have committed, as brokers tell it: what one does not tell is not taken for nothing."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import pytest
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from aetheris.runtime.kafka import admin
from aetheris.runtime.log.interface import LogUnreachable

TOPIC = "events"


class TellingAdmin:
    """A client of brokers that tell this of each group."""

    def __init__(self, told: Mapping[str, Mapping[int, int]]) -> None:
        self._told = told

    async def __aenter__(self) -> "TellingAdmin":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is open."""

    async def list_consumer_groups(self) -> list[tuple[str, str]]:
        return [(group, "consumer") for group in self._told]

    async def list_consumer_group_offsets(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        told = self._told[group]
        return {at: OffsetAndMetadata(told[at.partition], "") for at in partitions if at.partition in told}


async def marks(
    monkeypatch: pytest.MonkeyPatch, told: Mapping[str, Mapping[int, int]], prefix: str = ""
) -> dict[str, dict[int, int]]:
    def telling(*_of: Any) -> TellingAdmin:
        return TellingAdmin(told)

    monkeypatch.setattr(admin, "Admin", telling)
    return await admin.marks("", TOPIC, 2, prefix=prefix)


async def test_a_group_that_has_committed_nothing_there_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"ours": {0: 7, 1: 9}, "theirs": {0: -1, 1: -1}, "half": {0: 3, 1: -1}}
    assert await marks(monkeypatch, told) == {"ours": {0: 7, 1: 9}, "half": {0: 3}}


@pytest.mark.parametrize("known", [{}, {0: 7}])
async def test_a_group_of_which_the_brokers_do_not_tell_ends_the_question(
    monkeypatch: pytest.MonkeyPatch, known: Mapping[int, int]
) -> None:
    with pytest.raises(LogUnreachable, match="billing"):
        await marks(monkeypatch, {"ours": {0: 7, 1: 9}, "billing": known})


async def test_a_group_of_another_installation_is_not_taken_for_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"acme.ours": {0: 7, 1: 9}, "ours": {0: 100, 1: 100}}
    found = await marks(monkeypatch, told, "acme")
    assert found == {"ours": {0: 7, 1: 9}, "other group ours": {0: 100, 1: 100}}
