"""Who was erased and is enrolled anew: the erasure is told before its pseudonym is forgotten."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import ConflictProblem, Unavailable
from aetheris.gateway.order_writer import OrderWriter
from aetheris.gateway.subjects import Subjects
from aetheris.protocol.base.principals import PrincipalKind, Role
from aetheris.protocol.base.records import Group
from aetheris.runtime.base.clock import SystemClock
from tests.unit.gateway.test_opened_values import NoDeadlines
from tests.unit.runtime.test_subject_keys import hiding_in

ADMIN = Principal("root", "acme", PrincipalKind.PERSON, frozenset({Role.OPERATE}))
BODY = json.dumps({"subject": "c-17"}).encode()


class GatewayDied(Exception):
    """In the middle of an order."""


class Orders:
    """Takes orders, or dies of them."""

    def __init__(self) -> None:
        self.pseudonyms: list[str] = []
        self.dies = False

    async def append(self, groups: Sequence[Group]) -> None:
        if self.dies:
            raise GatewayDied
        self.pseudonyms += [json.loads(record.value)["pseudonym"] for group in groups for record in group]


class NoVerifier:
    """Is away: nobody says what the log of seals has."""

    async def seals(self, *_: object) -> Any:
        raise Unavailable("verifier_unavailable", "it does not answer")


async def test_who_is_enrolled_anew_takes_no_erasure_with_him_that_nobody_told(tmp_path: Path) -> None:
    hiding, orders = hiding_in(tmp_path), Orders()
    writer = OrderWriter(
        partitions=cast("Any", None),
        appender=cast("Any", orders),
        deadlines=NoDeadlines(),
        clock=SystemClock(),
        answer_s=0.0,
    )
    subjects = Subjects(hiding, writer, cast("Any", NoVerifier()))
    before = (await hiding.keys.enrolled("acme", ["c-17"]))["c-17"].k
    with pytest.raises(ConflictProblem):
        await subjects.enrol(ADMIN, BODY)
    orders.dies = True
    for order in (subjects.erase, subjects.enrol):
        with pytest.raises(GatewayDied):
            await order(ADMIN, BODY)
    orders.dies = False
    assert (await subjects.enrol(ADMIN, BODY)).pseudonym != before
    assert orders.pseudonyms == [before]
