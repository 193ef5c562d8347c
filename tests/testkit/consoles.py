"""A console in a process of its own, before a stand-in for the gateway: what people see and press, without a system."""

import base64
import json
import subprocess
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs

import httpx
from playwright.sync_api import Browser, BrowserContext, Page

from aetheris.cli.embedded.ports import free_port
from aetheris.protocol.base.keys import args_hash, idempotency_key
from aetheris.protocol.planning.approvals import request_id
from tests.testkit.external_server import until
from tests.testkit.services import running_service
from tests.testkit.tokens import token_of

_NO_TROUBLE = ("status of 4", "status of 5", "pubKeyCredParams")
"""What a browser says of answers that a test asks for, and of keys by RSA, which no reader of ours takes."""
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
JOB = "job-1"
TIME = "2026-03-01T09:30:00.000000Z"
ROLES = ("approve", "read", "read_payloads", "operate", "resolve", "audit", "administer", "submit")
FIELDS = [
    {"name": "amount", "type": "number", "label": "Amount", "required": True, "default": 12.5},
    {"name": "to", "type": "text", "label": "To", "required": True, "default": "acc-7"},
]
PAYOUT = {"amount": 12.5, "to": "acc-7"}

_STALLED = {
    "job_id": JOB,
    "status": "waiting",
    "created_at": TIME,
    "why": "pay is parked (lost <b>for good</b>): whether it took effect is not known",
    "in_doubt": 0,
    "parked": 1,
}
_HEALTH: dict[str, Any] = {
    "at": TIME,
    "services": [
        {"service": "planner", "processes": [{"name": "planner-0", "version": "0.1.0"}]},
        {"service": "ledger", "processes": [{"name": "ledger-0", "version": "0.1.0"}]},
        {"service": "tool_executor", "processes": [{"name": "executor-0", "version": "<i>0.1.0</i>"}]},
        {"service": "prober", "processes": []},
        {"service": "verifier", "processes": [], "unknown": "who is in aetheris.verifier is not known: Preparing"},
    ],
    "backlogs": [
        {"service": "planner", "topic": "aetheris.jobs.commands.v1", "records": 0, "partitions": 0, "is_kept": False},
        {"service": "planner", "topic": "aetheris.jobs.events.v1", "records": 412, "partitions": 3, "is_kept": True},
        {"service": "ledger", "topic": "aetheris.tools.requests.v1", "records": 17, "partitions": 2, "is_kept": False},
    ],
    "dead_letters": [{"topic": "aetheris.tools.grants.v1.dlq", "records": 3}],
    "executors": [
        {"worker_id": "executor-0", "is_live": True, "since": TIME, "pool": "main", "serves": ["bank.payout@1.2"]},
        {"worker_id": "executor-1", "is_live": False, "serves": []},
    ],
}

_LETTER: dict[str, Any] = {
    "topic": "aetheris.jobs.commands.v1",
    "partition": 2,
    "offset": 7,
    "record_offset": 4711,
    "at": TIME,
    "reason": "Cancel: <b>payload</b> is invalid",
    "type": "io.aetheris.cancel.v1",
    "repeats": 1,
    "omitted": None,
    "redrive": "again",
    "redriven_at": None,
    "redriven_by": None,
}
_OTHER_LETTER = {**_LETTER, "topic": "aetheris.tools.grants.v1", "partition": 0, "offset": 0, "redrive": "asked_again"}
DEAD_LETTERS = [
    (
        one,
        {
            "key": base64.b64encode(JOB.encode()).decode(),
            "headers": [["ce_id", base64.b64encode(b"\xff\x00").decode()]],
            "value": base64.b64encode(b'{"reason": "<script>alert(1)</script>", \xff\x00').decode(),
        },
    )
    for one in (_LETTER, _OTHER_LETTER)
]
"""Two, each with its record."""


def _letter_path(one: Mapping[str, Any]) -> str:
    return f"/dead-letters/{one['topic']}/{one['partition']}/{one['offset']}"


class StandInGateway(ThreadingHTTPServer):
    """Knows a few people, the requests that a test puts, and what a test says of other routes."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.people: dict[str, str] = {token_of(who): who for who in ("ann", "bob", "carol")}
        self.requests: dict[str, dict[str, Any]] = {}
        self.raw: dict[str, bytes] = {}
        """Bytes of a request, where a test wants them just so; or of any other route, by its path."""
        self.said: list[tuple[str, dict[str, Any], bytes]] = []
        """(who, what he said, its bytes), as it came."""
        self.story: list[dict[str, Any]] = []
        """The events of the job."""
        self.listed: list[dict[str, Any]] = []
        """The jobs of the list."""
        self.answers: dict[str, Any] = {}
        """A path → what is answered to what is said to it."""
        self.refused: dict[str, str] = {}
        """A path → why it is refused."""
        self.refused_posts: dict[str, str] = {}
        """The same of what is said to it."""
        self.queries: list[str] = []
        """What was asked beside paths, in order."""
        self.news = threading.Event()
        self.held_back = threading.Event()
        """While it is not set, nobody is told how the job stands."""
        self.held_back.set()
        self.away = False
        self.everybody = False
        """Whether every token is Bob's: who is told of a provider's judges it in tests of his own."""
        self.bearers: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def ask(
        self, node: str = "pay", args: Mapping[str, Any] | None = None, tool: str = "bank.payout", **more: Any
    ) -> str:
        """Put a request for an approval, as the gateway has it; its id."""
        arguments = dict(PAYOUT if args is None else args)
        id_ = request_id(JOB, node, idempotency_key(JOB, node, tool, arguments))
        fields = more.pop("fields", FIELDS if args is None else [])
        form: dict[str, Any] = {
            "id": id_,
            "type": "form" if fields else "confirmation",
            "title": f"Run {tool}?",
            "description": f"Step {node} calls {tool}, which can't be undone.",
            "fields": fields,
            "actions": {"approve": {}, "reject": {}, **({"edit": {}} if fields else {})},
            "context": {
                "job_id": JOB,
                "node_id": node,
                "tenant": "default",
                "submitted_by": "agent-7",
                "tool": tool,
                "tool_version": "1.2",
                "arguments": arguments,
            },
            "created_at": TIME,
            "expires_at": "2026-03-02T09:30:00.000000Z",
        }
        asked_by = {"args_hash": args_hash(arguments), "rule": "payouts", "approvers": ["bob", "carol"]}
        self.requests[id_] = {
            "request": form,
            "job_id": JOB,
            "node_id": node,
            "status": "waiting",
            "execution_state": "waiting",
            "asked_by": asked_by,
            **more,
        }
        return id_

    def ask_form(self, *fields: dict[str, Any]) -> str:
        """Put a form of a plan; its id."""
        id_ = self.ask("which", {"order": "o-1"}, fields=list(fields))
        found = self.requests[id_]
        del found["asked_by"], found["request"]["context"]["tool"], found["request"]["context"]["tool_version"]
        found["request"] |= {"title": "Refund how much?", "description": "Of the order o-1."}
        return id_

    def tell(self, kind: str, **data: Any) -> None:
        """One more event of the job."""
        seq = len(self.story) + 1
        at = datetime(2026, 3, 1, 9, 30, tzinfo=UTC) + timedelta(seconds=seq)
        named = {"id": f"e-{seq}", "source": "/ledger/0", "subject": JOB, "offset": 100 + seq}
        self.story.append({"seq": seq, "type": kind, "time": at.isoformat(), **named, "data": {"job_id": JOB, **data}})
        self.news.set()

    def hold(self, status: str = "running", *steps: dict[str, Any], **more: Any) -> None:
        """The job as the gateway shows it."""
        named = {"job_id": JOB, "created_at": TIME, "submitted_by": "agent-7", "tenant": "default"}
        self.raw[f"/jobs/{JOB}"] = json.dumps({**named, "status": status, "steps": list(steps), **more}).encode()

    def say_operations(self) -> None:
        """What the gateway says of executors, tools, policy, freezes, limits and accesses."""
        frozen = {"tool": "bank.payout", "tenant": "default", "number": 1, "by": "carol", "at": TIME, "reason": "odd"}
        tools = [
            {"name": "bank.payout", "version": "1.2", "effect_class": "opaque"},
            {
                "name": "mail.send",
                "version": "3",
                "effect_class": "probeable",
                "quarantined": {"until": TIME, "failures": 5},
            },
        ]
        active = {"number": 2, "policy_hash": "ab" * 32, "by": "carol", "at": TIME, "reason": "too many payouts"}
        policy = '[[rules]]\nname = "payouts"\ntools = ["bank.*"]\neffect = "approval"  # \u202e\n'
        limits = [
            {"name": "submissions_per_min", "limit": 600, "left": 598},
            {"name": "jobs_open", "limit": None, "left": None},
        ]
        seen = {
            "at": TIME,
            "action": "requests_seen",
            "principal": {"id": "bob"},
            "route": "GET /api/approvals",
            "status": 200,
        }
        said: dict[str, Any] = {
            "/freezes": {"freezes": [frozen]},
            "/workers": {
                "workers": [{"worker_id": "executor-0", "live": "i-1", "since": TIME, "left": None, "ended": None}]
            },
            "/tools": {"tools": tools},
            "/policies": {"active": {**active, "policy": policy, "answered": 4, "partitions": 4}, "history": [active]},
            "/limits": {"tenant": "default", "limits": limits, "open_jobs": {"running": 2, "waiting": 1}},
            "/stalled": {"jobs": [_STALLED], "is_whole": False},
            "/health": _HEALTH,
            "/dead-letters": {"dead_letters": [one for one, _ in DEAD_LETTERS], "is_whole": True},
            **{_letter_path(one): {**one, **record} for one, record in DEAD_LETTERS},
            "/audit": {"records": [seen], "cursor": None, "whole": True},
        }
        self.raw |= {path: json.dumps(answer).encode() for path, answer in said.items()}

    def say(self, path: str, answer: Any) -> None:
        """What is answered to who asks for a path."""
        self.raw[path] = json.dumps(answer).encode()

    def decide(self, id_: str, who: str, status: str) -> None:
        """As somebody else decides it meanwhile."""
        decision = {"approved": "approve", "rejected": "reject"}[status]
        answer = {"decision": decision, "approver": who, "votes": None, "comment": None, "data": None}
        self.requests[id_] |= {"status": status, "execution_state": "running", "answer": answer}


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("content-length", 0))))

    def _answer(self, body: bytes) -> None:
        gateway = cast("StandInGateway", self.server)
        token = self.headers.get("authorization", "").removeprefix("Bearer ")
        gateway.bearers.add(token)
        who = "bob" if gateway.everybody else gateway.people.get(token)
        path, _, query = self.path.removeprefix("/api").partition("?")
        gateway.queries.append(f"{path}?{query}")
        if gateway.away:
            self._say(503, _fault("unavailable", "Kafka does not answer"))
        elif who is None:
            self._say(401, _fault("unauthorized", "no such token"))
        elif self.command == "POST" and path in gateway.refused_posts:
            self._say(409, _fault("refused", gateway.refused_posts[path]))
        elif self.command == "POST" and path != "/ecs/respond":
            gateway.said.append((who, {"path": path, **json.loads(body)}, body))
            self._say(200, gateway.answers.get(path, {"job_id": JOB, "event": "invocation_resolved"}))
        elif self.command == "POST":
            self._responded(gateway, who, body)
        elif path.startswith(f"/jobs/{JOB}/events/"):
            self._record(gateway, int(path.split("/")[4]))
        elif path == f"/jobs/{JOB}/events":
            self._events(gateway, parse_qs(query))
        else:
            self._shown(gateway, who, path)

    def _shown(self, gateway: StandInGateway, who: str, path: str) -> None:
        if path == f"/jobs/{JOB}":
            gateway.held_back.wait(60)
        found = gateway.raw.get(path.removeprefix("/ecs/status/"), gateway.raw.get(path))
        if path in gateway.refused:
            self._say(400, _fault("bad_request", gateway.refused[path]))
        elif found is not None:
            self._say(200, found)
        elif path == "/caller":
            roles = [role for role in ROLES if who != "ann" or role != "approve"]
            self._say(200, {"id": who, "tenant": "default", "kind": "person", "roles": roles})
        elif path in ("/jobs", "/search"):
            self._say(200, {"jobs": gateway.listed, "cursor": None})
        elif path == "/approvals":
            waits = [_row(one) for one in gateway.requests.values() if one["status"] == "waiting"]
            self._say(200, {"approvals": waits, "cursor": None})
        elif path.removeprefix("/ecs/status/") in gateway.requests:
            self._say(200, gateway.requests[path.removeprefix("/ecs/status/")])
        else:
            self._say(404, _fault("unknown", "there is no such thing"))

    def _events(self, gateway: StandInGateway, asked: Mapping[str, list[str]]) -> None:
        if self.headers.get("accept") == "text/event-stream":
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            last = int(self.headers.get("last-event-id", 0))
            while not gateway.away:
                for one in [one for one in gateway.story if one["seq"] > last]:
                    last = one["seq"]
                    self.wfile.write(f"id: {last}\ndata: {json.dumps(one)}\n\n".encode())
                    if one["type"] == "job_sealed":
                        return
                gateway.news.wait(0.2)
            return
        after, limit = (int(asked.get(name, [default])[0]) for name, default in (("after", "0"), ("limit", "10000")))
        types, nodes = asked.get("type", []), asked.get("node_id", [])
        meant = [one for one in gateway.story if not types or _name_of(one) in types]
        meant = [one for one in meant if not nodes or one["data"].get("node_id") in nodes]
        self._say(200, [one for one in meant if one["seq"] > after][:limit])

    def _record(self, gateway: StandInGateway, seq: int) -> None:
        event = gateway.story[seq - 1]
        value = gateway.raw.get(f"record {seq}", json.dumps(event["data"]).encode())
        place = {"seq": seq, "topic": "aetheris.jobs.events.v1", "partition": 0, "offset": event["offset"]}
        headers = [[name, _base64(text)] for name, text in (("ce_id", event["id"].encode()), ("odd", b"\xff\x00"))]
        said = {"key": _base64(JOB.encode()), "headers": headers, "value": _base64(value)}
        self._say(200, {**place, **said})

    def _responded(self, gateway: StandInGateway, who: str, body: bytes) -> None:
        said = json.loads(body)
        gateway.said.append((who, said, body))
        found = gateway.requests[said["request_id"]]
        if found["status"] != "waiting":
            self._say(409, _fault("answered", f"it was answered by {found['answer']['approver']}"))
            return
        if said["action"] == "edit":
            found["status"] = "edited"
            now = {**found["request"]["context"]["arguments"], **said["data"]}
            next_id = gateway.ask(found["node_id"], now, fields=FIELDS)
            gateway.requests[next_id]["asked_by"]["edited_by"] = who
            self._say(200, {**_answered(said), "event": "approval_requested", "next_request_id": next_id})
            return
        gateway.decide(said["request_id"], who, "approved" if said["action"] == "approve" else "rejected")
        self._say(200, {**_answered(said), "event": "approval_decided"})

    def _say(self, status: int, answer: Any) -> None:
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name
        """Nobody reads it."""


def _name_of(event: Mapping[str, Any]) -> str:
    """By which the gateway filters: a model's answer is text, and finished as well."""
    return "text" if event["data"].get("usage") is not None else event["type"]


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _row(one: Mapping[str, Any]) -> dict[str, Any]:
    form = one["request"]
    named = {"request_id": form["id"], "job_id": one["job_id"], "node_id": one["node_id"], "submitted_by": "agent-7"}
    kind = "approval" if "asked_by" in one else "human"
    return {**named, "kind": kind, "title": form["title"], "created_at": TIME, "expires_at": form["expires_at"]}


def _answered(said: Mapping[str, Any]) -> dict[str, Any]:
    return {"request_id": said["request_id"], "action": said["action"], "command_id": "c-1"}


def _fault(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "details": {}}}


@contextmanager
def stand_in_gateway() -> Generator[StandInGateway]:
    """It listens, until it is left."""
    with StandInGateway() as gateway:
        threading.Thread(target=gateway.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield gateway
        finally:
            gateway.shutdown()


@dataclass
class RunningConsole:
    """The console's process, which can be killed and started anew at the same port."""

    folder: Path
    env: Mapping[str, str]
    url: str
    process: subprocess.Popen[bytes] | None = None
    trouble: list[str] = field(default_factory=list[str])
    """What browsers said of pages: scripts that failed, and everything that a policy kept from happening."""

    def link(self, who: str) -> str:
        """A one-time link, as `aetheris console` makes it."""
        headers = {"authorization": f"Bearer {token_of(who)}"}
        answer = httpx.post(f"{self.url}/sign-in/links", headers=headers, trust_env=False)
        assert answer.status_code == 200, answer.text
        return answer.json()["url"]

    @contextmanager
    def up(self) -> Generator[None]:
        with running_service("console", self.folder, self.env) as running:
            until(running.ready, 30)
            yield

    def signed_in(self, browser: Browser, who: str, **options: Any) -> Page:
        """A page of somebody, in a browser of his own; what goes wrong on it is kept in `trouble`."""
        context = browser.new_context(**options)
        page = self.watched(context)
        page.goto(self.link(who))
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/inbox")
        return page

    def opened(self, browser: Browser, path: str) -> Page:
        """A page of Bob's."""
        page = self.signed_in(browser, "bob")
        page.goto(f"{self.url}{path}")
        return page

    def watched(self, context: BrowserContext) -> Page:
        page = context.new_page()
        page.on("console", lambda said: self._heard(said.type, said.text))
        page.on("pageerror", lambda error: self.trouble.append(str(error)))
        return page

    def _heard(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not any(one in text for one in _NO_TROUBLE):
            self.trouble.append(text)


def console_at(folder: Path, gateway: str, **settings: str) -> RunningConsole:
    """A console that has not been started yet."""
    port = free_port()
    given = {f"AETHERIS_{name.upper()}": value for name, value in settings.items()}
    env = {"AETHERIS_GATEWAY_URL": gateway, "AETHERIS_HTTP_PORT": str(port), **given}
    return RunningConsole(folder, env, f"http://localhost:{port}")


@contextmanager
def running_console(folder: Path, gateway: str) -> Generator[RunningConsole]:
    """A console that has been started, and in which no page may have had trouble when it ends."""
    console = console_at(folder, gateway)
    with console.up():
        yield console
    assert console.trouble == [], console.trouble


def serious(page: Page) -> list[str]:
    """What axe finds on a page that keeps people from using it, when its colours stand still: serious, or critical."""
    page.evaluate("Promise.all(document.getAnimations().map(one => one.finished.catch(() => null)))")
    found = cast("dict[str, Any]", page.evaluate(f"async () => {{ {AXE.read_text()}; return await axe.run(); }}"))
    return [
        f"{one['id']}: {node['html'][:160]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


def painted_ms(page: Page) -> float:
    """When a page's first text was painted, from when it was asked for."""
    paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    return page.wait_for_function(paint).json_value()


def slowest_ms(page: Page, box: str) -> float:
    """The longest that the page stood still while somebody scrolled through all of a box, a frame at a time."""
    return page.evaluate(
        """async id => {
            const slow = [0], box = document.getElementById(id);
            new PerformanceObserver(list => slow.push(...list.getEntries().map(one => one.duration)))
                .observe({ entryTypes: ["longtask"] });
            for (let at = 0; at < box.scrollHeight; at += 20000) {
                box.scrollTop = at;
                await new Promise(done => requestAnimationFrame(done));
            }
            await new Promise(done => setTimeout(done, 200));
            return Math.max(...slow);
        }""",
        box,
    )
