"""Roles: each route says what it needs, in one table, and lets in nobody who has not that."""

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import iter_route_contexts

from aetheris.gateway.core import token_entries
from aetheris.gateway.core.access import ANYBODY, OPEN, ROUTES, Access, admitted, check_reach, in_tenant, unknown_job
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import ForbiddenProblem, NotFoundProblem
from aetheris.gateway.core.token_entries import TokenEntry
from aetheris.gateway.http_api import build_api
from aetheris.gateway.logins import Logins
from aetheris.gateway.routes.edge import ADMISSION, Services
from aetheris.gateway.tokens import Tokens
from aetheris.protocol.base.principals import PrincipalKind, Role
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.telemetry.metrics import Metrics
from tests.testkit.system import REPOSITORY
from tests.testkit.tokens import entry_of, headers_of

PAGE = REPOSITORY / "docs" / "identity.md"


def api_of(folder: Path, *entries: TokenEntry) -> FastAPI:
    """Routes whose callers are these; what lies behind them is not there, and would say 500."""
    path = folder / "tokens.toml"
    path.write_text(token_entries.rendered(entries))
    parts: dict[str, Any] = {part.name: Mock() for part in fields(Services)}
    parts["logins"] = Logins(Tokens(path, SystemClock()), None, Metrics("gateway"), SystemClock())
    return build_api(Services(**parts))


def routes(api: FastAPI) -> Iterator[str]:
    for route in iter_route_contexts(api.routes):
        for method in (route.methods or set()) - {"HEAD"}:
            yield f"{method} {route.path}"


def test_each_route_is_in_the_table_and_nothing_else_is(tmp_path: Path) -> None:
    assert sorted(routes(api_of(tmp_path))) == sorted(ROUTES)


async def test_a_route_that_is_not_in_the_table_is_refused(tmp_path: Path) -> None:
    api = api_of(tmp_path, entry_of("ann"))
    seen: list[str] = []
    forgotten = APIRouter(dependencies=[ADMISSION])
    forgotten.get("/api/forgotten")(lambda: seen.append("a secret"))
    api.include_router(forgotten)
    async with client(api) as ann:
        assert (await ann.get("/api/forgotten")).status_code == 500
    assert seen == []


def test_only_the_probes_are_open() -> None:
    assert {route for route, access in ROUTES.items() if access is OPEN} == {"GET /livez", "GET /readyz"}


def test_the_page_shows_the_table() -> None:
    rows = re.findall(r"^\| `([A-Z]+ /\S*)` \| (.*?) \| (yes)? ?\|$", PAGE.read_text(), re.MULTILINE)
    assert {route: (roles, bool(own)) for route, roles, own in rows} == {
        route: (named(access), access.own) for route, access in ROUTES.items()
    }


def named(access: Access) -> str:
    if access is OPEN:
        return "none"
    roles = "any" if access is ANYBODY else ", ".join(access.roles)
    return " and ".join((f"{roles}," if access.also else roles, *access.also))


def client(api: FastAPI) -> httpx.AsyncClient:
    """What it answers Ann, where nobody else is named; also where it fails."""
    transport = httpx.ASGITransport(api, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=headers_of("ann"))


def asked(route: str) -> tuple[str, str]:
    method, _, path = route.partition(" ")
    return method, path.replace("{", "").replace("}", "")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    """Each role has somebody of its name, who has no other."""
    return api_of(tmp_path_factory.mktemp("roles"), *(entry_of(role.value, roles=(role,)) for role in Role))


@pytest.mark.parametrize("route", sorted(route for route, access in ROUTES.items() if access is not OPEN))
async def test_a_route_lets_in_who_has_one_of_its_roles_and_nobody_else(route: str, api: FastAPI) -> None:
    access = ROUTES[route]
    async with client(api) as http:
        assert (await http.request(*asked(route), headers=headers_of("nobody"))).status_code in (401, 429)
        for role in Role:
            answer = await http.request(*asked(route), headers=headers_of(role.value))
            enough = role in access.roles and not access.also
            own = access.own and role is Role.SUBMIT
            if enough or own:
                assert answer.status_code not in (401, 403), (role, answer.text)
                continue
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (403, "missing_role"), role
            needed = next(((one,) for one in access.also if one is not role), access.roles)
            assert error["details"]["roles"] == [one.value for one in needed]
            assert all(one in error["message"] for one in error["details"]["roles"])


@pytest.mark.parametrize(("name", "status"), [("nobody", 401), (Role.READ.value, 403), (Role.SUBMIT.value, 500)])
async def test_the_audit_hears_of_every_submission_that_is_refused_or_fails(
    name: str, status: int, tmp_path: Path
) -> None:
    api = api_of(tmp_path, *(entry_of(role.value, roles=(role,)) for role in Role))
    told = api.state.services.accesses.answered
    async with client(api) as http:
        answer = await http.post("/api/jobs", headers=headers_of(name), content=b"{}")
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json")
    (visit, reported), _ = told.call_args
    assert (visit.route, reported, told.call_count) == ("POST /api/jobs", status, 1)
    assert (answer.headers.get("www-authenticate") == "Bearer") is (status == 401)


def who(*roles: Role) -> Principal:
    return Principal("ann", "acme", PrincipalKind.AGENT, frozenset(roles))


def test_who_may_only_submit_reaches_his_own_jobs() -> None:
    access = Access((Role.READ,), own=True)
    ann = admitted(who(Role.SUBMIT), access)
    check_reach(ann, "ann")
    with pytest.raises(ForbiddenProblem, match="needs the role read"):
        check_reach(ann, "bob")
    check_reach(admitted(who(Role.SUBMIT, Role.READ), access), "bob")
    with pytest.raises(ForbiddenProblem):
        check_reach(admitted(who(Role.SUBMIT, Role.APPROVE), access), "bob")


def test_payloads_are_for_who_may_read_them_and_for_who_submitted_them() -> None:
    assert who(Role.READ_PAYLOADS).reads_payloads("bob")
    assert who(Role.SUBMIT).reads_payloads("ann")
    assert not who(Role.SUBMIT, Role.READ).reads_payloads("bob")
    assert not who(Role.READ).reads_payloads("ann")


def test_only_who_administers_reaches_into_a_tenant_that_he_names_and_a_job_there_is_not_there_for_others() -> None:
    ann = who(*(role for role in Role if role is not Role.ADMINISTER))
    for own in (None, "acme"):
        assert in_tenant(ann, own) is ann
    for other in ("globex", "", "Acme", "acme "):
        with pytest.raises(ForbiddenProblem, match="needs the role administer"):
            in_tenant(ann, other)
        with pytest.raises(NotFoundProblem) as refused:
            in_tenant(ann, other, of_job=True)
        assert refused.value.body() == unknown_job().body()
    limited = replace(who(Role.ADMINISTER), lacks=(Role.OPERATE,))
    reach = in_tenant(limited, "globex", of_job=True)
    assert (reach.tenant, reach.lacks, reach.id) == ("globex", (), "ann")


def test_anybody_is_anybody_with_a_token() -> None:
    for role in Role:
        assert admitted(who(role), ANYBODY).lacks == ()


def test_who_may_not_read_what_others_jobs_say_does_not_read_it_as_the_arguments_of_what_undoes_them() -> None:
    access = ROUTES["POST /api/jobs/{job_id}/undo"]
    admitted(who(Role.OPERATE, Role.SUBMIT, Role.READ_PAYLOADS), access)
    with pytest.raises(ForbiddenProblem, match="needs the role read_payloads"):
        admitted(who(Role.OPERATE, Role.SUBMIT, Role.READ), access)
