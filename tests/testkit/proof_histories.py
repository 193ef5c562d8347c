"""Histories for the tests of the proofs: records made by hand, as the log would hold them."""

import hashlib
import json
from typing import Any, NamedTuple

import rfc8785

from aetheris.proofs import RawRecord
from aetheris.proofs.history import History
from aetheris.proofs.records import read
from aetheris.proofs.validity import Validity
from tests.testkit.tries import doubt_word, end_word, try_of

JOB = "job-1"
TENANT = "acme"


def digest(value: Any) -> str:
    """hex SHA-256(JCS(value))."""
    return hashlib.sha256(rfc8785.dumps(value)).hexdigest()


def raw(offset: int, event_id: str, kind: str, body: dict[str, Any], **headers: str) -> RawRecord:
    """A record as a writer makes it."""
    named = {
        "ce_id": event_id,
        "ce_type": f"io.aetheris.{kind}.v1",
        "ce_subject": str(body.get("node_id", body.get("job_id", JOB))),
    }
    named |= headers
    return RawRecord(
        offset,
        str(body.get("job_id", JOB)).encode(),
        tuple((name, value.encode()) for name, value in named.items()),
        json.dumps(body).encode(),
    )


def tool(effect_class: str = "opaque", **more: Any) -> dict[str, Any]:
    """A pinned registry entry."""
    pinned = {"version": "1", "schema_hash": "s", "effect_class": effect_class, "irreversible": False, "volatile": []}
    return {**pinned, "timeout_s": 1, "settles_within_s": 1, **more}


def node(name: str, uses: str = "refund", *needs: str, **more: Any) -> dict[str, Any]:
    """A node of a plan."""
    return {"id": name, "kind": "tool", "tool": uses, "args": {}, "depends_on": list(needs), **more}


class NodeCall(NamedTuple):
    """A call, as its node's plan makes it."""

    key: str
    args_hash: str
    content_key: str
    args: dict[str, Any]


def with_results(part: Any, results: dict[str, Any]) -> Any:
    """Arguments with what their references stand for, as far as it is known."""
    if isinstance(part, list):
        return [with_results(inner, results) for inner in part]
    if not isinstance(part, dict):
        return part
    target = part.get("$ref")
    name, _, pointer = target.partition("#") if isinstance(target, str) else ("", "", "")
    if len(part) == 1 and name in results:
        found = results[name]
        for step in pointer.split("/")[1:]:
            found = found[int(step) if isinstance(found, list) else step]
        return found
    return {name: with_results(inner, results) for name, inner in part.items()}


def bytes_of(args: dict[str, Any]) -> bytes:
    """Arguments as keys have them: none are no bytes."""
    return rfc8785.dumps(args) if args else b""


class Log:
    """A job's log under construction; every method appends and names what it appended."""

    def __init__(
        self,
        *nodes: dict[str, Any],
        tools: dict[str, Any] | None = None,
        created: bool = True,
        job: str = JOB,
        tenant: str = TENANT,
        **asked: Any,
    ) -> None:
        self.job = job
        self.tenant = tenant
        self.records: list[RawRecord] = []
        self.hashes: dict[str, str] = {}
        self.results = {one["name"]: one.get("result") for one in asked.get("continues", {}).get("given", ())}
        self.entries: dict[str, dict[str, Any]] = {}
        self.tokens: dict[str, int] = {}
        self.graph: dict[str, Any] = {
            "tools": {"refund": tool()} if tools is None else tools,
            "nodes": list(nodes) or [node("a")],
        }
        self.pins = dict(self.graph["tools"])
        self.entries |= {str(one.get("id")): one for one in self.graph["nodes"]}
        if created:
            asked = asked if "goal" in asked else {"plan": self.graph} | asked
            self.add("job_created", tenant=tenant, submitted_by="me", request_hash="r", **asked)
            self.add("plan_generated", revision=0, task_graph=self.graph, plan_hash=digest(self.graph))

    def add(self, kind: str, /, *, event_id: str | None = None, **body: Any) -> str:
        """Any event; its id."""
        name = event_id or f"e{len(self.records)}"
        self.records.append(raw(10 * len(self.records), name, kind, {"job_id": self.job, **body}))
        return name

    def revise(self, revision: int, *nodes: dict[str, Any], tools: dict[str, Any] | None = None) -> str:
        """A plan_generated, which is in force."""
        event_id = self.plan(revision, *nodes, tools=tools)
        self.entries |= {str(one.get("id")): one for one in nodes}
        self.pins |= tools or {}
        return event_id

    def plan(self, revision: int, *nodes: dict[str, Any], tools: dict[str, Any] | None = None) -> str:
        """A plan_generated, which may be none."""
        diff = {"nodes": list(nodes), "tools": tools or {}}
        return self.add("plan_generated", revision=revision, diff=diff, plan_hash=digest(diff))

    def call(self, name: str, key: str | None = None) -> NodeCall:
        """The node's, as its plan and the results so far make it; of a key that is given, names that say nothing."""
        entry = self.entries.get(name)
        if entry is None or key is not None:
            return NodeCall(key or f"k-{name}", f"args-{key or name}", f"content-{key or name}", {})
        args = with_results(entry.get("args") or {}, self.results)
        tool = str(entry.get("tool") or entry.get("kind", "tool"))
        meant = {name: value for name, value in args.items() if name not in self.pins.get(tool, {}).get("volatile", ())}
        key = hashlib.sha256(f"{self.job}\0{name}\0{tool}\0".encode() + bytes_of(args)).hexdigest()
        content = hashlib.sha256(f"ck1\0{self.tenant}\0{tool}\0".encode() + bytes_of(meant)).hexdigest()
        return NodeCall(key, hashlib.sha256(bytes_of(args)).hexdigest(), content, args)

    def key(self, name: str = "a") -> str:
        """The key of a node's call."""
        return self.call(name).key

    def start(self, invocation_id: str, name: str = "a", key: str | None = None, **more: Any) -> str:
        attempt, call = more.get("attempt_id", 0), self.call(name, key)
        body: dict[str, Any] = {
            "invocation_id": try_of(invocation_id) if invocation_id else "",
            "node_id": name,
            "revision": 0,
            "idempotency_key": call.key,
            "token": 1,
            "attempt_id": attempt,
            "external_key": f"aetheris:{self.job}:{name}:{attempt}",
            "kind": "tool",
            "tool_name": "refund",
            "tool_version": "1",
            "args_hash": call.args_hash,
            "content_key": call.content_key,
            "occurrence": self.entries.get(name, {}).get("occurrence", 1),
            "after": [],
            "worker_id": "w",
            "incarnation": "i",
        }
        body |= more
        body["after"] = [one | {"invocation_id": try_of(one["invocation_id"])} for one in body["after"]]
        self.tokens[body["idempotency_key"]] = body["token"]
        return self.add("tool_invocation_started", **body)

    def finish(
        self, invocation_id: str, outcome: str = "success", name: str = "a", key: str | None = None, **more: Any
    ) -> str:
        """With the word of the try, where one is asked for."""
        via = more.pop("via", "executor")
        word = end_word(invocation_id, outcome, via)
        body: dict[str, Any] = {"invocation_id": try_of(invocation_id), "node_id": name}
        body |= {"idempotency_key": self.call(name, key).key} | ({} if word is None else {"word": word})
        if outcome in ("success", "compensatable_failure"):
            result = more.pop("result", {"ok": invocation_id})
            more = {"result": result, "output_hash": digest(result), **more}
            self.hashes[name] = more["output_hash"]
            self.results[name] = result
        event_id = self.add("tool_invocation_finished", **body | {"outcome": outcome, "via": via} | more)
        if outcome in ("success", "compensatable_failure"):
            self.add(
                "command_committed",
                node_id=name,
                command_id=name,
                idempotency_key=body["idempotency_key"],
                kind="tool",
                input_hash=self.call(name, key).args_hash,
                output_hash=more["output_hash"],
            )
        return event_id

    def retryable(self, invocation_id: str, name: str = "a", **more: Any) -> str:
        return self.finish(invocation_id, "retryable_failure", name, **more)

    def permanent(self, invocation_id: str, via: str, name: str = "a", **more: Any) -> str:
        return self.finish(invocation_id, "permanent_failure", name, via=via, **more)

    def about(self, kind: str, /, invocation_id: str = "", name: str = "a", key: str | None = None, **more: Any) -> str:
        named = {"invocation_id": try_of(invocation_id)} if invocation_id else {}
        if more.get("returned") is True and invocation_id:
            named["word"] = doubt_word(invocation_id, returned=True)
        return self.add(kind, node_id=name, idempotency_key=self.call(name, key).key, **named, **more)

    def reopen(self, invocation_id: str, by: str = "policy", **more: Any) -> str:
        token = self.tokens.get(self.call(more.get("name", "a"), more.get("key")).key, 1)
        more.setdefault("next_token", token + 1)
        if by == "human":
            more.setdefault("evidence", [{"by": "ann", "evidence": "looked"}])
        return self.about("invocation_reopened", invocation_id, by=by, **more)

    def decide(self, decision: str, **more: Any) -> str:
        body = {
            "tool_version": "1",
            "args_hash": self.call(more.get("name", "a"), more.get("key")).args_hash,
            "rule": "r",
            **more,
        }
        return self.about("approval_decided", decision=decision, **{"approver": "ann", **body})

    def ask(self, **more: Any) -> str:
        body = {
            "tool_version": "1",
            "args_hash": self.call(more.get("name", "a"), more.get("key")).args_hash,
            "rule": "r",
            **more,
        }
        named: dict[str, Any] = {"form": self.form(**body), **body}
        return self.about("approval_requested", **named)

    def form(self, name: str = "a", key: str | None = None, tool_version: str = "1", **_: Any) -> dict[str, Any]:
        """What a person is shown of a node's call."""
        shown = {"job_id": self.job, "node_id": name, "tool_version": tool_version}
        tool = self.entries.get(name, {}).get("tool", "refund")
        return {"context": shown | {"tool": tool, "arguments": self.call(name, key).args}}

    def done(self, name: str = "a", result_type: str = "side_effect_committed", **more: Any) -> str:
        hashed = {"output_hash": self.hashes[name]} if name in self.hashes else {}
        return self.add(
            "node_finished", node_id=name, step_index=0, attempt=0, result_type=result_type, **hashed | more
        )

    def step(self, invocation_id: str, name: str = "a", **more: Any) -> None:
        """A whole step that goes well."""
        self.start(invocation_id, name, **more)
        self.finish(invocation_id, name=name)
        self.done(name)

    def complete(self) -> str:
        return self.add("job_completed", result=None)


A = Log().call("a")
"""The call of a node that nothing more is said of."""


def clean(job: str = JOB) -> Log:
    """A job of two steps that ran well."""
    log = Log(node("a"), node("b", "refund", "a"), job=job)
    log.step("n1", "a")
    log.step("n2", "b", after=[{"invocation_id": "n1", "result_hash": log.hashes["a"]}])
    log.complete()
    return log


def gone_on(planning: str = "agent", via: str = "executor", **last: Any) -> Log:
    """A job in which a model asked for a call that failed, and ended without it."""
    brief = {"model": "m", "planning": planning}
    asking = {"id": "turn-1", "kind": "llm", "args": {"model": "m", "planning": planning, "prompt": "do it"}}
    log = Log(asking, tools={}, goal="do it", brief=brief)
    log.start("n0", "turn-1", kind="llm", tool_name="llm")
    log.finish("n0", name="turn-1", result={"calls": 2})
    log.done("turn-1", "success")
    log.revise(1, node("a"), node("b", "refund", **last), tools={"refund": tool()})
    log.start("n1", revision=1)
    log.permanent("n1", via)
    log.done("a", "permanent_failure")
    log.step("n2", "b", revision=1)
    log.complete()
    return log


def answer_wait(log: Log, *ends: str) -> None:
    """The wait of node w begins, and ends in these ways."""
    for kind in ("job_waiting", *ends):
        body = {"wait_type": "signal", "output_hash": digest(None), "reason": "expired"}
        log.add(kind, node_id="w", idempotency_key=log.key("w"), **body)


def validity(log: Log) -> Validity:
    """Which starts of the log count, and why others don't."""
    return Validity(History(read(record, at)[0] for at, record in enumerate(log.records)))


def as_it_is(_: Log) -> None:
    """Leave the history as it is."""
