"""Real brokers with TLS and an authorizer: with the generated users each service does its work, and no more.

What each of them was let do is read off what the brokers write down: a right that nobody used is one too many.
"""

import asyncio
import json
import os
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiokafka.errors import KafkaConnectionError, TopicAuthorizationFailedError
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.cli.console import Exit
from aetheris.cli.embedded.ports import Ports
from aetheris.cli.receipts import keep
from aetheris.protocol.base.ids import derived
from aetheris.protocol.base.records import Draft, Group
from aetheris.protocol.base.sealed import REACH
from aetheris.protocol.base.topics import Topic, dead_letters
from aetheris.protocol.base.words import SECRET_BYTES, LifeWords
from aetheris.protocol.fold.rules import UNREAD
from aetheris.protocol.messages.commands import WorkerEntry
from aetheris.protocol.messages.envelope import draft
from aetheris.runtime.kafka.log import KafkaLog
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.subjects.kms import make_file_key
from aetheris.sdk.client import Submitted
from tests.deploy.manifests import kubectl_needed, name
from tests.deploy.secured_brokers import (
    PARTITIONS,
    PATIENCE_S,
    Right,
    Secured,
    granted,
    kafka_users,
    running_services,
    secured_brokers,
    signing,
)
from tests.testkit.attempts import fresh
from tests.testkit.external_flows import flow_node
from tests.testkit.external_server import until
from tests.testkit.rig import Rig
from tests.testkit.services import SERVICES, running_service
from tests.testkit.system import REPOSITORY, records_at
from tests.testkit.tokens import token_of

pytestmark = [pytest.mark.full, pytest.mark.real, pytest.mark.timeout(900), kubectl_needed]

FOR_OTHERS = {
    *(Right("aetheris-subscriber", "READ", "TOPIC", str(topic)) for topic in (Topic.JOBS_SEALS, Topic.LEDGER_RECORDS)),
    Right("aetheris-scheduler", "READ", "GROUP", "aetheris.subscriber.scheduler.*"),
}
"""Public topics, which nobody of ours subscribes to; the groups of topics that start jobs: none does here."""
DELETION = "aetheris-archive-deletion"
EARLIER = "an earlier version"
AT_ONCE = 1000
EVENTS = str(Topic.JOBS_EVENTS)
LATER = """
import sys
if any("aetheris" in one for one in sys.orig_argv):
    from aetheris.proofs import records
    from aetheris.protocol.messages import event_base
    event_base.KNOWN_RULES = records.KNOWN_RULES = frozenset({1, 2})
"""
"""Every service knows a version 2 of the rules."""


@dataclass(frozen=True)
class AclRig(Rig):
    """Its services are the generated users of the brokers."""

    secured: Secured

    def write(self, groups: Sequence[Group]) -> None:
        """Append as somebody who may do anything."""

        async def write() -> None:
            log = KafkaLog(self.secured.plain)
            appender = log.appender()
            await log.start()
            try:
                await appender.start()
                await appender.append(groups)
                await appender.stop()
            finally:
                await log.stop()

        asyncio.run(write())

    def command(self, *argv: str, env: Mapping[str, str]) -> Any:
        """What a command says, as JSON; it must end well."""
        done = CliRunner().invoke(app, [*argv, "--data", str(self.system.data), "--json"], env=env)
        assert done.exit_code == 0, done.output
        return json.loads(done.output)

    def deletion(self, *options: str) -> dict[int, dict[str, Any]]:
        """What `aetheris archive delete` says of each partition, by the user who is made for it."""
        found = self.command("archive", "delete", *options, env=self.secured.env(DELETION))
        return {one["partition"]: one for one in found["partitions"]}

    def say(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        """What somebody who may decide says."""
        return self.system.api.post(path, json=body, headers=self.system.approver, timeout=60)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Generator[Secured]:
    with secured_brokers(tmp_path_factory.mktemp("secured")) as secured:
        yield secured


@pytest.fixture(scope="module")
def rig(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Generator[AclRig]:
    folder, later = tmp_path_factory.mktemp("services"), tmp_path_factory.mktemp("later")
    (later / "sitecustomize.py").write_text(LATER)
    make_file_key(later / "kms.key")
    (later / "seen").touch()
    shared = {
        "AETHERIS_TOOLS": "tests.testkit.external_tools,tests.testkit.personal_tools,tests.testkit.child_flows",
        "AETHERIS_SUBJECT_KEYS": str(later / "subjects"),
        "AETHERIS_SUBJECT_KMS": str(later / "kms.key"),
        "PERSONAL_SEEN": str(later / "seen"),
        "PYTHONPATH": f"{later}:{REPOSITORY}",
        "AETHERIS_CHECKPOINT_EVERY": "1",
        "AETHERIS_ARCHIVE_AFTER_DAYS": "0",
        "AETHERIS_INTERIM_SEAL_S": "2",
    }
    with running_services(secured, folder, signing(folder / "keys" / "records"), shared) as rig:
        yield AclRig(rig.system, rig.external, secured)


def poke(node: str, tag: str, *after: str, tool: str = "poke_probeable") -> dict[str, Any]:
    return {"id": node, "tool": tool, "args": {"tag": f"{tag}-{node}"}, "depends_on": list(after)}


async def test_each_service_does_its_work(secured: Secured, rig: AclRig) -> None:
    async with secured.producer("aetheris-gateway") as gateway:  # who may write commands may write nonsense
        await gateway.send_and_wait(Topic.JOBS_COMMANDS, b"no command", key=b"garbage")
    tag = fresh("secured")
    second, third = poke("b", tag, "a", tool="poke_idempotent"), poke("c", tag, "b", tool="poke_pure")
    job = rig.system.submit(poke("a", tag), second, third)
    rig.system.wait_status(job, "completed", PATIENCE_S)
    parked = rig.system.submit(poke("lost", tag, tool="poke_lost"))
    rig.system.wait_status(parked, "waiting", PATIENCE_S)
    rig.system.resolve(parked, "lost", "happened", result={})
    rig.system.wait_status(parked, "completed", PATIENCE_S)
    for one in (job, parked):
        until(lambda one=one: _sealed(rig, one), PATIENCE_S)
    assert (rig.external.count(f"{tag}-a"), rig.external.count(f"{tag}-b")) == (1, 1)
    text = "".join((rig.system.data / f"{service}.log").read_text() for service in SERVICES)
    assert "Authorization" not in text
    env = secured.env("aetheris-subscriber")
    argv = ["subscribe", "--until-now", "--group", "test", "--job", job]
    done = await asyncio.to_thread(CliRunner().invoke, app, argv, env=env)
    assert done.exit_code == 0, done.output
    assert '"job_completed"' in done.output


async def test_the_notifier_reads_by_rights_of_its_own(secured: Secured, rig: AclRig, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(token_of("n"))
    channel = '[[channels]]\nname = "room"\nkind = "slack"\nsecret = "room@1"\n'
    (tmp_path / "notices.toml").write_text(f'{channel}[[routes]]\nname = "all"\ntell = ["room"]\n')
    env = {
        **secured.env("aetheris-notifier"),
        "AETHERIS_DATA": str(tmp_path),
        "AETHERIS_NOTICES": str(tmp_path / "notices.toml"),
        "AETHERIS_GATEWAY_URL": str(rig.system.api.base_url).removesuffix("/").removesuffix("/api"),
        "AETHERIS_GATEWAY_TOKEN": str(tmp_path / "token"),
    }
    once = {"id": "a", "tool": "once_a_session", "args": {"tag": fresh("once")}}
    asked = rig.system.submit(once, session=fresh("session"))
    rig.system.wait_asked(asked, PATIENCE_S)
    with running_service("notifier", tmp_path, env) as running:
        # it has read the request, and waits for an executor that can tell somebody
        await asyncio.to_thread(until, lambda: "invalid_plan" in running.unready("gateway"), PATIENCE_S)
    assert rig.system.api.post(f"/jobs/{asked}/cancel", json={}).status_code in (200, 202)
    rig.system.wait_ended([asked], PATIENCE_S)
    secured.forget_group("aetheris.subscriber.notifier")


async def test_the_archiver_reads_by_rights_of_its_own(secured: Secured, rig: AclRig, tmp_path: Path) -> None:
    job = rig.system.completed(poke("a", fresh("parquet")))
    rig.system.wait_sealed(job)
    env = {
        **secured.env("aetheris-archiver"),
        "AETHERIS_DATA": str(rig.system.data),
        "AETHERIS_PARQUET": str(tmp_path / "rows"),
        "AETHERIS_PARQUET_EVERY_S": "0.1",
    }
    with running_service("archiver", tmp_path, env):
        await asyncio.to_thread(until, lambda: bool(list(tmp_path.glob("rows/tenants/*/jobs/*/*"))), PATIENCE_S)


def _sealed(rig: AclRig, job: str) -> bool:
    report = rig.system.api.get(f"/jobs/{job}/verify").json()
    return bool(report.get("ok")) and report.get("seal") is not None


@pytest.mark.usefixtures("rig")
async def test_what_no_service_can_read_is_put_aside(secured: Secured) -> None:
    unread = [("ce_type", min(UNREAD))]
    whose = (
        (Topic.JOBS_COMMANDS, "gateway", "planner", []),
        (Topic.JOBS_EVENTS, "prober", "planner", []),
        (Topic.JOBS_EVENTS, "prober", "verifier", unread),
        (Topic.TOOLS_REQUESTS, "planner", "ledger", []),
        (Topic.TOOLS_GRANTS, "ledger", "tool-executor", []),
        (Topic.VERIFICATIONS, "ledger", "prober", []),
    )
    for topic, writer, _, headers in whose:
        async with secured.producer(f"aetheris-{writer}") as producer:
            await producer.send_and_wait(topic, b"nonsense", key=b"garbage", headers=headers)
    wanted = {Right(f"aetheris-{reader}", "WRITE", "TOPIC", dead_letters(str(topic))) for topic, _, reader, _ in whose}
    await asyncio.to_thread(until, lambda: not wanted - secured.said("Allowed"), PATIENCE_S)


def test_what_was_put_aside_is_read_and_a_command_is_taken_again(rig: AclRig) -> None:
    job = rig.system.completed(poke("a", fresh("redriven")))
    found = asyncio.run(records_at(rig.secured.plain, Topic.JOBS_COMMANDS))
    own = next(one for one in found if one.key == job.encode())
    for topic in Topic:
        partition, offset = (own.partition, own.offset) if topic is Topic.JOBS_COMMANDS else (0, 0)
        dlq_id = derived("dlq", topic, str(partition), str(offset))
        at = (("dlq_offset", str(offset).encode()), ("dlq_id", dlq_id.encode()), ("dlq_reason", EARLIER.encode()))
        rig.write([(Draft(dead_letters(topic), own.key or b"", own.value, (*at, *own.headers), partition),)])

    def theirs() -> list[dict[str, Any]]:
        listed = rig.system.api.get("/dead-letters", headers=rig.system.approver).raise_for_status().json()
        return [letter for letter in listed["dead_letters"] if letter["reason"] == EARLIER]

    until(lambda: len(theirs()) == len(Topic), PATIENCE_S)
    letter = next(one for one in theirs() if one["topic"] == Topic.JOBS_COMMANDS)
    path = f"/dead-letters/{letter['topic']}/{letter['partition']}/{letter['offset']}/redrive"
    answer = rig.say(path, {"reason": "upgraded"})
    assert answer.status_code == 200, answer.text


def test_a_job_begins_another_and_is_told_how_it_ended(rig: AclRig) -> None:
    tag = fresh("begins")
    job = rig.system.submit(flow_node("w", "several", tag=tag, children=1))
    rig.system.wait_ended([job], PATIENCE_S)
    assert rig.system.job(job)["result"] == {"w": [f"did {tag}-0"]}
    assert rig.external.count(f"{tag}-0") == 1


def test_what_was_submitted_is_found_by_its_receipt(rig: AclRig) -> None:
    folder = rig.system.data / "receipts"
    taken = Submitted.model_validate(
        rig.system.api.post("/jobs", json={"plan": {"nodes": [poke("a", fresh("receipted"))]}}).json()
    )
    keep(taken, folder)
    url = str(rig.system.api.base_url).removesuffix("/").removesuffix("/api")
    env = {"AETHERIS_URL": url, "AETHERIS_TOKEN": token_of("n")}
    audited = ("seals", "audit", "--receipts", str(folder), "--installation", rig.system.installation)
    until(lambda: rig.command(*audited, env=env).get("sealed") == 1, PATIENCE_S)


def test_what_people_say_of_workers_tools_and_freezes_is_taken(rig: AclRig) -> None:
    worker, life = fresh("worker"), LifeWords.of(os.urandom(SECRET_BYTES)).incarnation
    lives = WorkerEntry(worker_id=worker, live=life)
    rig.write([(draft(Topic.WORKERS, lives, key=worker, id=fresh("e"), source="/test", time="t"),)])
    until(lambda: worker in rig.system.api.get("/workers").text, PATIENCE_S)
    assert rig.say(f"/workers/{worker}/end", {"evidence": "its machine was taken away"}).status_code == 200
    assert rig.say("/tools/poke_pure/release", {"reason": "mended"}).status_code == 200
    scope = {"tenant": "default", "tool": "poke_opaque", "reason": "a test"}
    assert [rig.say(path, scope).status_code for path in ("/freezes", "/freezes/end")] == [200, 200]
    once = {"id": "a", "tool": "once_a_session", "args": {"tag": fresh("once")}}
    job = rig.system.submit(once, session=fresh("session"))
    asked = rig.system.wait_asked(job, PATIENCE_S)
    assert rig.say("/ecs/respond", {"request_id": asked["request_id"], "action": "approve"}).status_code == 200
    rig.system.wait_status(job, "completed", PATIENCE_S)
    assert rig.system.api.get("/audit", headers=rig.system.approver).json()["records"]


def test_a_persons_value_is_hidden_opened_and_erased_in_the_log_of_seals(rig: AclRig) -> None:
    subject = fresh("person")
    job = rig.system.submit(
        {"id": "a", "tool": "echo", "args": {"customer": subject, "email": f"{subject}@example.org"}}
    )
    rig.system.wait_status(job, "completed", PATIENCE_S)
    opened = rig.system.api.get(f"/jobs/{job}/openings").json()["openings"]
    assert f"{subject}@example.org" in [one["value"] for one in opened]

    def is_logged() -> bool:
        erased = rig.say("/subjects/erase", {"subject": subject})
        return erased.status_code == 200 and bool(erased.json().get("lines"))

    until(is_logged, PATIENCE_S)
    rig.system.wait_sealed(job)


def test_archived_jobs_are_deleted_and_shown_all_the_same(rig: AclRig) -> None:
    jobs = [rig.system.completed(poke("a", fresh("archived"))) for _ in range(3)]
    before = [rig.system.job(job) for job in jobs]
    make_deletable(rig, jobs)
    gone = rig.deletion()
    assert all(gone[partition_of(job, PARTITIONS)]["until"] for job in jobs)
    left = rig.deletion("--dry-run")
    assert all(left[partition_of(job, PARTITIONS)]["begin"] for job in jobs)
    assert [rig.system.job(job) for job in jobs] == before
    assert all(rig.system.verified(job)["seal"]["ok"] for job in jobs)
    assert rig.system.api.get("/jobs/nobody").status_code == 404


def make_deletable(rig: AclRig, jobs: Sequence[str]) -> None:
    """Have jobs archived, and so much behind them that nobody needs what lies before."""
    archive = rig.system.data / "blobs" / "archive"
    until(lambda: {path.name.split(".")[0] for path in archive.glob("*/*/*.zip")} >= {*jobs}, PATIENCE_S)
    numbers = {partition_of(job, PARTITIONS) for job in jobs}
    before = rig.deletion("--dry-run")
    headers = (("ce_type", b"io.example.filler.v1"),)
    for number in numbers:
        filler = Draft(EVENTS, b"filler:filler", b"{}", headers, number)
        rig.write([(filler,) * AT_ONCE for _ in range(REACH // AT_ONCE + 1)])
    held = {}

    def may_go() -> bool:
        found = rig.deletion("--dry-run")
        held.update({at: found[at]["held_by"] for at in numbers})
        return all(found[at]["until"] > before[at]["until"] for at in numbers)

    try:
        until(may_go, PATIENCE_S)
    except TimeoutError:
        raise AssertionError(held) from None


def test_later_rules_are_ordered(rig: AclRig) -> None:
    shown = rig.system.api.get("/rules", headers=rig.system.approver).json()
    assert {one["service"]: one["known"] for one in shown["services"]} == {service: [1, 2] for service in SERVICES}
    ordered = rig.say("/rules", {"version": 2, "reason": "a test"})
    assert (ordered.status_code, ordered.json().get("answered")) == (200, PARTITIONS), ordered.text
    job = rig.system.completed(poke("a", fresh("later")))
    assert [one["rules"] for one in rig.system.data_of(job, "job_created")] == [2]
    rig.system.wait_sealed(job)


def test_every_right_was_used_and_none_is_missing(secured: Secured, rig: AclRig) -> None:
    users = {name(user) for user in kafka_users()}
    assert secured.missed(users) == set(), rig.system.data
    used = secured.said("Allowed")
    unused = {right for right in granted() if not any(right.covers(one) for one in used)}
    assert unused == FOR_OTHERS


def taken_away(user: str, operation: str, what: str, name: str) -> Right:
    """A right that there is."""
    right = Right.of(f"aetheris-{user}", operation, what, name)
    assert right in granted()
    return right


@pytest.mark.parametrize(
    ("right", "path"),
    [
        (("gateway", "Read", "topic", Topic.JOBS_COMMANDS), "/jobs/nobody"),
        (("gateway", "Describe", "group", "aetheris.planner"), "/rules"),
        (("gateway", "Read", "topic", Topic.ACCESS_RECORDS), "/audit"),
    ],
)
def test_what_a_gateway_may_not_ask_it_does_not_answer(
    secured: Secured, rig: AclRig, right: tuple[str, str, str, str], path: str
) -> None:

    def answer() -> int:
        rig.system.submit(poke("a", fresh("news"), tool="poke_pure"))
        return rig.system.api.get(path, headers=rig.system.approver).status_code

    before = answer()
    with secured.without(taken_away(*right)):
        until(lambda: answer() == 503, PATIENCE_S)
    until(lambda: answer() == before, PATIENCE_S)


def test_a_gateway_that_may_not_be_seen_orders_no_rules_and_is_not_ready(secured: Secured, rig: AclRig) -> None:
    ready = f"http://127.0.0.1:{Ports(rig.system.data).get('gateway-health')}/readyz"
    with secured.without(taken_away("gateway", "Read", "group", "aetheris.gateway")):
        until(lambda: "attendance" in httpx.get(ready, trust_env=False).json()["unready"], PATIENCE_S)
        until(lambda: rig.say("/rules", {"version": 2, "reason": "again"}).status_code == 503, PATIENCE_S)
    until(lambda: httpx.get(ready, trust_env=False).status_code == 200, PATIENCE_S)


def test_who_deletes_needs_both_of_its_rights(secured: Secured, rig: AclRig) -> None:
    env = secured.env(DELETION)
    argv = ["archive", "delete", "--data", str(rig.system.data), "--json"]
    with secured.without(taken_away("archive-deletion", "Describe", "group", "*")):

        def is_held() -> bool:
            return all("has no mark there" in one["held_by"] for one in rig.deletion("--dry-run").values())

        until(is_held, PATIENCE_S)
    until(lambda: not is_held(), PATIENCE_S)
    make_deletable(rig, [rig.system.completed(poke("a", fresh("deletable")))])
    with secured.without(taken_away("archive-deletion", "Delete", "topic", Topic.JOBS_EVENTS)):
        begins = {number: one["begin"] for number, one in rig.deletion("--dry-run").items()}
        until(lambda: CliRunner().invoke(app, argv, env=env).exit_code == Exit.UNREACHABLE, PATIENCE_S)
        assert {number: one["begin"] for number, one in rig.deletion("--dry-run").items()} == begins


def test_an_auditor_that_may_not_name_a_bundle_archives_nothing(secured: Secured, rig: AclRig) -> None:
    right = taken_away("verifier", "Write", "topic", Topic.JOBS_ARCHIVE)
    with secured.without(right):
        job = rig.system.completed(poke("a", fresh("unnamed")))
        until(lambda: right in secured.said("Denied"), PATIENCE_S)
        assert rig.system.job(job)["status"] == "completed"


async def test_nobody_writes_what_is_not_theirs(secured: Secured) -> None:
    everything = [*map(str, Topic), *(dead_letters(str(topic)) for topic in Topic)]
    for user in kafka_users():
        acls = user["spec"]["authorization"]["acls"]
        own = {acl["resource"]["name"] for acl in acls if "Write" in acl["operations"]}
        async with secured.producer(name(user)) as producer:
            for topic in sorted(set(everything) - own):
                with pytest.raises(TopicAuthorizationFailedError):
                    await producer.send_and_wait(topic, b"{}", key=b"forged")


async def test_who_runs_probes_can_not_write_the_log_of_seals(secured: Secured) -> None:
    async with secured.producer("aetheris-prober") as prober:
        for topic in (Topic.JOBS_SEALS, Topic.AUDIT_CHECKPOINTS, Topic.VERIFICATIONS):
            with pytest.raises(TopicAuthorizationFailedError):
                await prober.send_and_wait(topic, b"{}", key=b"forged")
    async with secured.producer("aetheris-verifier") as verifier:
        await verifier.send_and_wait(Topic.JOBS_SEALS, b"no seal", key=b"garbage")


async def test_without_a_certificate_nobody_is_heard(secured: Secured) -> None:
    producer = secured.producer(None)
    try:
        with pytest.raises(KafkaConnectionError):
            await producer.start()
    finally:
        await producer.stop()
