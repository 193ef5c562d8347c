"""People are told what waits for them, each once, whatever becomes of the notifier; counted where they are told."""

import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aetheris.cli import token_files
from aetheris.notifier.core import notices
from aetheris.protocol.base.ids import job_id_of
from aetheris.protocol.base.keys import idempotency_key
from aetheris.protocol.base.principals import PrincipalKind, Role
from aetheris.protocol.planning.approvals import request_id
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.notice_receivers import MailReceiver, ToldRequest, WebReceiver, mail_receiver, web_receiver
from tests.testkit.services import ServiceProcess, running_service
from tests.testkit.system import System, running_system
from tests.testkit.tokens import entry_of, headers_of, token_of

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

PATIENCE_S = 90.0
TENANT = "notices"
CONSOLE = "https://console.example.org"
SECRETS = """
[[secrets]]
name = "hook@1"
file = "hook"
uses = ["notify.webhook#/secret", "notify.webhook.deduplicated#/secret"]

[[secrets]]
name = "room@1"
file = "room"
uses = ["notify.slack#/secret"]
"""


@dataclass(frozen=True)
class NoticesRig:
    """A system whose executor tells, and who is told."""

    system: System
    web: WebReceiver
    mail: MailReceiver
    folder: Path

    @property
    def file(self) -> Path:
        """What routes the system's notices; its executor reads it at each call."""
        return self.folder / "notices.toml"

    def route(self, text: str) -> None:
        """Channels, on the receivers, and routes."""
        self.file.write_text(f"{self.channels}\n{text}")

    @property
    def channels(self) -> str:
        hooks = "".join(
            f'[[channels]]\nname = "{name}"\nkind = "webhook"\nurl = "{self.web.url}{path}"\nsecret = "hook@1"\n'
            f"private = {str(private).lower()}\n{more}\n"
            for name, path, private, more in (
                ("hook", "/ok/hook", True, ""),
                ("failing", "/status/500", True, ""),
                ("limited", "/status/403", True, ""),
                ("huge", "/huge", True, ""),
                ("away", "/away", True, ""),
                ("hanging", "/hang", True, ""),
                ("inside", "/ok/inside", False, ""),
            )
        )
        return f"""
[[channels]]
name = "finance"
kind = "mail"
to = ["finance@example.org"]
from = "aetheris@example.org"
server = "127.0.0.1:{self.mail.port}"

[[channels]]
name = "room"
kind = "slack"
secret = "room@1"
private = true

[[channels]]
name = "phone"
kind = "ntfy"
url = "{self.web.url}/ok/ntfy"
topic = "approvals"
private = true

{hooks}"""

    def ask(self, to: str = "ada", amount: float = 10, **more: Any) -> str:
        """A job that waits for an approval."""
        return self.system.submit({"id": "pay", "tool": "payout", "args": {"to": to, "amount": amount, **more}})

    def notices(self, status: str | None = None) -> list[dict[str, Any]]:
        """The jobs of the notifier, as who reads in its tenant sees them."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            asked = {"limit": 200, **({"cursor": cursor} if cursor else {}), **({"status": status} if status else {})}
            page = self.system.api.get("/jobs", params=asked, headers=headers_of("reader")).json()
            found += page["jobs"]
            cursor = page["cursor"]
            if cursor is None:
                return found


@contextmanager
def notifier(rig: NoticesRig, name: str = "notifier-0", **more: str) -> Generator[ServiceProcess]:
    (rig.folder / "token").write_text(token_of("notifier"))
    env: Mapping[str, str] = {
        "AETHERIS_KAFKA": rig.system.state().kafka,
        "AETHERIS_DATA": str(rig.folder / "notifier"),
        "AETHERIS_WORKER_ID": name,
        "AETHERIS_NOTICES": str(rig.file),
        "AETHERIS_GATEWAY_URL": rig.system.state().gateway,
        "AETHERIS_GATEWAY_TOKEN": str(rig.folder / "token"),
        "AETHERIS_CONSOLE_URL": CONSOLE,
        **more,
    }
    with running_service("notifier", rig.folder, env) as running:
        yield running


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[NoticesRig]:
    folder = tmp_path_factory.mktemp("notices")
    with ExitStack() as running:
        web = running.enter_context(web_receiver())
        mail = running.enter_context(mail_receiver(folder))
        (folder / "secrets.toml").write_text(SECRETS)
        (folder / "hook").write_text("a key that signs")
        (folder / "room").write_text(f"{web.url}/ok/room")
        env = {
            "AETHERIS_TOOLS": "tests.testkit.payment_tools,aetheris.notifier.notice_tools",
            "AETHERIS_SECRETS": str(folder / "secrets.toml"),
            "NOTICES_FILE": str(folder / "notices.toml"),
        }
        system = running.enter_context(running_system(folder / "data", env))
        with token_files.changed(folder / "data" / "tokens.toml") as entries:
            service = PrincipalKind.SERVICE
            entries.append(entry_of("notifier", TENANT, roles=(Role.SUBMIT,), kind=service))
            entries.append(entry_of("squatter", TENANT, roles=(Role.SUBMIT,), kind=PrincipalKind.AGENT))
            entries.append(entry_of("reader", TENANT, roles=(Role.READ, Role.READ_PAYLOADS)))
        yield NoticesRig(system, web, mail, folder)


def test_told_by_every_channel_with_a_link_and_nothing_that_was_not_asked_for(rig: NoticesRig) -> None:
    rig.route('[[routes]]\nname = "all"\ntell = ["finance", "hook", "room", "phone"]\nshow = ["/amount"]\n')
    with notifier(rig):
        job = rig.ask("mallory <http://evil.example>", 1200, note="SECRET words")
        until(lambda: any(job in mail for mail in rig.mail.mails()), PATIENCE_S)
        until(lambda: all(rig.web.at(f"/ok/{one}") for one in ("hook", "room", "ntfy")), PATIENCE_S)
    request = rig.system.wait_asked(job)["request_id"]
    link = f"{CONSOLE}/inbox/{request.replace(':', '%3A')}"
    (mail,) = [one for one in rig.mail.mails() if job in one]
    (hook,), (room,), (phone,) = (rig.web.at(f"/ok/{one}") for one in ("hook", "room", "ntfy"))
    for text in (re.sub(r"=\n", "", mail).replace("=3D", "="), *(one.body.decode() for one in (hook, room, phone))):
        assert link in text
        assert "1200" in text
        assert "mallory" not in text
        assert "SECRET" not in text
    assert hook.headers["webhook-signature"].startswith("v1,")
    assert json.loads(phone.body)["click"] == link
    assert rig.system.job(job)["status"] == "waiting", "a link that was fetched, and a notice, decide nothing"


def test_who_does_not_answer_is_escalated_though_the_notifier_is_dead_and_who_does_is_not(rig: NoticesRig) -> None:
    later = 'escalate = [{after_s = 8, tell = ["hook"]}, {after_s = 86400, tell = ["phone"]}]\n'
    rig.route(f'[[routes]]\nname = "all"\ntell = ["room"]\n{later}')
    with notifier(rig):
        answered, left = rig.ask(), rig.ask()
        until(lambda: all(_at(rig, "/ok/room", job) for job in (answered, left)), PATIENCE_S)
        request = rig.system.wait_asked(answered)["request_id"]
        said = {"request_id": request, "action": "reject"}
        rig.system.api.post("/ecs/respond", json=said, headers=rig.system.approver).raise_for_status()
        dropped = [job_id_of(TENANT, notices.key_of(request, one, step)) for step, one in ((1, "hook"), (2, "phone"))]
        until(lambda: all(_status(rig, job) in ("cancelled", "completed") for job in dropped), PATIENCE_S)
    until(lambda: bool(_at(rig, "/ok/hook", left)), PATIENCE_S)
    (told,) = _at(rig, "/ok/hook", left)
    assert json.loads(told.body)["title"] == "Still open: Approval asked: payout"
    assert _status(rig, dropped[1]) == "cancelled"
    assert _at(rig, "/ok/ntfy", left) == [], "that is due tomorrow"


def test_what_nobody_knows_is_told_with_its_tool_and_a_restart_knows_it_too(rig: NoticesRig) -> None:
    rig.route('[[routes]]\nname = "payouts"\nkinds = ["parked"]\ntools = ["lost_payout"]\ntell = ["hook"]\n')
    job = rig.system.submit({"id": "lost", "tool": "lost_payout", "args": {"to": "ada"}})
    until(lambda: bool(rig.system.types(job, "invocation_parked")), PATIENCE_S)
    with notifier(rig):
        until(lambda: bool(_at(rig, "/ok/hook", job)), PATIENCE_S)
    (told,) = _at(rig, "/ok/hook", job)
    said = json.loads(told.body)
    assert said["title"] == "In doubt, somebody must say what happened: lost_payout"
    assert said["link"] == f"{CONSOLE}/jobs/{job}"
    assert rig.system.resolve(job, "lost", "not_executed").status_code == 200


def test_a_receiver_that_fails_lies_or_leads_inside_is_named_unsure_and_asked_once(rig: NoticesRig) -> None:
    bad = ("failing", "limited", "huge", "away", "inside", "hanging")
    rig.web.away = f"{rig.web.url}/ok/inside"
    rig.route(f'[[routes]]\nname = "all"\ntell = {json.dumps([*bad, "hook"])}\n')
    with notifier(rig):
        job = rig.ask()
        until(lambda: bool(_at(rig, "/ok/hook", job)), PATIENCE_S)
    request = rig.system.wait_asked(job)["request_id"]
    jobs = {one: job_id_of(TENANT, notices.key_of(request, one, 0)) for one in bad}
    until(lambda: all(_status(rig, one) == "failed" for one in jobs.values()), PATIENCE_S)
    rig.web.let_go.set()
    why = {name: _seen(rig, one)["why"] for name, one in jobs.items()}
    unsure = {name for name, text in why.items() if "may have" in text or "not sure" in text or "nobody knows" in text}
    assert unsure == {"failing", "huge", "away", "hanging"}, why
    for path in ("/status/500", "/status/403", "/huge", "/away", "/hang"):
        assert len(_at(rig, path, job)) == 1
    assert rig.web.at("/ok/inside") == []


def test_who_submits_under_a_notice_s_key_before_it_is_told_of_and_holds_up_nothing(rig: NoticesRig) -> None:
    rig.route('[[routes]]\nname = "all"\ntell = ["hook"]\n')
    key = fresh("silenced")
    job = job_id_of("default", key)
    args = {"to": "ada", "amount": 1}
    request = request_id(job, "pay", idempotency_key(job, "pay", "payout", {**args, "note": ""}))
    other = {"plan": {"nodes": [{"id": "now", "kind": "time"}]}}
    taken = notices.key_of(request, "hook", 0)
    squatter = {**headers_of("squatter"), "Idempotency-Key": taken}
    assert rig.system.api.post("/jobs", json=other, headers=squatter).status_code == 202
    plan = {"plan": {"nodes": [{"id": "pay", "tool": "payout", "args": args}]}}
    assert rig.system.api.post("/jobs", json=plan, headers={"Idempotency-Key": key}).json()["job_id"] == job
    assert rig.system.wait_asked(job)["request_id"] == request
    with notifier(rig) as running:
        until(lambda: "key_taken" in running.log.read_text(), PATIENCE_S)
        behind = rig.ask()
        until(lambda: bool(_at(rig, "/ok/hook", behind)), PATIENCE_S)
    assert _at(rig, "/ok/hook", job) == []


@pytest.mark.parametrize(("kills", "requests"), [(6, 60), pytest.param(50, 500, marks=pytest.mark.full)])
def test_killed_again_and_again_each_is_told_once_by_each_channel(rig: NoticesRig, kills: int, requests: int) -> None:
    rig.route('[[routes]]\nname = "all"\ntell = ["finance", "hook"]\n')
    before, failed = len(rig.web.at("/ok/hook")), len(rig.notices("failed"))
    jobs = [rig.ask(f"payee-{number}", number + 1) for number in range(requests)]
    for kill in range(kills):
        wanted = before + (kill + 1) * requests // (kills + 1)
        with notifier(rig) as running:
            _until_told(rig, running, wanted)
            time.sleep(0.01 * (kill % 7))  # somewhere else each time
            os.kill(running.process.pid, signal.SIGKILL)
    with notifier(rig):
        until(lambda: len(_told(rig, jobs)) >= requests, 300)
        until(lambda: not rig.notices("running") and not rig.notices("submitted"), PATIENCE_S)
    mails = Counter(job for mail in rig.mail.mails() for job in jobs if job in mail)
    hooks = Counter(job for one in rig.web.at("/ok/hook") for job in jobs if job in one.body.decode())
    told, unsure = len(mails) + len(hooks), len(rig.notices("failed")) - failed
    assert [count for count in (*mails.values(), *hooks.values()) if count != 1] == []
    assert 2 * requests - unsure <= told <= 2 * requests, "what was not told is not sure; what is not sure may be told"
    assert told >= requests
    _report(f"{kills} kills, {requests} requests: {len(mails)} mails, {len(hooks)} webhooks, {unsure} not sure")


def test_a_policy_that_asks_about_notices_asks_about_each_once_and_tells_nobody_of_that(rig: NoticesRig) -> None:
    rig.route('[[routes]]\nname = "all"\ntell = ["hook"]\n')
    allow = '[[rules]]\nname = "all"\ntools = ["*"]\neffect = "allow"\n'
    asks = '[[rules]]\nname = "ask"\ntools = ["notify.*", "payout"]\neffect = "approval"\n'
    before = {one["job_id"] for one in rig.notices()}
    _activate(rig, asks + allow)
    try:
        with notifier(rig):
            asked = [rig.ask(), rig.ask()]
            until(lambda: sum(one["job_id"] not in before for one in rig.notices("waiting")) == len(asked), PATIENCE_S)
            _activate(rig, asks.replace('"notify.*", ', "") + allow)
            behind = rig.ask()
            until(lambda: bool(_at(rig, "/ok/hook", behind)), PATIENCE_S)
        own = [one["job_id"] for one in rig.notices() if one["job_id"] not in before]
        assert len(own) == 3, "one for each payout, and none for a notice"
    finally:
        _activate(rig, allow)


def test_a_routing_file_that_can_not_be_used_is_named_by_line_and_field(rig: NoticesRig) -> None:
    rig.file.write_text('[[channels]]\nname = "a"\nkind = "slack"\nsecrets = "x"\n')
    with notifier(rig) as running:
        assert running.wait_ended() == 78
    assert f"{rig.file}:4: channel 'a': secrets: there is no such key" in running.log.read_text()


def _at(rig: NoticesRig, path: str, job: str) -> list[ToldRequest]:
    return [one for one in rig.web.at(path) if job in one.body.decode()]


def _seen(rig: NoticesRig, job: str) -> dict[str, Any]:
    answer = rig.system.api.get(f"/jobs/{job}", headers=headers_of("reader"))
    return answer.json() if answer.status_code == 200 else {}


def _status(rig: NoticesRig, job: str) -> str:
    return str(_seen(rig, job).get("status"))


def _activate(rig: NoticesRig, policy: str) -> None:
    said = rig.system.api.post("/policies", json={"policy": policy}, headers=rig.system.approver)
    assert said.status_code in (200, 202), said.text


def _until_told(rig: NoticesRig, running: ServiceProcess, count: int) -> None:
    until(lambda: running.ended() or len(rig.web.at("/ok/hook")) >= count, PATIENCE_S)
    assert not running.ended(), running.log.read_text()[-2000:]


def _told(rig: NoticesRig, jobs: list[str]) -> set[str]:
    return {job for job in jobs if any(job in one.body.decode() for one in rig.web.at("/ok/hook"))}


def _report(text: str) -> None:
    print(text)  # noqa: T201  what was counted
