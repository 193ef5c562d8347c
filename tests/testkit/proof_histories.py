"""Histories for the tests of the proofs: records made by hand, as the log would hold them."""

import hashlib
import json
from typing import Any

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
        self.tokens: dict[str, int] = {}
        self.graph = {"tools": tools or {"refund": tool()}, "nodes": list(nodes) or [node("a")]}
        if created:
            asked = asked or {"plan": self.graph}
            self.add("job_created", tenant=tenant, submitted_by="me", request_hash="r", **asked)
            self.add("plan_generated", revision=0, task_graph=self.graph, plan_hash=digest(self.graph))

    def add(self, kind: str, /, *, event_id: str | None = None, **body: Any) -> str:
        """Any event; its id."""
        name = event_id or f"e{len(self.records)}"
        self.records.append(raw(10 * len(self.records), name, kind, {"job_id": self.job, **body}))
        return name

    def revise(self, revision: int, *nodes: dict[str, Any], tools: dict[str, Any] | None = None) -> str:
        diff = {"nodes": list(nodes), "tools": tools or {}}
        return self.add("plan_generated", revision=revision, diff=diff, plan_hash=digest(diff))

    def start(self, invocation_id: str, name: str = "a", key: str | None = None, **more: Any) -> str:
        attempt = more.get("attempt_id", 0)
        body: dict[str, Any] = {
            "invocation_id": try_of(invocation_id) if invocation_id else "",
            "node_id": name,
            "revision": 0,
            "idempotency_key": key or f"k-{name}",
            "token": 1,
            "attempt_id": attempt,
            "external_key": f"aetheris:{self.job}:{name}:{attempt}",
            "kind": "tool",
            "tool_name": "refund",
            "tool_version": "1",
            "args_hash": f"args-{key or name}",
            "content_key": f"content-{key or name}",
            "occurrence": 1,
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
        body |= {"idempotency_key": key or f"k-{name}"} | ({} if word is None else {"word": word})
        if outcome in ("success", "compensatable_failure"):
            result = more.pop("result", {"ok": invocation_id})
            more = {"result": result, "output_hash": digest(result), **more}
            self.hashes[name] = more["output_hash"]
        event_id = self.add("tool_invocation_finished", **body | {"outcome": outcome, "via": via} | more)
        if outcome in ("success", "compensatable_failure"):
            self.add(
                "command_committed",
                node_id=name,
                command_id=name,
                idempotency_key=body["idempotency_key"],
                kind="tool",
                input_hash="i",
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
        return self.add(kind, node_id=name, idempotency_key=key or f"k-{name}", **named, **more)

    def reopen(self, invocation_id: str, by: str = "policy", **more: Any) -> str:
        token = self.tokens.get(more.get("key") or f"k-{more.get('name', 'a')}", 1)
        more.setdefault("next_token", token + 1)
        return self.about("invocation_reopened", invocation_id, by=by, **more)

    def decide(self, decision: str, **more: Any) -> str:
        body = {
            "tool_version": "1",
            "args_hash": f"args-{more.get('key') or more.get('name', 'a')}",
            "rule": "r",
            **more,
        }
        return self.about("approval_decided", decision=decision, **{"approver": "ann", **body})

    def ask(self, **more: Any) -> str:
        body = {
            "tool_version": "1",
            "args_hash": f"args-{more.get('key') or more.get('name', 'a')}",
            "rule": "r",
            **more,
        }
        return self.about("approval_requested", form={}, **body)

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


def clean() -> Log:
    """A job of two steps that ran well."""
    log = Log(node("a"), node("b", "refund", "a"))
    log.step("n1", "a")
    log.step("n2", "b", after=[{"invocation_id": "n1", "result_hash": log.hashes["a"]}])
    log.complete()
    return log


def gone_on(planning: str = "agent", via: str = "executor", **last: Any) -> Log:
    """A job in which a model asked for a call that failed, and ended without it."""
    brief = {"model": "m", "planning": planning}
    log = Log(node("a"), node("b", "refund", **last), goal="do it", brief=brief)
    log.start("n1")
    log.permanent("n1", via)
    log.done("a", "permanent_failure")
    log.step("n2", "b")
    log.complete()
    return log


def answer_wait(log: Log, *ends: str) -> None:
    """The wait of node w begins, and ends in these ways."""
    for kind in ("job_waiting", *ends):
        body = {"wait_type": "signal", "output_hash": digest(None), "reason": "expired"}
        log.add(kind, node_id="w", idempotency_key="k-w", **body)


def validity(log: Log) -> Validity:
    """Which starts of the log count, and why others don't."""
    return Validity(History(read(record, at)[0] for at, record in enumerate(log.records)))


def as_it_is(_: Log) -> None:
    """Leave the history as it is."""
