"""Cursors: each leads on in the list that gave it, and in no other."""

import base64
from itertools import permutations

import pytest

from aetheris.gateway.core.cursors import cursor_at, number_at, of_tenant, place_at
from aetheris.gateway.core.problems import BadRequestProblem

PLACE = "2026-01-01T00:00:00.000000Z|job-1"
TENANTS = ("a", "a:b", "b", "1:a", "a ", "ä", "", "jobs a")


def changed_at(cursor: str, at: int) -> str:
    return cursor[:at] + ("B" if cursor[at] == "A" else "A") + cursor[at + 1 :]


def test_a_cursor_leads_back_to_its_place_and_shows_it_to_nobody_who_just_looks() -> None:
    cursor = cursor_at(PLACE, "acme", "jobs")
    assert place_at(cursor, "acme", "jobs") == PLACE
    assert "job-1" not in cursor
    assert cursor.replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize(("mine", "others"), tuple(permutations(TENANTS, 2)))
def test_a_cursor_of_another_tenant_is_refused(mine: str, others: str) -> None:
    with pytest.raises(BadRequestProblem):
        place_at(cursor_at(PLACE, others, "jobs"), mine, "jobs")


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        PLACE,
        "=",
        "é",
        "A",
        "A" * 5000,
        cursor_at(PLACE, "acme", "asked"),
        cursor_at(PLACE, "acme", "jobs")[1:],
        cursor_at(PLACE, "acme", "jobs") + "\n",
        base64.urlsafe_b64encode(PLACE.encode()).decode(),
        cursor_at(PLACE, "acme", '["jobs", "running", null, null]'),
        *(changed_at(cursor_at(PLACE, "acme", "jobs"), at) for at in range(len(cursor_at(PLACE, "acme", "jobs")))),
        cursor_at(PLACE, "acme", "jobs") + "A",
        cursor_at(PLACE, "acme", "jobs") + "=",
    ],
)
def test_what_this_list_did_not_give_is_refused_by_the_fields_name(cursor: str) -> None:
    with pytest.raises(BadRequestProblem) as refused:
        place_at(cursor, "acme", "jobs")
    assert (refused.value.status, refused.value.field) == (400, "cursor")


@pytest.mark.parametrize(
    "place", ["\ud800".encode(errors="surrogatepass").decode(errors="replace"), "", "a\x00b", "[+"]
)
@pytest.mark.parametrize("tenant", ["\u00e9", "e\u0301", "a\x00", "a", "\ud800", "x" * 100_000])
def test_any_place_of_any_tenant_is_led_back_to_and_is_no_other_tenants(place: str, tenant: str) -> None:
    cursor = cursor_at(place, tenant, "jobs")
    assert place_at(cursor, tenant, "jobs") == place
    for other in ("\u00e9", "e\u0301", "a\x00", "a", "\ud800", "a\x00jobs"):
        if other != tenant:
            with pytest.raises(BadRequestProblem):
                place_at(cursor, other, "jobs")


@pytest.mark.parametrize("place", ["", "abc", "-1", " 1", "1_0", "\u0663", "1" * 20, "0x1"])
def test_what_is_no_number_is_no_cursor_of_a_list_of_numbers(place: str) -> None:
    assert number_at(cursor_at("17", "acme", "accesses"), "acme", "accesses") == 17
    with pytest.raises(BadRequestProblem, match="cursor"):
        number_at(cursor_at(place, "acme", "accesses"), "acme", "accesses")


def test_no_part_of_a_cursor_can_be_moved_into_another() -> None:
    with pytest.raises(BadRequestProblem):
        place_at(cursor_at("1", "a", "jobs"), "a1", "jobs")
    tags = {cursor_at("p", *of) for of in (("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", ""))}
    assert len(tags) == 4


def test_no_tenants_key_begins_with_anothers() -> None:
    keys = [of_tenant(tenant) + ":" for tenant in (*TENANTS, "a:b:running", "3:a:b")]
    assert not any(one.startswith(other) for one, other in permutations(keys, 2))
