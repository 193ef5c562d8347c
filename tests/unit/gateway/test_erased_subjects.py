"""Who was erased and is enrolled anew: the erasure is told before its pseudonym is forgotten."""

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
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
from aetheris.runtime.base.whole_file import write_whole
from aetheris.runtime.subjects import subject_keys
from aetheris.runtime.subjects.hidden_store import HiddenStore
from aetheris.runtime.subjects.kms import SubjectErased
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
        self.by: list[str] = []
        self.dies = False

    async def append(self, groups: Sequence[Group]) -> None:
        if self.dies:
            raise GatewayDied
        said = [json.loads(record.value) for group in groups for record in group]
        self.pseudonyms += [one["pseudonym"] for one in said]
        self.by += [one["by"] for one in said]


class NoVerifier:
    """Is away: nobody says what the log of seals has."""

    async def seals(self, *_: object) -> Any:
        raise Unavailable("verifier_unavailable", "it does not answer")


def gateway(hiding: HiddenStore, orders: Orders, clock: SystemClock | None = None) -> Subjects:
    writer = OrderWriter(
        partitions=cast("Any", None),
        appender=cast("Any", orders),
        deadlines=NoDeadlines(),
        clock=clock or SystemClock(),
        answer_s=0.0,
    )
    return Subjects(hiding, writer, cast("Any", NoVerifier()))


class OneLook(SystemClock):
    """A gateway that looks once: who sleeps is cancelled."""

    async def sleep(self, delay_s: float) -> None:  # noqa: ARG002  it does not
        raise asyncio.CancelledError


async def started(hiding: HiddenStore, orders: Orders) -> None:
    """What a gateway does that comes next."""
    with suppress(asyncio.CancelledError):
        await gateway(hiding, orders, OneLook()).end_erasures()


async def is_open(hiding: HiddenStore, k: str) -> bool:
    try:
        await hiding.keys.known([k])
    except SubjectErased:
        return False
    return True


class Steps:
    """What an erasure does to the disk and the log, one by one: behind the first `left` of them its gateway dies."""

    def __init__(self, left: int) -> None:
        self.left = left

    def step(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def done(*args: Any, **named: Any) -> Any:
            if self.left == 0:
                raise GatewayDied
            self.left -= 1
            return work(*args, **named)

        return done


STEPS = 6
"""The intent, the name, the key in place and whole, the order, the end of the intent."""


@pytest.mark.parametrize("done", range(STEPS + 1))
async def test_whoever_comes_after_a_gateway_that_died_in_an_erasure_ends_and_tells_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    hiding, orders = hiding_in(tmp_path), Orders()
    k = (await hiding.keys.enrolled("acme", ["c-17"]))["c-17"].k
    steps = Steps(done)
    with monkeypatch.context() as patched:
        patched.setattr(subject_keys, "write_whole", steps.step(write_whole))
        patched.setattr(subject_keys, "_overwrite", steps.step(getattr(subject_keys, "_overwrite")))  # noqa: B009
        patched.setattr(orders, "append", steps.step(orders.append))
        patched.setattr(Path, "unlink", steps.step(Path.unlink))
        if done < STEPS:
            with pytest.raises(GatewayDied):
                await gateway(hiding, orders).erase(ADMIN, BODY)
        else:
            await gateway(hiding, orders).erase(ADMIN, BODY)
    assert steps.left == 0
    for _ in range(2):
        await started(hiding_in(tmp_path), orders)
    assert await hiding_in(tmp_path).keys.untold() == []
    assert await is_open(hiding_in(tmp_path), k) == (done == 0), "nothing was ordered before its intent was kept"
    assert set(orders.pseudonyms) == (set() if done == 0 else {k})
    assert len(orders.pseudonyms) == (2 if done == 5 else 1 if done else 0), "a line is asked for again, if at all"
    assert orders.by == ["root"] * len(orders.pseudonyms)


async def test_a_hold_that_came_before_anything_was_destroyed_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hiding, orders = hiding_in(tmp_path), Orders()
    k = (await hiding.keys.enrolled("acme", ["c-17"]))["c-17"].k
    with monkeypatch.context() as patched:
        patched.setattr(subject_keys, "write_whole", Steps(1).step(write_whole))
        with pytest.raises(GatewayDied):
            await gateway(hiding, orders).erase(ADMIN, BODY)
    await hiding.keys.hold("acme", "c-17")
    await started(hiding, orders)
    assert (orders.pseudonyms, await hiding.keys.untold(), await is_open(hiding, k)) == ([], [], True)


async def test_what_cant_be_told_holds_up_no_other_and_is_told_later(tmp_path: Path) -> None:
    hiding, orders = hiding_in(tmp_path), Orders()
    for subject in ("a", "b"):
        await hiding.keys.enrolled("acme", [subject])
    ordered = {"by": "root"}
    one, other = [await hiding.keys.erase("acme", subject, ordered) for subject in ("a", "b")]
    assert one is not None
    assert other is not None
    untold = tmp_path / "subjects" / "untold"
    first = untold / min(one.k, other.k)
    kept = first.read_bytes()
    for broken in (b"{", b"{}", kept.replace(b'"by"', b'"bi"')):
        first.write_bytes(broken)
        await started(hiding, orders)
    assert set(orders.pseudonyms) == {max(one.k, other.k)}
    first.write_bytes(kept)
    await started(hiding, orders)
    assert set(orders.pseudonyms) == {one.k, other.k}
    assert await hiding.keys.untold() == []


async def test_who_is_enrolled_anew_takes_no_erasure_with_him_that_nobody_told(tmp_path: Path) -> None:
    hiding, orders = hiding_in(tmp_path), Orders()
    subjects = gateway(hiding, orders)
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
