"""Who may do what at Valkey: with the rules that are deployed each service does its work, and no more."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.guarded_valkey import USERS, Users, guarded_valkey
from tests.testkit.rig import Rig
from tests.testkit.services_by_user import PATIENCE_S, services_by_user

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(400)]

KEYS = (*(f"aetheris:{kind}" for kind in ("gateway:x", "lease:x", "effect:x", "epoch", "quarantine:x")), "other")
NOT_FOR_SERVICES = (("FLUSHALL",), ("KEYS", "*"), ("CONFIG", "GET", "*"), ("ACL", "LIST"), ("SHUTDOWN",), ("MONITOR",))
DELETE = "return redis.call('DEL', KEYS[1])"


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Generator[Users]:
    with guarded_valkey(tmp_path_factory.mktemp("users")) as users:
        yield users


@pytest.fixture(scope="module")
def rig(users: Users, kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    with services_by_user(tmp_path_factory.mktemp("services"), kafka, users.url) as rig:
        yield rig


def poke(node: str, tag: str, *after: str, tool: str = "poke_probeable") -> dict[str, Any]:
    return {"id": node, "tool": tool, "args": {"tag": f"{tag}-{node}"}, "depends_on": list(after)}


def test_each_service_does_its_work(users: Users, rig: Rig) -> None:
    tag = fresh("users")
    job = rig.system.submit(poke("a", tag), poke("b", tag, "a", tool="poke_idempotent"))
    rig.system.wait_status(job, "completed", PATIENCE_S)
    parked = rig.system.submit(poke("lost", tag, tool="poke_lost"))
    rig.system.wait_status(parked, "waiting", PATIENCE_S)
    rig.system.resolve(parked, "lost", "happened", result={})
    rig.system.wait_status(parked, "completed", PATIENCE_S)
    until(lambda: job in {one["job_id"] for one in rig.system.api.get("/jobs").json()["jobs"]}, PATIENCE_S)
    assert rig.system.api.get("/effects", params={"tool": "poke_probeable"}).status_code in (200, 503)
    assert rig.external.count(f"{tag}-a") == 1
    assert users.denied() == set()


@pytest.mark.parametrize("service", list(USERS["RULES"]))
def test_nobody_touches_what_is_not_his(users: Users, service: str) -> None:
    own = {
        "gateway": {KEYS[0]},
        "planner": set[str](),
        "ledger": {*KEYS[1:5]},
        "tool-executor": {*KEYS[1:4]},
    }[service]
    with users.client(service) as client:
        for key in KEYS:
            for command in (
                ("SET", key, "forged"),
                ("GET", key),
                ("EVAL", DELETE, 1, key),
            ):
                reads = command[0] == "GET" and key in (KEYS[1], KEYS[4]) and service == "gateway"
                if key in own or reads:
                    client.execute_command(*command)
                else:
                    with pytest.raises((NoPermissionError, ResponseError)):
                        client.execute_command(*command)
        for command in NOT_FOR_SERVICES:
            with pytest.raises(NoPermissionError):
                client.execute_command(*command)
        with pytest.raises(NoPermissionError):
            client.publish("another:channel", b"")


def test_without_a_password_nobody_is_heard(users: Users) -> None:
    with redis.Redis(unix_socket_path=users.socket) as nobody, pytest.raises((AuthenticationError, NoPermissionError)):
        nobody.get(KEYS[0])
    wrong = redis.Redis(unix_socket_path=users.socket, username="ledger", password="guessed")  # noqa: S106
    with wrong, pytest.raises(AuthenticationError):
        wrong.ping()


def test_the_files_are_their_owners_and_the_servers_holds_no_password(tmp_path: Path) -> None:
    USERS["write"](tmp_path / "made", "store:7000")
    found = {one.name: one for one in (tmp_path / "made").iterdir()}
    assert set(found) == {"users.acl", *(f"{service}.url" for service in USERS["RULES"])}
    assert all(one.stat().st_mode & 0o077 == 0 for one in found.values())
    url = found["gateway.url"].read_text()
    assert url.startswith("rediss://gateway:")
    assert "@store:7000/0?ssl_ca_certs=" in url
    assert url.partition("@")[0].rpartition(":")[2] not in found["users.acl"].read_text()
