"""Tenants take turns by how much they ask for, and a tenant's jobs among themselves."""

from aetheris.protocol.messages.commands import ToolGrant
from aetheris.tool_executor.core.grants import ReceivedGrant
from aetheris.tool_executor.core.turns import Turns


def grant(offset: int, tenant: str, job_id: str = "job", nodes: int = 1) -> ReceivedGrant:
    message = ToolGrant.model_construct(job_id=job_id, nodes=tuple(f"n{number}" for number in range(nodes)))
    return ReceivedGrant(message, "cause", offset, tenant=tenant)


def order(turns: Turns, refused: str | None = None) -> list[str]:
    taken: list[str] = []
    while (one := turns.take(lambda tenant: tenant != refused)) is not None:
        taken.append(one.tenant)
    return taken


def test_one_call_waits_for_no_more_than_a_round_of_another_tenants_many() -> None:
    turns = Turns()
    for offset in range(1000):
        turns.put(grant(offset, "many", f"job-{offset}"))
    turns.put(grant(1000, "one"))
    assert order(turns).index("one") <= 8


def test_a_tenants_long_runs_get_no_more_than_anothers_short_ones() -> None:
    turns = Turns()
    for offset in range(64):
        turns.put(grant(offset, "long", f"job-{offset}", nodes=16))
        turns.put(grant(100 + offset, "short", f"job-{offset}"))
    begun = order(turns)[:18]
    assert 16 * begun.count("long") <= begun.count("short") + 16


def test_a_run_beyond_all_quanta_comes_to_its_turn() -> None:
    turns = Turns()
    turns.put(grant(0, "long", nodes=10_000))
    turns.put(grant(1, "short"))
    assert sorted(order(turns)) == ["long", "short"]


def test_a_tenant_for_which_there_is_no_room_holds_up_nobody() -> None:
    turns = Turns()
    for offset in range(3):
        turns.put(grant(offset, "full"))
    turns.put(grant(3, "free"))
    assert order(turns, refused="full") == ["free"]
    assert [one.offset for one in turns] == [0, 1, 2]


def test_who_waits_no_longer_has_left_nothing() -> None:
    turns = Turns()
    turns.put(grant(0, "a"))
    assert order(turns) == ["a"]
    assert not turns
