"""The whole system for a test: real Kafka, real Valkey, every service its own process, and its API."""

import asyncio
import os
import signal
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import redis

from aetheris.cli import local, token_files
from aetheris.cli.embedded import lifecycle
from aetheris.cli.embedded.plan import State
from aetheris.cli.embedded.services import with_counts
from aetheris.cli.fromlog import read_log
from aetheris.protocol.base.records import Draft, Group, Record
from aetheris.protocol.base.signing import key_id_of
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.fold.provenance import Provenance
from aetheris.protocol.messages.commands import Message
from aetheris.protocol.messages.envelope import Envelope, decode_event, draft
from aetheris.protocol.messages.events import Event
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.kafka.log import KafkaLog
from aetheris.runtime.keys.files import ROOT, load_key, load_service_key
from aetheris.runtime.keys.records import RecordSigner
from aetheris.runtime.keys.signing import Signer, raw_public_key
from aetheris.runtime.log.replay import replay
from aetheris.runtime.process.crash import ORDERS
from tests.testkit.attempts import cleared_by
from tests.testkit.external_server import until

REPOSITORY = Path(__file__).parent.parent.parent
ENDED = frozenset({"completed", "failed", "cancelled"})
ANSWER_S = "20"
"""Before a command is answered with 202: a busy machine must not show as an answer that came too late."""


async def records_at(brokers: str, topic: str) -> list[Record]:
    """All that a topic holds now."""
    log, found = KafkaLog(brokers), list[Record]()
    await log.start()
    try:
        for number in range(await log.partitions(topic)):
            place = (str(topic), number)
            begin, end = (await log.beginning_offsets([place]))[place], (await log.end_offsets([place]))[place]
            async for records in replay(log, place, begin, end):
                found += records
    finally:
        await log.stop()
    return found


@dataclass(frozen=True)
class System:
    """What runs on a data folder."""

    data: Path
    api: httpx.Client

    def state(self) -> State:
        """As the supervisor last wrote it."""
        state = State.load(self.data)
        assert state is not None
        return state

    def pid(self, name: str) -> int:
        """The process of a part, such as executor-0; waits while it is being restarted."""
        found: list[int] = []

        def runs() -> bool:
            pid = self.state().parts[name].pid
            found.extend([pid] if pid is not None else [])
            return bool(found)

        until(runs, 20)
        return found[0]

    def kill(self, name: str) -> None:
        """kill -9 a part, and return once the supervisor has started its successor."""
        old = self.pid(name)
        os.kill(old, signal.SIGKILL)
        until(lambda: self.state().parts[name].pid not in (None, old), 20)

    @contextmanager
    def asleep(self, name: str) -> Generator[None]:
        """SIGSTOP to a part, and SIGCONT at the end."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def die_at(self, place: str) -> None:
        """Whoever next gets to this place dies there, where services were started with ORDERED (runtime's crash)."""
        staged = self.data / f"{ORDERS}.new"
        staged.write_text(place)
        staged.replace(self.data / ORDERS)

    def has_died(self) -> bool:
        """Whether somebody has followed the last order."""
        return not (self.data / ORDERS).exists()

    @contextmanager
    def all_killed(self) -> Generator[None]:
        """Inside no service lives: they are killed with -9, and the supervisor starts them again at the end."""
        supervisor = lifecycle.supervisor_pid(self.data)
        assert supervisor is not None
        servers = {"kafka", "valkey"}
        pids = [self.pid(name) for name in self.state().parts if name not in servers]
        os.kill(supervisor, signal.SIGSTOP)
        try:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            yield
        finally:
            os.kill(supervisor, signal.SIGCONT)

    def wait_ready(self, deadline_s: float = 60.0, *parts: str) -> None:
        """Return once every part says that it is ready; or each of these."""
        if parts:
            until(lambda: all(lifecycle.status(self.data).parts[one].ready for one in parts), deadline_s)
        else:
            until(lambda: lifecycle.status(self.data).ready, deadline_s)

    def mend(self) -> None:
        """Wake who sleeps, forget orders to die, and return once every part is ready.

        Raises:
            TimeoutError: one isn't.
        """
        (self.data / ORDERS).unlink(missing_ok=True)
        for part in self.state().parts.values():
            with suppress(ProcessLookupError):
                if part.pid is not None:
                    os.kill(part.pid, signal.SIGCONT)
        self.wait_ready()

    def flush_redis(self) -> None:
        """FLUSHALL."""
        with redis.Redis.from_url(self.state().redis) as client:
            client.flushall()

    @property
    def installation(self) -> str:
        """The key id of its root: who runs a service of it elsewhere names it."""
        return key_id_of(raw_public_key(load_key(self.data / "keys" / "records" / ROOT)))

    def append(self, event: Event, source: str) -> None:
        """Write an event of a job to the log, as a service that is none of ours might."""
        self.forge(Topic.JOBS_EVENTS, event.job_id, event, source)

    def append_as(self, party: Party, event: Event, keys: Path | None = None) -> None:
        """Write an event of a job, signed, as a service of ours that works for somebody else might, revoked or not."""
        held = load_service_key(keys or self.data / "keys" / "records", party)
        job = Provenance()
        for raw in asyncio.run(read_log(self.state().kafka, event.job_id, ())).records:
            record = Record(Topic.JOBS_EVENTS, 0, raw.offset, 0, raw.key, raw.headers, raw.value)
            found = decode_event(record)
            if isinstance(found, Envelope):
                job.judge(record, found.body)
        if (signers := job.signers_of(event.job_id)) is not None:
            signers.revoked.clear()
        signer = RecordSigner({party: Signer(held.private_key, held.certificate)}, SystemClock())
        ((signed,),) = signer.signed([(_drafted(Topic.JOBS_EVENTS, event.job_id, event, f"/{party}/rogue"),)], job)
        self._write(signed)

    def forge(self, topic: Topic, key: str, body: Event | Message, source: str) -> None:
        """Write a record, as somebody might who may write to the topic."""
        self._write(_drafted(topic, key, body, source))

    def say_as(self, party: Party, topic: Topic, key: str, body: Message) -> None:
        """Write a message, signed, as a service of ours might that looks at nothing before."""
        held = load_service_key(self.data / "keys" / "records", party)
        signer = RecordSigner({party: Signer(held.private_key, held.certificate)}, SystemClock())
        self._write(signer.message(_drafted(topic, key, body, f"/{party}/rogue")))

    def _write(self, record: Draft) -> None:
        self.write([(record,)])

    def write(self, groups: Sequence[Group]) -> None:
        """Append groups of records, as somebody might who may write to their topics."""

        async def write() -> None:
            log = KafkaLog(self.state().kafka)
            appender = log.appender()
            await log.start()
            try:
                await appender.start()
                await appender.append(groups)
                await appender.stop()
            finally:
                await log.stop()

        asyncio.run(write())

    def ends(self, *topics: str) -> dict[tuple[str, int], int]:
        """The end offset of each of the topics' partitions, as Kafka says."""

        async def ask() -> dict[tuple[str, int], int]:
            log = KafkaLog(self.state().kafka)
            await log.start()
            try:
                return await log.end_offsets([(one, at) for one in topics for at in range(await log.partitions(one))])
            finally:
                await log.stop()

        return asyncio.run(ask())

    def records(self, topic: str) -> list[Record]:
        """All that a topic holds now."""

        return asyncio.run(records_at(self.state().kafka, topic))

    def submit(self, *nodes: dict[str, Any], **more: Any) -> str:
        """Submit a plan, and what else the request says; the job's id."""
        return self._submit(plan={"nodes": list(nodes)}, **more)

    def submit_goal(self, goal: str, tools: Sequence[str] = ("poke_*",), **more: Any) -> str:
        """Submit a goal, and what else the request says; the job's id."""
        return self._submit(goal=goal, tools=list(tools), **more)

    def _submit(self, **request: Any) -> str:
        answer = self.api.post("/jobs", json=request)
        assert answer.status_code == 202, answer.text
        return answer.json()["job_id"]

    def completed(self, *nodes: dict[str, Any], **more: Any) -> str:
        """Submit a plan; the id of its job, once that has completed."""
        job_id = self.submit(*nodes, **more)
        self.wait_ended([job_id])
        job = self.job(job_id)
        assert job["status"] == "completed", job
        return job_id

    def signal(self, job_id: str, key: str, payload: Any = None, by: dict[str, str] | None = None) -> httpx.Response:
        """What a job waits for; `by` is the header of who says it, where it isn't the submitter."""
        body = {"correlation_key": key, "payload": payload}
        return self.api.post(f"/jobs/{job_id}/signal", json=body, headers=by)

    @property
    def approver(self) -> dict[str, str]:
        """The header of somebody who submits nothing, and so may decide."""
        return {"Authorization": f"Bearer {token_files.saved(self.data, token_files.APPROVER)}"}

    def resolve(self, job_id: str, node: str, verdict: str, evidence: str = "looked", **more: Any) -> httpx.Response:
        """What becomes of a parked step, by the approver's word."""
        (step,) = (step for step in self.job(job_id)["steps"] if step["node_id"] == node)
        path = f"/jobs/{job_id}/contracts/{step['execution_id']}/resolve"
        body = {"verdict": verdict, "evidence": evidence, **more}
        return self.api.post(path, json=body, headers=self.approver)

    def job(self, job_id: str) -> dict[str, Any]:
        """A job as the API shows it; {} while the gateway can't say."""
        try:
            answer = self.api.get(f"/jobs/{job_id}")
        except httpx.TransportError:
            return {}
        return answer.json() if answer.status_code == 200 else {}

    def events(self, job_id: str, *types: str) -> list[dict[str, Any]]:
        """The job's events, of these types; of all where none is named."""
        found = self.api.get(f"/jobs/{job_id}/events").json()
        return [event for event in found if not types or event["type"] in types]

    def types(self, job_id: str, *types: str) -> list[str]:
        """The types of the job's events, of these types."""
        return [event["type"] for event in self.events(job_id, *types)]

    def data_of(self, job_id: str, *types: str) -> list[dict[str, Any]]:
        """What the job's events of these types say."""
        return [event["data"] for event in self.events(job_id, *types)]

    def wait_sealed(self, job_id: str, deadline_s: float = 60.0) -> dict[str, Any]:
        """The job's seal, once it is there."""
        found: list[dict[str, Any]] = []

        def is_there() -> bool:
            answer = self.api.get(f"/jobs/{job_id}/events", params={"type": "job_sealed"})
            found[:] = answer.json() if answer.status_code == 200 else []
            return bool(found)

        until(is_there, deadline_s)
        return found[0]["data"]

    def report(self, job_id: str) -> dict[str, Any]:
        """The verifier's report on a job, asked for again while it can't be had (503); shows any other answer."""
        found: list[httpx.Response] = []

        def answered() -> bool:
            found[:] = [self.api.get(f"/jobs/{job_id}/verify")]
            return found[0].status_code != 503

        with suppress(TimeoutError):
            until(answered, 60)
        assert found[0].status_code == 200, found[0].text
        return found[0].json()

    def verified(self, job_id: str) -> dict[str, Any]:
        """The report on a job whose proofs hold; shows it where they don't."""
        report = self.report(job_id)
        assert report["ok"], report
        return report

    def wait_ended(self, jobs: Iterable[str], deadline_s: float = 60.0) -> None:
        """Return once all of them have ended; names those that haven't."""
        open_jobs = set(jobs)

        def none_open() -> bool:
            open_jobs.difference_update([job for job in open_jobs if self.job(job).get("status") in ENDED])
            return not open_jobs

        try:
            until(none_open, deadline_s)
        except TimeoutError:
            shown = [self.job(job_id) for job_id in list(open_jobs)[:3]]
            raise AssertionError(f"{len(open_jobs)} jobs are open after {deadline_s} s, such as {shown}") from None

    def wait_asked(self, job_id: str, deadline_s: float = 30.0, *, after: str = "") -> dict[str, Any]:
        """The job's request for a human's word, not the one `after`, once the list shows it: that follows the log."""
        found: list[dict[str, Any]] = []

        def listed() -> bool:
            requests = self.api.get("/approvals", params={"limit": 200}).json().get("approvals", [])
            found[:] = [one for one in requests if one["job_id"] == job_id and one["request_id"] != after]
            return bool(found)

        until(listed, deadline_s)
        return found[0]

    def wait_status(self, job_id: str, status: str, deadline_s: float = 30.0) -> dict[str, Any]:
        """Return the job once it has this status."""
        until(lambda: self.job(job_id).get("status") == status, deadline_s)
        return self.job(job_id)


def _drafted(topic: Topic, key: str, body: Event | Message, source: str) -> Draft:
    return draft(topic, body, key=key, id=str(uuid4()), source=source, time=datetime.now(UTC).isoformat())


@contextmanager
def running_system(data: Path, env: dict[str, str], **counts: int) -> Generator[System]:
    """Everything up, and down again; `env` is what services see on top, such as AETHERIS_TOOLS."""
    given = {"PYTHONPATH": str(REPOSITORY), "AETHERIS_ANSWER_S": ANSWER_S, **env}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        token_files.ensure_tokens(data)
        state = lifecycle.up(data, services=with_counts(counts), progress=lambda _part, _state: None)
    finally:
        _restore(before)
    try:
        token = local.target(data).token
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=f"{state.gateway}/api", headers=headers, timeout=60, trust_env=False) as api:
            system = System(data, api)
            with cleared_by(system.mend):
                yield system
    finally:
        lifecycle.down(data)


def _restore(before: dict[str, str | None]) -> None:
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
