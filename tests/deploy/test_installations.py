"""Two installations beside each other, by prefix, on brokers with an authorizer and a Valkey with users.

Each service is the user that is generated for it. What one of them can reach of the other installation, whoever
speaks as it, is tried by requests of the tests' own, at each topic and key.
"""

import asyncio
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupAuthorizationFailedError
from redis.exceptions import NoPermissionError, ResponseError

from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.topics import Topic, dead_letters
from aetheris.runtime.base.prefix import in_kafka
from aetheris.runtime.kafka import wire
from aetheris.runtime.kafka.batches import pack
from aetheris.runtime.kafka.bootstrap import client_options
from aetheris.runtime.kafka.connection import connect
from aetheris.runtime.kafka.log import KafkaLog
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.log.replay import replay
from tests.deploy.manifests import TENANT, TENANTS_PREFIX, WHOLE, kubectl_needed
from tests.deploy.secured_brokers import PARTITIONS, PATIENCE_S, Secured, running_services, secured_brokers, signing
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.guarded_valkey import USERS, Users, guarded_valkey
from tests.testkit.rig import Rig, poke
from tests.testkit.services import SERVICES
from tests.testkit.tokens import headers_of

pytestmark = [pytest.mark.full, pytest.mark.real, pytest.mark.timeout(900), kubectl_needed]

PREFIXES = ("", TENANTS_PREFIX)
OVERLAYS = {"": WHOLE, TENANTS_PREFIX: TENANT}
NOT_ALLOWED = 29
"""TOPIC_AUTHORIZATION_FAILED."""
TOPICS = [*map(str, Topic), *(dead_letters(topic) for topic in Topic)]
USERS_OF = ("gateway", "planner", "ledger", "tool-executor", "prober", "verifier", "subscriber")
KEYS = ("lease:x", "effect:x", "epoch", "quarantine:x", "gateway:jobs:x")
OTHERS = [(mine, other) for mine in PREFIXES for other in PREFIXES if mine != other]


def user_of(prefix: str, service: str) -> str:
    return f"{prefix or 'aetheris'}-{service}"


@dataclass(frozen=True)
class Installations:
    """Both, by their prefixes, and the servers that they share."""

    secured: Secured
    valkey: Users
    rigs: Mapping[str, Rig]

    def names(self, prefix: str) -> list[str]:
        """Every topic of one, as the brokers know it."""
        return [in_kafka(prefix) + topic for topic in TOPICS]

    def tried(self, user: str, topics: list[str]) -> dict[str, set[int]]:
        """Topic → the errors that the brokers answer to a read and a write by this user, each in its own words."""
        return asyncio.run(self._tried(user, topics))

    async def _tried(self, user: str, topics: list[str]) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {topic: set() for topic in topics}
        places = [(topic, 0) for topic in topics]
        batch = pack([Draft("t", b"forged", b"{}")], 1, -1, -1, -1)
        for address in self.secured.address.split(","):
            host, port = address.split(":")
            connection = await connect((host, int(port)), self.secured.context(user))
            moved, limits = dict.fromkeys(places, 0), wire.FetchLimits(1)
            _, _, parts = wire.fetched(await connection.call(wire.FETCH, wire.fetch(wire.Session(), moved, (), limits)))
            said = wire.produced(await connection.call(wire.PRODUCE, wire.produce(dict.fromkeys(places, batch), 5000)))
            connection.close()
            assert {part.place for part in parts} == said.keys() == set(places)
            for part in parts:
                found[part.place[0]] |= {part.error, said[part.place].error}
        return found


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Generator[Installations]:
    servers = tmp_path_factory.mktemp("servers")
    with ExitStack() as running:
        secured = running.enter_context(secured_brokers(servers, OVERLAYS))
        valkey = running.enter_context(guarded_valkey(tmp_path_factory.mktemp("valkey"), PREFIXES))
        rigs: dict[str, Rig] = {}
        for prefix in PREFIXES:
            folder = tmp_path_factory.mktemp(f"of-{prefix}")
            told = signing(folder / "keys" / "records")
            for service in SERVICES:
                if (kind := service.replace("_", "-")) in USERS["RULES"]:
                    told.setdefault(service, {})["AETHERIS_REDIS"] = valkey.url(USERS["user"](kind, prefix))
            rigs[prefix] = running.enter_context(running_services(secured, folder, told, prefix=prefix))
        yield Installations(secured, valkey, rigs)


def test_the_same_job_is_done_in_both_at_once_and_nothing_is_mixed(both: Installations) -> None:
    key, tag = fresh("same"), fresh("both")
    nodes = [poke("a", f"{tag}-a"), poke("b", f"{tag}-b", "a", tool="poke_idempotent"), poke("c", f"{tag}-c", "a")]
    jobs = {prefix: submitted(rig, key, nodes) for prefix, rig in both.rigs.items()}
    assert len(set(jobs.values())) == 1, "the same tenant and Idempotency-Key"
    (job,) = set(jobs.values())
    for rig in both.rigs.values():
        rig.system.wait_status(job, "completed", PATIENCE_S)
        assert [rig.external.count(f"{tag}-{one}") for one in "abc"] == [1, 1, 1]
        rig.system.wait_sealed(job, PATIENCE_S)
        until(lambda rig=rig: rig.system.report(job).get("seal") is not None, PATIENCE_S)
        assert rig.system.verified(job)["seal"]["ok"]
    alone = submitted(both.rigs[TENANTS_PREFIX], fresh("alone"), [poke("a", f"{tag}-alone")])
    both.rigs[TENANTS_PREFIX].system.wait_status(alone, "completed", PATIENCE_S)
    assert both.rigs[""].system.api.get(f"/jobs/{alone}").status_code == 404
    listed = [{one["job_id"] for one in rig.system.api.get("/jobs").json()["jobs"]} for rig in both.rigs.values()]
    assert [alone in one for one in listed] == [False, True]
    assert all(job in one for one in listed)
    assert both.valkey.denied() == set()
    users = {user_of(prefix, service) for prefix in PREFIXES for service in USERS_OF}
    assert both.secured.missed(users) == set()


def test_a_yes_of_one_installation_is_void_in_the_other(both: Installations) -> None:
    key, tag = fresh("asked"), fresh("yes")
    nodes = [poke("a", tag, tool="poke_irreversible")]
    (job,) = {submitted(rig, key, nodes) for rig in both.rigs.values()}
    asked = [rig.system.wait_asked(job, PATIENCE_S) for rig in both.rigs.values()]
    assert asked[0]["request_id"] == asked[1]["request_id"]
    tenants, other = both.rigs[TENANTS_PREFIX], both.rigs[""]
    body = {"request_id": asked[0]["request_id"], "action": "approve"}
    assert tenants.system.api.post("/ecs/respond", json=body, headers=tenants.system.approver).status_code == 200
    tenants.system.wait_status(job, "completed", PATIENCE_S)
    copied = asyncio.run(copied_into(both.secured.plain, "", TENANTS_PREFIX, job, "approval_"))
    assert copied
    until(lambda: copied <= {one["id"] for one in other.system.events(job)}, PATIENCE_S)
    other.system.completed(poke("b", fresh("after"), tool="poke_pure"))
    assert {one["id"] for one in other.system.events(job) if one.get("void")} >= copied
    assert (other.system.job(job)["status"], other.external.count(tag)) == ("waiting", 0)


@pytest.mark.parametrize(("mine", "other"), OTHERS)
@pytest.mark.parametrize("service", USERS_OF)
def test_a_user_of_one_reads_and_writes_nothing_of_the_other(
    both: Installations, service: str, mine: str, other: str
) -> None:
    user = user_of(mine, service)
    assert both.tried(user, both.names(other)) == {topic: {NOT_ALLOWED} for topic in both.names(other)}
    own = both.tried(user, both.names(mine))
    assert any(codes != {NOT_ALLOWED} for codes in own.values()), "the same requests, where it has rights"


@pytest.mark.parametrize(("mine", "other"), OTHERS)
async def test_an_executor_is_in_no_group_of_the_other_and_sees_no_topic(
    both: Installations, mine: str, other: str
) -> None:
    context = both.secured.context(user_of(mine, "tool-executor"))
    admin = AIOKafkaAdminClient(**client_options(both.secured.address, context), request_timeout_ms=15_000)
    await admin.start()
    try:
        assert {one for one in await admin.list_topics() if not one.startswith("__")} == set(both.names(mine))
        for service in SERVICES:
            with pytest.raises(GroupAuthorizationFailedError):
                await admin.list_consumer_group_offsets(f"{in_kafka(other)}aetheris.{service}")
        await admin.list_consumer_group_offsets(f"{in_kafka(mine)}aetheris.tool_executor")
    finally:
        await admin.close()


@pytest.mark.parametrize(("mine", "other"), OTHERS)
def test_a_user_of_one_touches_no_key_of_the_other(both: Installations, mine: str, other: str) -> None:
    before = f"{other}:" if other else ""
    for service in USERS["RULES"]:
        with both.valkey.client(USERS["user"](service, mine)) as client:
            client.ping()
            for name in KEYS:
                key = f"{before}aetheris:{name}"
                read, write = (("GET", key), ("HGETALL", key), ("EVAL", READ, 1, key)), (("SET", key, 1), ("DEL", key))
                for command in (*read, *write):
                    with pytest.raises(ResponseError, match=r"permission|can't access"):
                        client.execute_command(*command)
            for channel in (f"{before}aetheris:bell:ledger", "other"):
                with pytest.raises(NoPermissionError):
                    client.publish(channel, b"")


READ = "return redis.call('GET', KEYS[1])"


def submitted(rig: Rig, key: str, nodes: list[dict[str, Any]]) -> str:
    headers = {**headers_of("n"), "Idempotency-Key": key}
    answer: httpx.Response = rig.system.api.post("/jobs", json={"plan": {"nodes": nodes}}, headers=headers)
    assert answer.status_code == 202, answer.text
    return answer.json()["job_id"]


async def copied_into(bootstrap: str, into: str, prefix: str, job: str, kind: str) -> set[str]:
    """The ids of a job's events of a kind that somebody who may do anything has copied from one into the other."""
    source, target = KafkaLog(bootstrap, prefix=prefix), KafkaLog(bootstrap, prefix=into)
    await source.start()
    await target.start()
    try:
        place = (str(Topic.JOBS_EVENTS), partition_of(job, PARTITIONS))
        end = (await source.end_offsets([place]))[place]
        found = [one async for records in replay(source, place, 0, end) for one in records if _is(one, job, kind)]
        appender = target.appender()
        await appender.start()
        groups = [(Draft(one.topic, one.key or b"", one.value, one.headers, one.partition),) for one in found]
        await appender.append(groups)
        await appender.stop()
    finally:
        await source.stop()
        await target.stop()
    return {(one.header("ce_id") or b"").decode() for one in found}


def _is(record: Record, job: str, kind: str) -> bool:
    return record.key == job.encode() and f".{kind}".encode() in (record.header("ce_type") or b"")
