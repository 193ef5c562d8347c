"""Who works for a forger, with the very rights of a service at the brokers and its key, writes what is not his.

What came of it is read off the running system, and is the table of docs/threat-model.md, cell by cell.
"""

import asyncio
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import TopicAuthorizationFailedError

from aetheris.cli.fromlog import read_log
from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.words import SECRET_BYTES, LifeWords
from aetheris.protocol.base.writers import Party
from aetheris.protocol.fold.provenance import Provenance
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Cancel, FreezeOrder, Message, RegistryEntry, WorkerEnd, WorkerEntry
from aetheris.protocol.messages.envelope import Envelope, decode_event, draft
from aetheris.protocol.messages.events import Event
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.kafka.bootstrap import client_options
from aetheris.runtime.keys.files import load_service_key
from aetheris.runtime.keys.records import RecordSigner
from aetheris.runtime.keys.signing import Signer
from aetheris.runtime.log.partitioning import partition_of
from tests.deploy.manifests import kubectl_needed
from tests.deploy.secured_brokers import PARTITIONS, PATIENCE_S, Secured, running_services, secured_brokers, signing
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.rig import Rig, poke
from tests.testkit.system import System

pytestmark = [pytest.mark.full, pytest.mark.real, pytest.mark.timeout(900), kubectl_needed]

PAGE = Path(__file__).parents[2] / "docs/threat-model.md"
Attempt = tuple[Topic, str, Message, Callable[[], bool]]
"""Where it is written, under which key, what, and whether it has come to anything."""

NO_RIGHT, VOID, COUNTS = "no right", "void", "counts"


@dataclass(frozen=True)
class Forger:
    """As whom he writes; what he has to sign with."""

    title: str
    user: str | None
    """None: the brokers' administrator."""
    party: Party | None = None

    @property
    def source(self) -> str:
        return f"/forger/{self.title.partition(',')[0].replace(' ', '-')}"


FORGERS = (
    Forger("executor", "aetheris-tool-executor"),
    Forger("prober, its key", "aetheris-prober", Party.PROBER),
    Forger("planner, its key", "aetheris-planner", Party.PLANNER),
    Forger("ledger, its key", "aetheris-ledger", Party.LEDGER),
    Forger("gateway, its key", "aetheris-gateway", Party.GATEWAY),
    Forger("broker's administrator", None),
)


@dataclass(frozen=True)
class Fight:
    """The running system, how anything is written to it, and the services' keys."""

    rig: Rig
    secured: Secured
    keys: Path

    def write(self, forger: Forger, record: Draft) -> bool:
        """Whether the brokers take it."""
        return asyncio.run(self._write(forger, record))

    async def _write(self, forger: Forger, record: Draft) -> bool:
        producer = AIOKafkaProducer(**client_options(self.secured.plain)) if forger.user is None else None
        producer = producer or self.secured.producer(forger.user)
        await producer.start()
        try:
            at = partition_of(record.key.decode(), PARTITIONS) if record.topic != Topic.FREEZES else 0
            headers = list(record.headers)
            await producer.send_and_wait(record.topic, record.value, key=record.key, partition=at, headers=headers)
        except TopicAuthorizationFailedError:
            return False
        finally:
            await producer.stop()
        return True

    def event(self, forger: Forger, event: Event) -> Draft:
        """What he writes into a job, signed with what he has."""
        record = _drafted(Topic.JOBS_EVENTS, event.job_id, event, forger.source)
        if forger.party is None:
            return record
        job = Provenance()
        for raw in asyncio.run(read_log(self.secured.plain, event.job_id, ())).records:
            found = decode_event(Record(Topic.JOBS_EVENTS, 0, raw.offset, 0, raw.key, raw.headers, raw.value))
            if isinstance(found, Envelope):
                job.judge(Record(Topic.JOBS_EVENTS, 0, raw.offset, 0, raw.key, raw.headers, raw.value), found.body)
        ((signed,),) = self._signer(forger.party).signed([(record,)], job)
        return signed

    def message(self, forger: Forger, topic: Topic, key: str, body: Message) -> Draft:
        """What he writes elsewhere, signed with what he has."""
        record = _drafted(topic, key, body, forger.source)
        return record if forger.party is None else self._signer(forger.party).message(record)

    def _signer(self, party: Party) -> RecordSigner:
        held = load_service_key(self.keys, party)
        return RecordSigner({party: Signer(held.private_key, held.certificate)}, SystemClock())


@pytest.fixture(scope="module")
def fight(tmp_path_factory: pytest.TempPathFactory) -> Generator[Fight]:
    folder = tmp_path_factory.mktemp("forgers")
    keys, services = folder / "keys", folder / "services"
    services.mkdir()
    with secured_brokers(folder) as secured, running_services(secured, services, signing(keys)) as rig:
        yield Fight(rig, secured, keys)


# what is written into a job


def said(request: Mapping[str, Any]) -> dict[str, Event]:
    """Attack → what would let the call run, settle it, or end the job or what it waits for."""
    named = {key: request[key] for key in ("job_id", "node_id", "idempotency_key")}
    about = named | {key: request[key] for key in ("args_hash", "tool_version", "rule", "token") if key in request}
    tried, job = named | {"invocation_id": "0" * 64}, str(request["job_id"])
    sealed = {"event_count": 1, "root": "r", "chain": 2, "tree": "t", "execution_hash": "e", "outcome_hash": "o"}
    sealed |= {"signature": "s"}
    written: dict[str, tuple[type[Event], dict[str, Any]]] = {
        "a yes": (ev.ApprovalDecided, about | {"decision": "approve", "approver": "bob"}),
        "that the policy allows it": (ev.PolicyAllowed, about | {"rule": "r"}),
        "that it is not to run": (ev.InvocationRejected, named | {"reason": "cancelled"}),
        "a result, as of a probe": (
            ev.ToolInvocationFinished,
            tried | {"via": "probe", "outcome": "success", "result": {}},
        ),
        "a person's word that it failed": (
            ev.ToolInvocationFinished,
            tried | {"via": "human", "outcome": "permanent_failure", "error": "e"},
        ),
        "another try, by a person's word": (ev.InvocationReopened, tried | {"next_token": 2, "by": "human"}),
        "a probe's answer": (
            ev.InvocationProbed,
            tried | {"external_key": "k", "ask": "q", "answer": "not_found"},
        ),
        "that a worker has ended": (ev.WorkerEnded, {"worker_id": "w", "incarnation": "i", "how": "lock"}),
        "a freeze": (ev.JobFrozen, {"scope": {"tool": "none"}, "number": 1, "by": "ann", "at": ""}),
        "a violation": (ev.ViolationFound, {"rule": "r", "event_id": "e", "offset": 0, "message": "m"}),
        "another plan": (
            ev.PlanGenerated,
            {"revision": 7, "plan_hash": "h", "diff": {}, "planner": "p", "planner_version": "1"},
        ),
        "a pause": (ev.JobPaused, {"number": 1, "by": "ann"}),
        "a cancel": (ev.CancelRequested, {"by": "ann"}),
        "its end": (ev.JobCompleted, {}),
        "its seal": (ev.JobSealed, sealed | {"tenant": "default", "sealed_at": "2026-01-01T00:00:00Z", "key_id": "k"}),
    }
    return {attack: kind.model_validate({"job_id": job, **body}) for attack, (kind, body) in written.items()}


def into_a_job(fight: Fight, forger: Forger) -> dict[str, str]:
    """Attack → what came of it, where a call waits for a yes; what lists and proofs say of each is the same."""
    system, tag = fight.rig.system, fresh("forger")
    job = system.submit(poke("a", tag, tool="poke_irreversible"))
    system.wait_asked(job, PATIENCE_S)
    (request,) = system.data_of(job, "approval_requested")
    records = {attack: fight.event(forger, event) for attack, event in said(request).items()}
    taken = {attack: fight.write(forger, record) for attack, record in records.items()}
    ids = {attack: dict(record.headers)["ce_id"].decode() for attack, record in records.items()}
    written = {ids[attack] for attack, is_taken in taken.items() if is_taken}
    until(lambda: written <= {one["id"] for one in system.events(job)}, PATIENCE_S)
    void = {one["id"] for one in system.events(job) if one.get("void")} & written
    counting = written - void
    system.completed(poke("b", fresh("after"), tool="poke_pure"))
    if ids["a yes"] in counting:
        until(lambda: fight.rig.external.count(tag) == 1, PATIENCE_S)
    else:
        assert fight.rig.external.count(tag) == 0, forger.title
    if not counting & {ids[attack] for attack in ("a yes", "that it is not to run", "its end", "a cancel")}:
        assert system.job(job)["status"] == "waiting", forger.title
    until(lambda: void <= _named(system, job, "unproven", "after_seal"), PATIENCE_S)
    assert _named(system, job, "unproven") <= void, f"{forger.title}: what `aetheris verify` names"
    said_of = {True: VOID, False: COUNTS}
    return {attack: said_of[ids[attack] in void] if taken[attack] else NO_RIGHT for attack in ids}


def _named(system: System, job: str, *where: str) -> set[str]:
    report = system.report(job)
    return {one["event_id"] for what in where for one in report[what]}


# what is written elsewhere


def elsewhere(fight: Fight, forger: Forger) -> dict[str, str]:
    """Attack → what came of it, of commands and tables."""
    return {attack: _tried(fight, forger, attempt) for attack, attempt in _attempts(fight)}


def _tried(fight: Fight, forger: Forger, attempt: Attempt) -> str:
    topic, key, body, done = attempt
    if not fight.write(forger, fight.message(forger, topic, key, body)):
        return NO_RIGHT
    fight.rig.system.completed(poke("b", fresh("after"), tool="poke_pure"))
    try:
        until(done, 10)
    except TimeoutError:
        return VOID
    return COUNTS


def _attempts(fight: Fight) -> Iterator[tuple[str, Attempt]]:
    system = fight.rig.system
    job = system.submit(poke("a", fresh("command"), tool="poke_irreversible"))
    system.wait_asked(job, PATIENCE_S)
    cancel = Cancel(job_id=job, by="ann", tenant="default", reason="forged")
    over = lambda: system.job(job).get("status") == "cancelled"  # noqa: E731
    yield "a command, that the job is cancelled", (Topic.JOBS_COMMANDS, job, cancel, over)
    tool = fresh("tool")
    line = RegistryEntry.model_validate(
        {"name": tool, "version": "1", "schema": {"type": "object"}, "schema_hash": "s", "effect_class": "pure"}
    )
    yield "a line of a tool", (Topic.TOOLS_REGISTRY, line.key, line, lambda: tool in system.api.get("/tools").text)
    worker, life = fresh("worker"), LifeWords.of(os.urandom(SECRET_BYTES)).incarnation
    lives = WorkerEntry(worker_id=worker, live=life)
    is_shown = lambda: worker in system.api.get("/workers").text  # noqa: E731
    yield "a line of a worker, that it lives", (Topic.WORKERS, worker, lives, is_shown)

    def has_ended() -> bool:
        named = system.api.get(f"/workers/{worker}").json().get("ended", ())
        return life in {one["incarnation"] for one in named}

    ends = lives.model_copy(update={"live": None, "left": (life,), "ended": (life,)})
    yield "a line of a worker, that it has ended", (Topic.WORKERS, worker, ends, has_ended)
    said = WorkerEnd(worker_id=worker, incarnation=life, by="ann", evidence="forged")
    yield "a person's word that it has ended", (Topic.WORKERS, said.key, said, has_ended)
    scope = FreezeScope(tenant="default", tool=fresh("frozen"))
    order = FreezeOrder(scope=scope, number=1, frozen=True, by="ann", at=datetime.now(UTC).isoformat())
    is_listed = lambda: str(scope.tool) in system.api.get("/freezes", headers=system.approver).text  # noqa: E731
    yield "an order of a freeze", (Topic.FREEZES, order.key, order, is_listed)


def test_what_each_can_do_is_what_the_page_says(fight: Fight) -> None:
    found = {forger.title: into_a_job(fight, forger) | elsewhere(fight, forger) for forger in FORGERS}
    attacks = list(next(iter(found.values())))
    rows = [f"| {attack} | {' | '.join(found[forger.title][attack] for forger in FORGERS)} |" for attack in attacks]
    head = f"| who writes what is not so | {' | '.join(forger.title for forger in FORGERS)} |"
    table = [head, f"|{'---|' * (len(FORGERS) + 1)}", *rows]
    page = PAGE.read_text().splitlines()
    missing = [row for row in table if row not in page]
    assert missing == [], "\n".join(table)


def _drafted(topic: Topic, key: str, body: Event | Message, source: str) -> Draft:
    return draft(topic, body, key=key, id=str(uuid4()), source=source, time=datetime.now(UTC).isoformat())
