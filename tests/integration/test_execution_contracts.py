"""An irreversible mail, against a real mail server that is away, then there: contracts, retries, duplicates."""

import json
import mailbox
import smtplib
import sys
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aetheris.cli.embedded.ports import free_port
from aetheris.cli.embedded.processes import end, spawn
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.policies import ALLOW_ALL, ruled_by
from tests.testkit.rig import wait
from tests.testkit.system import System, running_system

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]


@dataclass(frozen=True)
class MailRig:
    """A system whose tool sends mail to a server on `port`."""

    system: System
    maildir: Path
    port: int

    def ended(self, *nodes: dict[str, Any], session: str | None = None) -> list[dict[str, Any]]:
        job = self.system.submit(*nodes, session=session)
        self.system.wait_ended([job])
        return self.contracts(job)

    def contracts(self, job: str, level: str = "transition") -> list[dict[str, Any]]:
        return self.system.api.get(f"/jobs/{job}/contracts", params={"level": level}).json()["contracts"]

    def mails(self, subject: str) -> int:
        if not self.maildir.exists():
            return 0
        return sum(message["Subject"] == subject for message in mailbox.Maildir(self.maildir, create=False))

    @contextmanager
    def mail_server(self) -> Generator[None]:
        handler = ["-c", "aiosmtpd.handlers.Mailbox", str(self.maildir)]
        argv = [sys.executable, "-m", "aiosmtpd", "-n", "-l", f"127.0.0.1:{self.port}", *handler]
        child = spawn(argv, log=self.maildir.with_suffix(".log"))
        try:
            until(lambda: answers(self.port), 60)
            yield
        finally:
            end(child, 5)


def answers(port: int) -> bool:

    try:
        with smtplib.SMTP("127.0.0.1", port, timeout=1):
            return True
    except OSError:
        return False


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[MailRig]:
    folder = tmp_path_factory.mktemp("contracts")
    port = free_port()
    env = {"AETHERIS_TOOLS": "tests.testkit.mail_tools", "MAIL_PORT": str(port), **ruled_by(folder, ALLOW_ALL)}
    with running_system(folder / "data", env) as system:
        yield MailRig(system, folder / "mail", port)


def mail(node: str, subject: str, *after: str, **more: Any) -> dict[str, Any]:
    args = {"to": "bob@example.com", "subject": subject}
    return {"id": node, "tool": "send_mail", "args": args, "depends_on": list(after)} | more


def moves(contract: dict[str, Any]) -> list[str]:
    return [f"{moved['from']}→{moved['to']}" for moved in contract["transitions"]]


def test_a_failed_mail_may_be_sent_again_and_a_sent_one_may_not(rig: MailRig) -> None:
    """The server is away: failed, for sure. It comes back: the retry, a node of its own, goes out; a third does not."""
    session, subject = str(uuid.uuid4()), fresh("meeting")
    (failed,) = rig.ended(mail("mail", subject, retry={"max_attempts": 1}), session=session)
    assert moves(failed) == ["pending→running", "running→failed"]
    assert (failed["outcome"], failed["has_effect"], failed["duplicate_of"]) == ("failed", "none", None)
    assert "ConnectionRefused" in failed["error_message"]
    with rig.mail_server():
        (sent,) = rig.ended(mail("mail.r2", subject), session=session)
        assert moves(sent) == ["pending→running", "running→completed"]
        assert (sent["outcome"], sent["has_effect"], sent["result"]) == ("completed", "confirmed", {"said": "sent"})
        assert rig.mails(subject) == 1
        (third,) = rig.ended(mail("mail.r3", subject), session=session)
        assert (third["status"], third["has_effect"]) == ("rejected", "none")
        assert third["duplicate_of"]["execution_id"] == sent["execution_id"]
        assert rig.mails(subject) == 1
        (elsewhere,) = rig.ended(mail("mail", subject), session=str(uuid.uuid4()))
        (meant,) = rig.ended(mail("mail", subject, occurrence=2), session=session)
        assert (elsewhere["status"], meant["status"], rig.mails(subject)) == ("completed", "completed", 3)


def test_a_mail_that_waits_for_a_yes_goes_out_once_in_the_worked_order(rig: MailRig) -> None:
    """Asked, suspended, answered, resumed; only then does the mail start, and each move follows from an event."""
    subject = fresh("invitation")
    confirm = {"id": "confirm", "kind": "human", "form": {"title": "Send the invitation to bob@example.com?"}}
    with rig.mail_server():
        job = rig.system.submit(confirm, mail("mail", subject, "confirm"))
        rig.system.wait_status(job, "waiting")
        asked, deferred = rig.contracts(job)
        assert (asked["action_type"], moves(asked)) == ("ecs_request", ["pending→running", "running→waiting"])
        assert (deferred["action_type"], deferred["status"], deferred["irreversible"]) == ("tool_call", "pending", True)
        assert rig.mails(subject) == 0
        answer = {"request_id": f"{job}:{asked['execution_id']}", "action": "approve"}
        assert rig.system.api.post("/ecs/respond", json=answer, headers=rig.system.approver).status_code == 200
        rig.system.wait_ended([job])
        assert rig.system.api.post("/ecs/respond", json=answer, headers=rig.system.approver).status_code == 200
        assert rig.mails(subject) == 1
    contracts = rig.contracts(job)
    order = {event["id"]: event["seq"] for event in rig.system.events(job)}
    moved = [
        (order[one["event_id"]], contract["node_id"], one) for contract in contracts for one in contract["transitions"]
    ]
    trace = [f"{node}: {one['from']}→{one['to']}" for _, node, one in sorted(moved, key=lambda found: found[0])]
    assert trace == [
        "confirm: pending→running",
        "confirm: running→waiting",
        "confirm: waiting→running",
        "confirm: running→completed",
        "mail: pending→running",
        "mail: running→completed",
    ]
    assert (contracts[1]["result"], contracts[1]["has_effect"]) == ({"said": "sent"}, "confirmed")


def test_one_mail_twice_in_a_plan_goes_out_once(rig: MailRig) -> None:
    twice, meant = fresh("twice"), fresh("twice!")
    with rig.mail_server():
        job = rig.system.submit(mail("one", twice), mail("two", twice, "one"))
        rig.system.wait_ended([job])
        first, second = rig.contracts(job)
        assert rig.mails(twice) == 1
        assert (first["status"], second["status"], second["outcome"]) == ("completed", "rejected", "rejected")
        assert second["duplicate_of"] == {"job_id": job, "node_id": "one", "execution_id": first["execution_id"]}
        reports = {body["node_id"]: body for body in rig.system.data_of(job, "node_finished")}
        assert reports["two"]["duplicate_of"] == second["duplicate_of"]
        rig.system.verified(job)
        both = rig.ended(mail("one", meant), mail("two", meant, "one", occurrence=2))
        assert ([one["status"] for one in both], rig.mails(meant)) == (["completed", "completed"], 2)


def test_a_stream_tells_every_move_before_its_event(rig: MailRig) -> None:
    with rig.mail_server():
        job = rig.system.submit(mail("mail", fresh("told")), wait("w", "k", "mail"))
        rig.system.wait_status(job, "waiting")
    rig.system.signal(job, "k", 1)
    reported: list[tuple[str, dict[str, Any]]] = []
    with rig.system.api.stream("GET", f"/jobs/{job}/events", headers={"accept": "text/event-stream"}) as answer:
        name = "message"
        for line in answer.iter_lines():
            if line.startswith("event:"):
                name = line.removeprefix("event:").strip()
            elif line.startswith("data:"):
                reported.append((name, json.loads(line.removeprefix("data:"))))
                name = "message"
    seen = [(data["node_id"], data["from"], data["to"]) for name, data in reported if name == "execution_state"]
    by_contract = [
        (contract["node_id"], moved["from"], moved["to"])
        for contract in rig.contracts(job)
        for moved in contract["transitions"]
    ]
    assert seen == by_contract
    for place, (name, data) in enumerate(reported):
        if name == "execution_state":
            event = next(later for kind, later in reported[place:] if kind != "execution_state")
            assert event["id"] == data["event_id"]
    assert [data["seq"] for name, data in reported if name != "execution_state"] == list(
        range(1, 1 + len(reported) - len(seen))
    )


def test_what_is_shown_depends_on_the_level(rig: MailRig) -> None:
    subject = fresh("levels")
    with rig.mail_server():
        job = rig.system.submit(mail("mail", subject))
        rig.system.wait_ended([job])
    shown, request = rig.contracts(job, "result")[0], rig.contracts(job, "request")[0]
    assert not {"transitions", "idempotency_key", "timeout_seconds", "action_detail"} & set(shown)
    assert request["action_detail"]["arguments"] == {"to": "bob@example.com", "subject": subject}
    refused = rig.system.api.get(f"/jobs/{job}/contracts", params={"level": "all"})
    assert (refused.status_code, refused.json()["error"]["details"]["field"]) == (400, "level")
    assert rig.system.api.get("/jobs/no-such-job/contracts").status_code == 404
