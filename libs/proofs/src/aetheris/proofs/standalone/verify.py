#!/usr/bin/env python3
"""Check an evidence bundle of Aetheris, trusting nobody: python3 verify.py BUNDLE.zip [--public-key KEYS] [--json]

Needs Python 3.11 and the package `cryptography` (for Ed25519), and no network. It shares no code with Aetheris and is
meant to be read: it follows docs/evidence.md from the zip to the last rule. KEYS is a public key in PEM or a file
{"keys": [...]}; without it the bundle's own keys are taken, and then the answer is only "nothing was changed since
whoever holds these keys sealed it". Ends with 0 if everything holds, 1 if anything doesn't, 2 on wrong usage.

  1 zip → signed envelope (DSSE) → statement (in-toto) → the job's records, as the exact bytes of the log
  2 the event chain: one hash over all of them, in order
  3 what each record says, and what is wrong with the record itself
  4 the fold: which tries counted, in log order; from it, that every call took effect at most once
  5 what the planner recorded must be what the calls gave
  6 execution_hash and outcome_hash
  7 the seal, signed over root and hashes; the log of all seals, whose signed checkpoint must contain it
  8 what the bundle derives for its readers must follow from its records
"""

import base64
import hashlib
import io
import json
import math
import re
import sys
import zipfile
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from fnmatch import fnmatchcase
from heapq import heapify, heappop, heappush
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

MAX_BYTES = 256 * 1024 * 1024
SUCCESSES = ("success", "compensatable_failure")


class Bad(Exception):
    """There is nothing to go on with: (rule, why)."""


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def unbase64(text: Any, rule: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, TypeError):
        raise Bad(rule, "not base64") from None


# --- Canonical JSON (RFC 8785) and its hash. What has no canonical form has no hash: "" equals no recorded one.


def canonical(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        value.encode()  # a lone surrogate has no canonical form: UnicodeEncodeError
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int):
        if abs(value) > 2**53 - 1:
            raise ValueError
        return str(value)
    if isinstance(value, float):
        return number(value)
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    names = sorted(value, key=lambda name: name.encode("utf-16-be"))
    return "{" + ",".join(canonical(name) + ":" + canonical(value[name]) for name in names) + "}"


def number(value: float) -> str:
    """As JavaScript prints it: the shortest digits that read back, an exponent only beyond 1e21 and 1e-6."""
    if not math.isfinite(value):
        raise ValueError
    if value == 0:
        return "0"
    mantissa, _, exponent = f"{value!r}e0".partition("e")
    sign, mantissa = ("-", mantissa[1:]) if mantissa[0] == "-" else ("", mantissa)
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent.split("e")[0]) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    if len(digits) <= point <= 21:
        return sign + digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    tail = "." + digits[1:] if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{tail}e{point - 1:+d}"


def json_hash(value: Any) -> str:
    try:
        return sha256(canonical(value).encode()).hex()
    except (ValueError, RecursionError):
        return ""


# --- 1. From the zip to the records.


def unzip(data: bytes) -> bytes:
    """The envelope. Nothing else is unpacked, nothing is written, and no entry may be there twice."""
    if not data.startswith(b"PK\x03\x04") or data[-22:-18] != b"PK\x05\x06":
        raise Bad("bad_zip", "not a zip, or one with something before or after it")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sorted(archive.namelist()) != ["bundle.dsse.json", "verify.py"]:
                raise Bad("bad_zip", "has other entries than bundle.dsse.json and verify.py, once each")
            entry = archive.getinfo("bundle.dsse.json")
            if entry.compress_type not in (0, 8) or entry.flag_bits & 1 or entry.file_size > MAX_BYTES:
                raise Bad("bad_zip", "too large, encrypted or packed in an unknown way")
            with archive.open(entry) as file:
                envelope = file.read(MAX_BYTES + 1)
    except Bad:
        raise
    except Exception:
        raise Bad("bad_zip", "the zip is broken") from None
    if len(envelope) > MAX_BYTES:
        raise Bad("bad_zip", "too large")
    return envelope


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key comes twice")
    return found


def parse(data: bytes, rule: str) -> Any:
    try:
        found = json.loads(data, object_pairs_hook=once)
    except (ValueError, RecursionError):
        raise Bad(rule, "not JSON, or with a key that comes twice") from None
    if not isinstance(found, dict):
        raise Bad(rule, "not a JSON object")
    return found


def pae(payload_type: str, payload: bytes) -> bytes:
    """What DSSE signs."""
    return b"DSSEv1 %d %b %d %b" % (len(payload_type), payload_type.encode(), len(payload), payload)


class Key:
    """A public key, and when what it signs counts."""

    def __init__(self, entry: dict[str, Any]) -> None:
        key = load_pem_public_key(entry["public_key"].encode())
        if not isinstance(key, Ed25519PublicKey):
            raise ValueError("not Ed25519")
        self.raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.id = sha256(self.raw).hex()[:16]
        times = (entry.get("valid_from"), entry.get("valid_until"), entry.get("revoked_at"))
        self.valid_from, self.valid_until, self.revoked_at = [moment(at) if at is not None else None for at in times]
        if entry.get("key_id", self.id) != self.id:
            raise ValueError("key_id is not its key's")

    def signed(self, signature: bytes, message: bytes) -> bool:
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except Exception:
            return False
        return True

    def refusal(self, signed_at: str) -> tuple[str, str] | None:
        """Why a seal of that time doesn't count."""
        if not (self.valid_from or self.valid_until or self.revoked_at):
            return None
        try:
            at = moment(signed_at)
        except ValueError:
            return "seal_time", "the seal's time can't be read, and its key counts only at some times"
        if self.revoked_at and at >= self.revoked_at:
            return "seal_revoked_key", "the seal's key was revoked before"
        if (self.valid_from and at < self.valid_from) or (self.valid_until and at >= self.valid_until):
            return "seal_key_time", "the seal's key was not valid then"
        return None


def moment(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError("a time without its offset")
    return at


def read_keys(text: bytes) -> dict[str, Key]:
    entries = [{"public_key": text.decode()}] if text.lstrip().startswith(b"-----") else json.loads(text)["keys"]
    keys = {key.id: key for key in map(Key, entries)}
    if len(keys) != len(entries):
        raise ValueError("a key comes twice")
    return keys


def check_envelope(envelope: dict[str, Any], payload: bytes, keys: dict[str, Key]) -> None:
    """One signature by a key that is trusted and not revoked; none by a trusted key may be wrong."""
    good = revoked = False
    listed = envelope.get("signatures")
    for signature in listed if isinstance(listed, list) else []:
        if not isinstance(signature, dict):
            raise Bad("bad_envelope", "a signature is none")
        key = keys.get(str(signature.get("keyid")))
        if key is None:
            continue
        if not key.signed(unbase64(signature.get("sig"), "bad_envelope"), pae(envelope["payloadType"], payload)):
            raise Bad("envelope_signature", "a signature of the envelope is not its key's")
        good, revoked = good or not key.revoked_at, revoked or bool(key.revoked_at)
    if not good:
        rule = "envelope_revoked_key" if revoked else "envelope_unknown_key"
        raise Bad(rule, f"signed by {'a revoked key' if revoked else 'none of the keys given'}")


class Record:
    """One record as it lies in the log, and what it says. `at` is its place among the job's records."""

    def __init__(self, at: int, offset: int, key: bytes | None, headers: list[tuple[str, bytes]], value: bytes) -> None:
        self.at, self.offset, self.log_key, self.headers, self.value = at, offset, key, headers, value
        self.id = self.header("ce_id").decode(errors="replace")
        self.name, self.version = self.header("ce_type"), 0  # as the chain has it
        if matched := re.fullmatch(rb"io\.aetheris\.([a-z0-9_]+)\.v([0-9]+)", self.name):
            self.name, self.version = matched[1], int(matched[2]) if len(matched[2]) < 9 else 0
        body = strict(value)
        self.readable = body is not None
        self.body: dict[str, Any] = body or {}
        self.type = self.name.decode(errors="replace") if self.readable else ""  # "": says nothing
        self.outdated = self.type in EVENT_TYPES and self.version != 1
        self.type = "" if self.outdated else self.type
        self.key, self.nonce, self.node = map(self.text, ("idempotency_key", "invocation_id", "node_id"))
        self.outcome, self.via = self.body.get("outcome"), self.text("via")
        self.succeeded = self.outcome in SUCCESSES
        self.output = self.text("output_hash") if self.succeeded else ""
        self.said_by = self.via or "executor"

    def header(self, name: str) -> bytes:
        return next((value for key, value in self.headers if key == name), b"")

    def text(self, name: str) -> str:
        value = self.body.get(name)
        return value if isinstance(value, str) else ""


EVENT_TYPES = set(
    "job_created decision_snapshot plan_generated node_finished state_checkpointed tool_invocation_started "
    "tool_invocation_finished command_committed state_changed policy_allowed approval_requested approval_decided "
    "invocation_rejected invocation_cancel_requested retry_scheduled invocation_in_doubt invocation_probed "
    "worker_ended invocation_parked invocation_reopened effect_confirmed confirmation_failed step_compensated "
    "signal_received job_waiting wait_completed cancel_requested job_stopping job_completed job_failed job_cancelled "
    "violation_found job_sealed".split()
)
TERMINAL = ("job_completed", "job_failed", "job_cancelled")


def refuse(constant: str) -> Any:
    raise ValueError(constant)


def strict(value: bytes) -> dict[str, Any] | None:
    """One JSON object without duplicate keys and NaN; None for anything else."""
    try:
        found = json.loads(value.decode(), object_pairs_hook=once, parse_constant=refuse)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def read_record(at: int, one: dict[str, Any]) -> Record:
    if type(one["offset"]) is not int:
        raise TypeError
    headers = [(str(name), unbase64(value, "bad_statement")) for name, value in one["headers"]]
    key = None if one["key"] is None else unbase64(one["key"], "bad_statement")
    return Record(at, one["offset"], key, headers, unbase64(one["value"], "bad_statement"))


# --- 2. The event chain.


def chain(records: list[Record]) -> list[bytes]:
    """The root after each record: SHA-256(root before + "\\n" + event id + " " + type + " " + base64(value))."""
    roots, root = [], b""
    for record in records:
        link = [root, b"\n", record.header("ce_id"), b" ", record.name, b" ", base64.b64encode(record.value)]
        root = sha256(b"".join(link))
        roots.append(root)
    return roots


# --- 4a. The plan: the first plan_generated of each revision, revisions without a gap.


class Plans:
    def __init__(self) -> None:
        self.effective: list[Record] = []
        self.nodes: dict[str, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
        self.tools: dict[str, list[tuple[int, dict[str, Any]]]] = defaultdict(list)

    def add(self, plan: Record) -> None:
        revision, entries = plan.body.get("revision"), entries_of(plan)
        if type(revision) is not int or revision != len(self.effective) or not entries:
            return
        for entry in entries:
            self.nodes[str(entry.get("id"))].append((revision, entry))
        for name, entry in mapping(part_of(plan).get("tools")).items():
            self.tools[name].append((revision, mapping(entry)))
        self.effective.append(plan)

    def in_force(self, at: int) -> int:
        """The revision just before a place in the log; -1 where there is none."""
        return bisect_left(self.effective, at, key=lambda plan: plan.at) - 1

    def node(self, name: str, revision: int) -> dict[str, Any]:
        return newest(self.nodes.get(name, []), revision)[1]

    def since(self, name: str, revision: int) -> int:
        return newest(self.nodes.get(name, []), revision)[0]

    def compensates(self, name: str, revision: int) -> str:
        """The node that a node undoes; "" where it undoes none."""
        undone = self.node(name, revision).get("compensates")
        return undone if isinstance(undone, str) else ""

    def tool(self, name: str, revision: int) -> dict[str, Any]:
        """What the node's tool was pinned as when the node's entry was planned."""
        since, entry = newest(self.nodes.get(name, []), revision)
        tool = entry.get("tool")
        return newest(self.tools.get(tool, []) if isinstance(tool, str) else [], since)[1]

    def irreversible(self, name: str, revision: int) -> bool:
        return any(e.get("irreversible") is True for e in (self.tool(name, revision), self.node(name, revision)))

    def same_entry(self, name: str, named: Any, forced: int) -> bool:
        """Is the node's entry in the revision that a record names the one in force?"""
        if type(named) is not int or not 0 <= named <= forced:
            return False
        old, new = self.node(name, named), self.node(name, forced)
        if not old or not new or old is new:
            return bool(old and new)
        tools = {json_hash(self.tool(name, revision)) for revision in (named, forced)}
        return entry_hash(old) == entry_hash(new) and len(tools) == 1

    def order(self, revision: int) -> list[str]:
        """Node ids in topological order (Kahn; ties by the bytes of the id)."""
        names = {name for name in self.nodes if self.node(name, revision)}
        left, waiting = {}, defaultdict(list)
        for name in names:
            listed = self.node(name, revision).get("depends_on")
            needed = names & set(map(str, listed if isinstance(listed, list) else []))
            left[name] = len(needed)
            for other in needed:
                waiting[other].append(name)
        ready = [(as_bytes(name), name) for name in names if not left[name]]
        heapify(ready)
        order: list[str] = []
        while ready:
            order.append(heappop(ready)[1])
            for follower in waiting[order[-1]]:
                left[follower] -= 1
                if not left[follower]:
                    heappush(ready, (as_bytes(follower), follower))
        return order + sorted(names - set(order), key=as_bytes)


def part_of(plan: Record) -> dict[str, Any]:
    """What a plan_generated adds."""
    return mapping(plan.body.get("task_graph" if plan.body.get("revision") == 0 else "diff"))


def entries_of(plan: Record) -> list[dict[str, Any]]:
    listed = part_of(plan).get("nodes")
    return [mapping(item) for item in listed] if isinstance(listed, list) else []


def is_declared(undo: dict[str, Any], undone: dict[str, Any]) -> bool:
    """Is one entry just the call that another declares as its compensation?"""
    call = undone.get("compensate_with")
    if not isinstance(call, dict):
        return False
    name = undone.get("id")
    expected = {"id": f"{name if isinstance(name, str) else ''}.undo", "tool": call.get("tool")}
    expected |= {"args": call.get("args", {}), "occurrence": undone.get("occurrence", 1), "compensates": name}
    bound = {field: value for field, value in undo.items() if field not in ("depends_on", "retry")}
    return entry_hash(expected) == entry_hash(bound)


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_bytes(name: str) -> bytes:
    return name.encode(errors="surrogatepass")


def newest(entries: list[tuple[int, dict[str, Any]]], revision: int) -> tuple[int, dict[str, Any]]:
    index = bisect_right(entries, revision, key=lambda entry: entry[0])
    return entries[index - 1] if index else (-1, {})


def entry_hash(entry: dict[str, Any]) -> str:
    """Absent and default are one."""
    defaults = {"kind": "tool", "args": {}, "depends_on": [], "occurrence": 1, "irreversible": False}
    return json_hash(defaults | {name: value for name, value in entry.items() if value is not None})


# --- 4b. The fold of docs/guarantees.md: the log is the lock. Of all records of a key, which count?


class Call:
    """One idempotency key. `state` is none, started, parked or reopened until `settled` says what came of it."""

    def __init__(self) -> None:
        self.state, self.nonce, self.token, self.attempt = "none", "", 1, 0
        self.live: set[str] = set()  # tries that may have taken effect
        self.starts: list[Record] = []  # those that count
        self.open_starts: set[int] = set()  # those that nothing handed over
        self.settled: Record | None = None
        self.outcome, self.sure = "", False  # sure: it certainly took no effect
        self.decided: Record | None = None  # the first approval_decided
        self.allowed: set[Any] = set()  # tool versions that a policy allowed

    def standing(self) -> Any:
        return ("settled",) if self.settled else (self.state, frozenset(self.live))

    def settle(self, record: Record, outcome: str, *, sure: bool) -> None:
        self.settled, self.outcome, self.sure = record, outcome, sure

    def hand_over(self) -> None:
        self.state = "reopened"
        self.token += 1
        self.open_starts.discard(self.starts[-1].at)

    def succeeded_before(self, at: int) -> bool:
        return self.settled is not None and self.outcome == "success" and self.settled.at < at


class Job:
    """All records of a job, folded in log order."""

    def __init__(self, records: list[Record]) -> None:
        self.records = records
        self.plans = Plans()
        self.calls: dict[str, Call] = defaultdict(Call)
        self.by_type: dict[str, list[Record]] = defaultdict(list)
        self.finishes: dict[tuple[str, str], list[Record]] = defaultdict(list)
        self.valid: set[int] = set()  # places of the starts that count
        self.starts_of: dict[str, list[Record]] = defaultdict(list)  # by nonce
        self.calls_of: dict[str, dict[str, Call]] = defaultdict(dict)  # by node
        self.same_content: dict[tuple[str, str], dict[str, Call]] = defaultdict(dict)
        self.moved: set[int] = set()  # places of the records that changed where their key stands
        self.waits: dict[str, list[Record]] = defaultdict(list)  # of nodes that wait: how it began and ended
        self.miscounted: list[Record] = []  # reopenings that say another token than the fold
        self.end: Record | None = None
        for record in records:
            self.take(record)

    def take(self, record: Record) -> None:
        waits = record.type in ("job_waiting", "wait_completed") and record.node
        if waits and record.text("wait_type") in ("signal", "timer", "human"):
            self.waits[record.node].append(record)
        if record.type == "invocation_rejected" and record.node in self.waits:
            self.waits[record.node].append(record)
        self.by_type[record.type].append(record)
        if record.type == "plan_generated":
            late = self.by_type["job_stopping"] or any(entry.get("compensates") for entry in entries_of(record))
            if not late or (self.may_compensate() and all(map(self.undoes, entries_of(record)))):
                self.plans.add(record)
        elif record.type in TERMINAL:
            self.end = self.end or record
        elif record.type in MOVES:
            if record.type == "tool_invocation_finished":
                self.finishes[record.key, record.nonce].append(record)
            call = self.calls[record.key]
            before = call.standing()
            if call.settled is None or record.type in ("approval_decided", "policy_allowed"):
                MOVES[record.type](self, call, record)
            if call.standing() != before:
                self.moved.add(record.at)

    def started(self, call: Call, start: Record) -> None:
        if not self.may_start(call, start):
            return
        call.state, call.nonce = "started", start.nonce
        call.live.add(start.nonce)
        call.starts.append(start)
        call.open_starts.add(start.at)
        self.valid.add(start.at)
        self.starts_of[start.nonce].append(start)
        self.calls_of[start.node][start.key] = call
        if self.plans.irreversible(start.node, self.plans.in_force(start.at)):
            self.same_content[content(start)][start.key] = call

    def may_start(self, call: Call, start: Record) -> bool:
        """Everything that must hold at its place in the log, or the record is void."""
        revision = self.plans.in_force(start.at)
        others = [other for key, other in self.calls_of[start.node].items() if key != start.key]
        twins = [other for key, other in self.same_content[content(start)].items() if key != start.key]
        irreversible = self.plans.irreversible(start.node, revision)
        return (
            bool(start.key and start.nonce and start.node)
            and call.state in ("none", "reopened")
            and is_number(start.body.get("token"), call.token)
            and is_number(start.body.get("attempt_id"), call.attempt)
            and start.text("external_key") == f"aetheris:{start.text('job_id')}:{start.node}:{call.attempt}"
            and self.plans.same_entry(start.node, start.body.get("revision"), revision)
            and not self.stopped(start.node, revision)
            and self.end is None
            and (call.decided is None or call.decided.text("decision") == "approve")
            and all(other.outcome == "rejected" and other.sure for other in others)
            and self.after_holds(start.body.get("after"))
            and (not irreversible or approved(call, start))
            and not (irreversible and any(t.settled is None or t.outcome == "success" or not t.sure for t in twins))
        )

    def stopped(self, node: str, revision: int) -> bool:
        """Behind a stop only compensations start, if they were planned after what it covers."""
        undoes, since = self.plans.compensates(node, revision), self.plans.since(node, revision)
        return any(not undoes or covers(stop, since) for stop in self.by_type["job_stopping"])

    def may_compensate(self) -> bool:
        """Stopped, not ended, nothing open; and a human said so, or nothing may have taken effect unseen."""
        started = [call for call in self.calls.values() if call.starts]
        if not self.by_type["job_stopping"] or self.end is not None or any(call.settled is None for call in started):
            return False
        if self.by_type["cancel_requested"]:
            return self.by_type["cancel_requested"][0].body.get("compensate") is True
        return not any(self.may_have_acted(call) for call in started if call.outcome != "success" and not call.sure)

    def may_have_acted(self, call: Call) -> bool:
        node, revision = call.starts[0].node, len(self.plans.effective) - 1
        is_tool = self.plans.node(node, revision).get("kind", "tool") == "tool"
        return is_tool and self.plans.tool(node, revision).get("effect_class") != "pure"

    def undoes(self, entry: dict[str, Any]) -> bool:
        """Is it a new node, just what a node declares that has succeeded?"""
        revision, undone = len(self.plans.effective) - 1, str(entry.get("compensates"))
        if self.plans.node(str(entry.get("id")), revision):
            return False
        declared = is_declared(entry, self.plans.node(undone, revision))
        return declared and any(call.outcome == "success" for call in self.calls_of.get(undone, {}).values())

    def after_holds(self, named: Any) -> bool:
        """Every earlier call that it builds on was settled by exactly that try with exactly that result."""
        return named is None or (isinstance(named, list) and all(self.settled_by(mapping(item)) for item in named))

    def settled_by(self, item: dict[str, Any]) -> bool:
        nonce, result_hash = item.get("invocation_id"), item.get("result_hash")
        for start in self.starts_of.get(nonce, []) if isinstance(nonce, str) else []:
            settled = self.calls[start.key].settled
            if settled is not None and settled.succeeded and settled.nonce == nonce:
                return bool(result_hash) and settled.body.get("output_hash") == result_hash
        return False

    def finished(self, call: Call, record: Record) -> None:
        alive, in_charge = record.nonce in call.live, record.nonce == call.nonce and bool(call.starts)
        if record.succeeded:
            if alive:
                call.settle(record, "success", sure=False)
        elif record.outcome == "retryable_failure" and alive:  # it certainly took no effect
            call.live.discard(record.nonce)
            if in_charge and call.state in ("started", "parked"):
                call.hand_over()
                call.attempt += not call.live
        elif record.outcome == "permanent_failure" and in_charge:
            if record.via in ("executor", "late") and alive:
                call.settle(record, "failed", sure=call.live == {record.nonce})
            elif record.via == "ledger" and call.state in ("started", "reopened"):
                call.settle(record, "failed", sure=call.state == "reopened" and not call.live)
            elif record.via == "human" and call.state == "parked":
                call.settle(record, "failed", sure=False)

    def rejected(self, call: Call, record: Record) -> None:
        said_yes = call.decided is not None and call.decided.text("decision") == "approve"
        overruled = said_yes and record.text("reason") in ("approval", "edited", "expired")
        if call.state in ("none", "reopened") and not overruled:
            call.settle(record, "rejected", sure=not call.live)

    def parked(self, call: Call, record: Record) -> None:
        if call.state == "started" and record.nonce == call.nonce:
            call.state = "parked"

    def reopened(self, call: Call, record: Record) -> None:
        wanted = "parked" if record.text("by") == "human" else "started"
        if call.state == wanted and record.nonce == call.nonce:
            call.hand_over()
            if not is_number(record.body.get("next_token"), call.token):
                self.miscounted.append(record)

    def decided(self, call: Call, record: Record) -> None:
        """The first decision stands."""
        call.decided = call.decided or record

    def allowed(self, call: Call, record: Record) -> None:
        call.allowed.add(json_hash(record.body.get("tool_version")))


MOVES = {
    "tool_invocation_started": Job.started,
    "tool_invocation_finished": Job.finished,
    "invocation_rejected": Job.rejected,
    "invocation_parked": Job.parked,
    "invocation_reopened": Job.reopened,
    "approval_decided": Job.decided,
    "policy_allowed": Job.allowed,
}


def content(start: Record) -> tuple[str, str]:
    return start.text("content_key"), str(start.body.get("occurrence", 1))


def approved(call: Call, start: Record) -> bool:
    """By policy for this version, or by a yes to this version and these arguments."""
    if json_hash(start.body.get("tool_version")) in call.allowed:
        return True
    if call.decided is None or call.decided.text("decision") != "approve":
        return False
    same_version = call.decided.body.get("tool_version") == start.body.get("tool_version")
    return same_version and call.decided.text("args_hash") == start.text("args_hash")


def covers(stop: Record, since: int) -> bool:
    up_to = stop.body.get("up_to_revision")
    return not isinstance(up_to, int) or since <= up_to


def is_number(value: Any, expected: int) -> bool:
    return type(value) is int and value == expected


# --- Findings: the rule, the record that breaks it, and why. Messages name ids, never what was passed or returned.


class Finding:
    def __init__(self, rule: str, record: Record | None, message: str) -> None:
        self.rule, self.message, self.at = rule, message, record.at if record else 0
        self.event_id, self.offset = (record.id, record.offset) if record else ("", -1)

    def to_json(self) -> dict[str, Any]:
        return {"rule": self.rule, "event_id": self.event_id, "offset": self.offset, "message": self.message}

    def order(self) -> Any:
        return self.at, self.rule, self.event_id, self.offset, self.message


# --- 3. The records themselves.


def check_records(records: list[Record]) -> Iterator[Finding]:
    if not records:
        yield Finding("no_history", None, "there are no records")
        return
    first, last = records[0], -1
    if first.type != "job_created":
        yield Finding("not_born", first, "the first record is not job_created")
    for record in records:
        job, node = (record.text(name).encode(errors="replace") for name in ("job_id", "node_id"))
        if not record.readable:
            yield Finding("undecodable", record, "not one JSON object without duplicate keys")
        elif record.outdated:
            yield Finding("unknown_version", record, "of a version that can't be judged")
        else:
            if record.log_key is not None and record.log_key != job:
                yield Finding("key_mismatch", record, "the record's key is not the payload's job_id")
            if record.header("ce_subject") not in (b"", job, node):
                yield Finding("subject_mismatch", record, "ce_subject is neither the payload's node_id nor its job_id")
        if any(mark in record.header(name) for mark in (b" ", b"\n") for name in ("ce_id", "ce_type")):
            yield Finding("ambiguous_header", record, "white space in ce_id or ce_type, which the chain can't tell")
        if record.offset <= last:
            yield Finding("out_of_order", record, "its offset is not above the one before it")
        if record is not first and record.body and record.text("job_id") != first.text("job_id"):
            yield Finding("foreign_record", record, "its job_id is not that of the first record")
        if record is not first and record.type == "job_created" and record.id != first.id:
            yield Finding("born_twice", record, f"the job was created by event {first.id}")
        last = max(last, record.offset)


def check_plans(job: Job) -> Iterator[Finding]:
    for plan in job.plans.effective:
        part = "task_graph" if plan.body.get("revision") == 0 else "diff"
        if plan.text("plan_hash") != json_hash(plan.body.get(part)):
            yield Finding("plan_hash_mismatch", plan, f"plan_hash is not that of the {part}")


def check_approvals(job: Job) -> Iterator[Finding]:
    """Humans decided what they were asked, and were those who may."""
    created = job.by_type["job_created"][0].text("submitted_by") if job.by_type["job_created"] else None
    asked: dict[str, Record] = {}
    for request in job.by_type["approval_requested"]:
        asked.setdefault(request.key, request)
    for key, call in job.calls.items():
        decided, request = call.decided, asked.get(key)
        if decided is None:
            continue
        if request is None or request.at > decided.at:
            yield Finding("unasked_decision", decided, f"key {key} was decided, and nobody had asked")
            continue
        for name in ("node_id", "args_hash", "tool_version", "rule"):
            if request.body.get(name) != decided.body.get(name):
                yield Finding("decision_differs", decided, f"the decision on key {key} is about another {name}")
        who, patterns = decided.text("approver"), request.body.get("approvers")
        if who == created and request.body.get("self_approval") is not True:
            yield Finding("self_approval", decided, f"who submitted the job decided on key {key}")
        if isinstance(patterns, list) and not any(fnmatchcase(who, str(pattern)) for pattern in patterns):
            yield Finding("not_an_approver", decided, f"key {key} was decided by somebody whom the policy doesn't name")


# --- 4c. At most once, over everything that was said of every call.


def check_calls(job: Job) -> Iterator[Finding]:
    started = {key: call for key, call in job.calls.items() if call.starts}
    for key, call in started.items():
        if job.end is not None and call.settled is None:
            for start in call.starts:
                if start.at in call.open_starts:
                    yield Finding("unclosed_start", start, f"the job has ended, but a try of key {key} has no end")
        yield from check_successes(job, key, call)
        for start in call.starts:
            yield from check_start(job, call, start)
    for starts in job.starts_of.values():
        for start in starts[1:]:
            yield Finding("nonce_reused", start, f"its nonce was started before, by event {starts[0].id}")
    for (key, nonce), reports in job.finishes.items():
        yield from check_reports(job, key, nonce, reports)


def check_successes(job: Job, key: str, call: Call) -> Iterator[Finding]:
    """One success a key, and none against its settlement, unless the outside can't have seen two effects."""
    winners: list[tuple[Record, Record]] = []
    for nonce, start in {start.nonce: start for start in call.starts}.items():
        reports = job.finishes.get((key, nonce), [])
        winners += [(start, report) for report in reports if report.succeeded and report.at > start.at][:1]
    winners.sort(key=lambda pair: pair[1].at)
    for (first, _), (second, success) in pairwise(winners):
        if not harmless(job, first, second):
            yield Finding("second_success", success, f"key {key} succeeds under two nonces")
    settled = call.settled
    if settled is None or call.outcome == "success":
        return
    settler = next((start for start in call.starts if start.nonce == settled.nonce), None)
    for start, success in winners:
        own = settled.via in ("executor", "late") and settled.nonce != start.nonce
        excused = own and settler is not None and harmless(job, settler, start)
        if success.at > settled.at and not excused:
            yield Finding("contradicts_settlement", success, f"but key {key} is {call.outcome} by {settled.id}")


def harmless(job: Job, first: Record, second: Record) -> bool:
    """A pure tool, or one that deduplicates by the external key, sent twice."""
    pins = [job.plans.tool(start.node, job.plans.in_force(start.at)) for start in (first, second)]
    if first.text("kind") in ("llm", "time", "random") and not any(pins):
        return True
    kinds = {str(pin.get("effect_class")) for pin in pins}
    same = first.text("external_key") == second.text("external_key")
    return kinds == {"pure"} or (kinds == {"idempotent"} and same)


def check_start(job: Job, call: Call, start: Record) -> Iterator[Finding]:
    first, revision = call.starts[0], job.plans.in_force(start.at)
    if any(start.body.get(name) != first.body.get(name) for name in ("node_id", "tool_name", "args_hash")):
        yield Finding("key_moved", start, f"its key names another call than in event {first.id}")
    entry, pin = job.plans.node(start.node, revision), job.plans.tool(start.node, revision)
    version = start.text("tool_version")
    if start.text("tool_name") != (entry.get("tool") or entry.get("kind")) or version != pin.get("version", version):
        yield Finding("other_tool", start, f"node {start.node} starts another tool than its plan pins")


def check_reports(job: Job, key: str, nonce: str, reports: list[Record]) -> Iterator[Finding]:
    """All that was said of one try."""
    started = [start.at for start in job.calls[key].starts if start.nonce == nonce]
    for report in reports:
        if report.succeeded and not (started and started[0] < report.at):
            yield Finding("success_without_valid_start", report, f"try {nonce} never validly started")
        if report.outcome == "retryable_failure" and report.said_by not in ("executor", "late"):
            yield Finding("retryable_not_by_try", report, "only a try itself may call itself retryable")
        elsewhere = report.body.get("result") is None and report.body.get("result_ref") is not None
        if report.succeeded and not elsewhere and not report.output == json_hash(report.body.get("result")) != "":
            yield Finding("output_hash_mismatch", report, f"output_hash is not the result's, try {nonce}")
    distinct: dict[Any, Record] = {}
    for report in reports:
        distinct.setdefault((report.said_by, str(report.outcome), report.output), report)
    for first, second in combinations(distinct.values(), 2):
        voices = {first.said_by, second.said_by}
        same = (str(first.outcome), first.output) == (str(second.outcome), second.output)
        if voices <= {"executor", "catch_up"}:
            if not same:
                yield Finding("reports_disagree", second, f"executor and catch-up differ on try {nonce}")
        elif voices & {"probe", "human", "late"} and first.succeeded != second.succeeded:
            yield Finding("truth_differs", second, f"what is known of try {nonce} differs from what was said")


# --- 5. Replay: what the planner recorded is what the calls gave.


def check_replay(job: Job) -> Iterator[Finding]:
    for record in job.miscounted:
        yield Finding("derivations_differ", record, f"key {record.key} goes on with another token")
    commits: dict[str, list[Record]] = defaultdict(list)
    for commit in job.by_type["command_committed"]:
        commits[commit.key].append(commit)
    said: dict[str, set[str]] = defaultdict(set)
    for (key, _), reports in job.finishes.items():
        said[key] |= {report.output for report in reports if report.succeeded}
    for key, call in job.calls.items():
        settled = call.settled
        if not call.starts or settled is None or call.outcome != "success" or settled is job.records[-1]:
            continue  # the last record may be the first half of a batch that was written after we looked
        if not any(commit.body.get("output_hash") == settled.body.get("output_hash") for commit in commits[key]):
            yield Finding("not_committed", settled, f"key {key} succeeded, but no command_committed says the same")
    for key, listed in commits.items():
        for commit in listed:
            if commit.text("output_hash") not in said[key]:
                yield Finding("stray_commit", commit, f"key {key} is committed, but no finished says so")
    firsts: dict[str, Record] = {}
    for record in job.by_type["node_finished"]:
        first = firsts.setdefault(record.node, record)
        if first is record:
            yield from check_node(job, record)
        elif record.id != first.id and record.text("result_type") != "compensated":
            yield Finding("node_finished_twice", record, f"node {record.node} was finished by event {first.id}")
    yield from check_completion(job)
    yield from check_compensation(job)


def undone_by(job: Job, at: int) -> dict[str, str]:
    """Node -> the node that had undone it before a place in the log."""
    revision = job.plans.in_force(at)
    undoing = [node for node in job.plans.nodes if job.plans.compensates(node, revision)]
    return {job.plans.compensates(node, revision): node for node in undoing if is_whole(settling(job, node, at))}


def is_whole(call: Call | None) -> bool:
    """What took effect in part has not undone its node."""
    return call is not None and call.settled is not None and call.settled.outcome == "success"


def check_compensation(job: Job) -> Iterator[Finding]:
    """What is said to be undone was undone, in reverse order of commitment."""
    said: dict[str, str] = {}
    for record in job.by_type["node_finished"]:
        if record.text("result_type") == "compensated":
            if said.setdefault(record.node, record.id) != record.id:
                yield Finding("node_finished_twice", record, f"node {record.node} was compensated before")
            elif record.node not in undone_by(job, record.at):
                yield Finding("unfounded_compensation", record, f"nothing has undone node {record.node} before it")
    for record in job.by_type["step_compensated"]:
        if undone_by(job, record.at).get(record.text("compensates")) != record.node:
            yield Finding("unfounded_compensation", record, f"node {record.node} has not undone that before it")
    committed: list[tuple[Record, int]] = []
    seen: set[str] = set()
    for start in job.by_type["tool_invocation_started"]:
        undone = job.plans.compensates(start.node, job.plans.in_force(start.at))
        if start.at in job.valid and undone and start.node not in seen:
            seen.add(start.node)
            call = settling(job, undone, start.at)
            committed += [(start, call.settled.at)] if call is not None and call.settled is not None else []
    for (_, earlier), (start, later) in pairwise(committed):
        if later >= earlier:
            yield Finding("compensation_order", start, f"node {start.node} undoes what was committed later")
    if job.end is not None:
        named = job.end.body.get("compensated") or []
        if not isinstance(named, list) or set(map(str, named)) != set(undone_by(job, job.end.at)):
            yield Finding("compensated_differs", job.end, "what it says was undone is not what the calls say")


def settling(job: Job, node: str, at: int) -> Call | None:
    """The call of a node that had succeeded before a place in the log."""
    return next((call for call in job.calls_of.get(node, {}).values() if call.succeeded_before(at)), None)


def check_node(job: Job, record: Record) -> Iterator[Finding]:
    entry = job.plans.node(record.node, job.plans.in_force(record.at))
    if not entry:
        yield Finding("unknown_node", record, f"node {record.node} is in no plan before it")
        return
    said, call = record.text("result_type"), settling(job, record.node, record.at)
    if call is None or call.settled is None:
        if said not in ("success", "side_effect_committed", "compensatable_failure"):
            return
        waited = wait_end(job, record) if entry.get("kind") in ("wait", "timer", "human") else None
        if waited is None:
            yield Finding("unfounded_node", record, f"node {record.node} is {said}, but nothing settled it so before")
        elif not record.text("output_hash") == waited.text("output_hash") == json_hash(waited.body.get("payload")):
            yield Finding("injected_result_differs", record, f"node {record.node} carries another result than its wait")
        return
    if said not in result_types(job, call, call.settled):
        yield Finding("result_type_differs", record, f"node {record.node} is {said}, which its call doesn't give")
    if record.text("output_hash") != call.settled.text("output_hash"):
        yield Finding("injected_result_differs", record, f"node {record.node} carries another result than its call")


def wait_end(job: Job, record: Record) -> Record | None:
    """What ended a node's own wait before its node_finished; None where it had not begun, or ended in vain first."""
    begun = None
    for fact in job.waits[record.node]:
        if fact.at >= record.at:
            break
        if fact.type == "job_waiting":
            begun = fact.key
        elif fact.key == begun:
            return fact if fact.type == "wait_completed" else None
    return None


def result_types(job: Job, call: Call, settled: Record) -> tuple[str, ...]:
    start = next(start for start in call.starts if start.nonce == settled.nonce)
    revision = job.plans.in_force(start.at)
    kind = job.plans.node(start.node, revision).get("kind", "tool")
    if kind != "tool" or job.plans.tool(start.node, revision).get("effect_class") == "pure":
        return ("success",)
    partial = settled.outcome == "compensatable_failure"
    return ("side_effect_committed", "compensatable_failure") if partial else ("side_effect_committed",)


def check_completion(job: Job) -> Iterator[Finding]:
    if job.end is None or job.end.type != "job_completed":
        return
    good = ("success", "side_effect_committed", "compensated")
    before = [record for record in job.by_type["node_finished"] if record.at < job.end.at]
    done = {record.node for record in before if record.text("result_type") in good}
    for node in job.plans.order(job.plans.in_force(job.end.at)):
        if node not in done:
            yield Finding("incomplete", job.end, f"the job is completed, but node {node} is not done")
            return


# --- 6. What ran, and what came of it, over the first `limit` records.


def execution_hash(job: Job, limit: int) -> str:
    """SHA-256(plan_hash, then node_id:result_type and a newline for each node_finished; each event counts once)."""
    plan = ""
    for kind in ("plan_generated", "decision_snapshot", "job_created"):
        first = job.by_type[kind][0] if job.by_type[kind] else None
        if not plan and first is not None and first.at < limit:
            plan = json_hash(first.body.get("task_graph") if kind == "plan_generated" else first.body)
            if kind == "plan_generated":
                break
    if not plan:
        return ""
    digest, seen = hashlib.sha256(plan.encode()), set()
    for record in job.by_type["node_finished"]:
        if record.id and record.id in seen:
            continue
        seen.add(record.id)
        if record.at < limit:
            digest.update(as_bytes(f"{record.node}:{record.text('result_type')}\n"))
    return digest.hexdigest()


def outcome_hash(job: Job, blobs: dict[str, bytes], limit: int) -> tuple[str, list[Finding]]:
    """SHA-256 of [[node_id, result_type, output_hash], ...] in the plan's order; the same after a clean run.

    This output_hash is that of the result without external_id and what the tool's pin declares volatile.
    """
    revision = job.plans.in_force(limit)
    last = {record.node: record for record in job.by_type["node_finished"] if record.at < limit}
    rows, found = [], []
    for node in job.plans.order(revision) if revision >= 0 else []:
        finished, call = last.get(node), settling(job, node, limit)
        output = finished.text("output_hash") if finished else ""
        if call is not None and call.settled is not None:
            try:
                output = lasting_hash(job, call.settled, blobs)
            except Bad as error:
                found.append(Finding(error.args[0], call.settled, error.args[1]))
        rows.append([node, finished.text("result_type") if finished else "", output])
    return ("" if found or revision < 0 else json_hash(rows)), found


def lasting_hash(job: Job, settled: Record, blobs: dict[str, bytes]) -> str:
    start = job.starts_of[settled.nonce][0]
    pin = job.plans.tool(start.node, job.plans.in_force(start.at))
    result = read_result(settled, blobs)
    if isinstance(result, dict):
        left_out = {"external_id", *map(str, pin.get("volatile") or [])}
        result = {name: value for name, value in result.items() if name not in left_out}
    hashed = json_hash(result)
    if not hashed:
        raise Bad("not_canonical", "the result is not canonical")
    return hashed


def read_result(settled: Record, blobs: dict[str, bytes]) -> Any:
    reference = settled.body.get("result_ref")
    if not isinstance(reference, dict):
        return settled.body.get("result")
    blob = blobs.get(str(reference.get("sha256")))
    if blob is None:
        raise Bad("missing_blob", "its result is a blob that is not here")
    if sha256(blob).hex() != reference.get("sha256") or len(blob) != reference.get("size"):
        raise Bad("blob_mismatch", "its blob is not what the reference says")
    try:
        result = json.loads(blob)
    except (ValueError, RecursionError):
        raise Bad("output_hash_mismatch", "output_hash is not the blob's") from None
    if not json_hash(result) == settled.text("output_hash") != "":
        raise Bad("output_hash_mismatch", "output_hash is not the blob's")
    return result


# --- 7. The seal, and the log of all seals.


def check_seal(
    job: Job, roots: list[bytes], blobs: dict[str, bytes], keys: dict[str, Key], seal: Record
) -> Iterator[Finding]:
    count = seal.body.get("event_count")
    if type(count) is not int or not 0 < count <= seal.at:
        yield Finding("seal_count", seal, "the seal covers no prefix of what lies before it")
        return
    if seal.text("root") != roots[count - 1].hex():
        yield Finding("seal_root", seal, f"the chain of the first {count} records has another root")
    if seal.text("execution_hash") != execution_hash(job, count):
        yield Finding("seal_execution_hash", seal, f"the first {count} records have another execution_hash")
    outcome, unreadable = outcome_hash(job, blobs, count)
    if not unreadable and seal.text("outcome_hash") != outcome:
        yield Finding("seal_outcome_hash", seal, f"the first {count} records have another outcome_hash")
    created = job.by_type["job_created"]
    if created and seal.text("tenant") != created[0].text("tenant"):
        yield Finding("seal_tenant", seal, "the seal names another tenant than job_created")
    if job.end is None or job.end.at >= count:
        yield Finding("sealed_unfinished", seal, "the sealed prefix holds no end of the job")
    key = keys.get(seal.text("key_id"))
    unsigned = {name: value for name, value in seal.body.items() if name != "signature"}
    if key is None:
        yield Finding("seal_unknown_key", seal, "the seal's key_id is none of the keys given")
    elif not sealed_by(key, seal.text("signature"), unsigned):
        yield Finding("seal_signature", seal, "the seal's signature is not its key's over its payload")
    elif refusal := key.refusal(seal.text("sealed_at")):
        yield Finding(refusal[0], seal, refusal[1])


def sealed_by(key: Key, signature: str, unsigned: dict[str, Any]) -> bool:
    try:
        message = pae("application/vnd.aetheris.seal+json", canonical(unsigned).encode())
        return key.signed(base64.b64decode(signature, validate=True), message)
    except (ValueError, RecursionError):
        return False


def check_after_seal(job: Job, count: int) -> Iterator[Finding]:
    """After a seal: only seals, confirmations, and what changes nothing."""
    finished = {(r.node, r.text("result_type")) for r in job.by_type["node_finished"] if r.at < count}
    plans = {plan.at for plan in job.plans.effective}
    for record in job.records[count:]:
        changes = (
            record.at in job.valid
            or (record.type in SETTLES and record.at in job.moved)
            or record.at in plans
            or (record.type == "node_finished" and (record.node, record.text("result_type")) not in finished)
            or record.type == "step_compensated"
            or record is job.end
        )
        if changes:
            yield Finding("after_seal", record, f"{record.type} changes a sealed job")


SETTLES = ("tool_invocation_finished", "invocation_rejected", "invocation_parked", "invocation_reopened")


def check_log_of_seals(proof: str, seal: bytes, keys: dict[str, Key]) -> None:
    """The proof (C2SP tlog-proof) leads from this seal to a root that a checkpoint (C2SP signed note) signs."""
    head, parted, checkpoint = proof.partition("\n\n")
    lines = head.split("\n")
    if not parted or len(proof) > 1 << 20 or lines[0] != "c2sp.org/tlog-proof@v1":
        raise Bad("bad_proof", "not a c2sp.org/tlog-proof@v1 with a checkpoint")
    lines = lines[2:] if len(lines) > 1 and lines[1].startswith("extra ") else lines[1:]
    if not lines or not re.fullmatch(r"index (0|[1-9][0-9]{0,18})", lines[0]):
        raise Bad("bad_proof", "lacks a line 'index N'")
    index, path = int(lines[0][6:]), [unbase64_exact(line, "bad_proof") for line in lines[1:]]
    if len(path) > 64 or any(len(step) != 32 for step in path):
        raise Bad("bad_proof", "its path is none of SHA-256 hashes")
    size, root = check_checkpoint(checkpoint, keys)
    if not included(sha256(b"\0" + seal), index, size, path, root):
        raise Bad("not_included", f"leaf {index} of the checkpoint's tree is another")


def included(found: bytes, index: int, size: int, path: list[bytes], root: bytes) -> bool:
    """RFC 9162, 2.1.3.2."""
    if index >= size:
        return False
    last = size - 1
    for step in path:
        if last == 0:
            return False
        if index & 1 or index == last:
            found = sha256(b"\1" + step + found)
            while not index & 1 and index:
                index, last = index >> 1, last >> 1
        else:
            found = sha256(b"\1" + found + step)
        index, last = index >> 1, last >> 1
    return last == 0 and found == root


def check_checkpoint(note: str, keys: dict[str, Key]) -> tuple[int, bytes]:
    """(size, root) that a trusted, not revoked key signed."""
    text, parted, tail = note.rpartition("\n\n")
    lines, signatures = text.split("\n"), tail.split("\n")[:-1]
    strange = any(char < " " and char != "\n" for char in note)
    if not parted or strange or not tail.endswith("\n") or not 0 < len(signatures) <= 64:
        raise Bad("bad_checkpoint", "not a signed note")
    if len(lines) < 3 or not all(lines) or not re.fullmatch(r"0|[1-9][0-9]{0,18}", lines[1]):
        raise Bad("bad_checkpoint", "lacks origin, size or root")
    origin, size, root = lines[0], int(lines[1]), unbase64_exact(lines[2], "bad_checkpoint")
    if len(root) != 32:
        raise Bad("bad_checkpoint", "its root is no SHA-256")
    known = {sha256(origin.encode() + b"\n\1" + key.raw)[:4]: key for key in keys.values()}
    read = []
    for line in signatures:
        parts = line.split(" ")
        if len(parts) != 3 or parts[0] != "\u2014" or not parts[1]:
            raise Bad("bad_checkpoint", "a line of signatures is none")
        read.append((parts[1], unbase64_exact(parts[2], "bad_checkpoint")))
        if len(read[-1][1]) < 5:
            raise Bad("bad_checkpoint", "a line of signatures is none")
    good = revoked = False
    for name, signature in read:
        key = known.get(signature[:4])
        if name != origin or key is None:
            continue
        if not key.signed(signature[4:], (text + "\n").encode()):
            raise Bad("checkpoint_signature", "the checkpoint's signature is not its key's")
        good, revoked = good or not key.revoked_at, revoked or bool(key.revoked_at)
    if not good:
        rule = "checkpoint_revoked_key" if revoked else "checkpoint_unknown_key"
        raise Bad(rule, f"signed by {'a revoked key' if revoked else 'none of the keys given'}")
    return size, root


def unbase64_exact(text: str, rule: str) -> bytes:
    data = unbase64(text, rule)
    if base64.b64encode(data).decode() != text:
        raise Bad(rule, "not canonical base64")
    return data


# --- 8. What the bundle derives for its readers.


def derived(job: Job) -> dict[str, Any]:
    kinds = ("policy_allowed", "approval_requested", "approval_decided", "invocation_rejected")
    created = job.by_type["job_created"][0].body if job.by_type["job_created"] else {}
    names = ("revision", "plan_hash", "planner", "planner_version")
    plans = job.plans.effective
    return {
        "ledger": list(ledger(job)),
        "approvals": [
            {"event_id": record.id, "offset": record.offset, "type": record.type, "says": record.body}
            for record in job.records
            if record.type in kinds
        ],
        "provenance": {
            **{name: created.get(name) for name in ("tenant", "submitted_by", "agent", "request_hash")},
            "plans": [{"event_id": plan.id} | {name: plan.body.get(name) for name in names} for plan in plans],
            "decisions": [record.id for record in job.by_type["decision_snapshot"]],
            "tools": [part_of(plan).get("tools", {}) for plan in plans],
        },
    }


def ledger(job: Job) -> Iterator[dict[str, Any]]:
    """A row for each try that counted."""
    reopened = {(record.key, record.nonce) for record in job.by_type["invocation_reopened"]}
    parked = {(record.key, record.nonce) for record in job.by_type["invocation_parked"]}
    commits = {(commit.key, commit.text("output_hash")) for commit in job.by_type["command_committed"]}
    for start in job.by_type["tool_invocation_started"]:
        if start.at not in job.valid:
            continue
        named = (start.key, start.nonce)
        ends = [report for report in job.finishes.get(named, []) if report.at > start.at]
        success = next((report for report in ends if report.succeeded), None)
        open_status = "in_doubt" if named in reopened else "parked" if named in parked else "started"
        yield {
            "invocation_id": start.nonce,
            "step_id": start.node,
            **{name: start.text(name) for name in ("tool_name", "args_hash", "idempotency_key", "external_key")},
            **{name: start.body.get(name) for name in ("attempt_id", "token")},
            "status": "success" if success else "failure" if ends else open_status,
            "committed": success is not None and (start.key, success.output) in commits,
            "external_id": success.text("external_id") if success else "",
            "output_hash": success.output if success else "",
        }


# --- All of it.


def judge(
    records: list[Record], blobs: dict[str, bytes], keys: dict[str, Key]
) -> tuple[dict[str, Any], Job, Record | None]:
    """The report on a job's records, the job, and the seal that counts."""
    job, roots = Job(records), chain(records)
    seals = [(seal, list(check_seal(job, roots, blobs, keys, seal))) for seal in job.by_type["job_sealed"]]
    found = [finding for _, broken in seals for finding in broken]
    good = next((seal for seal, broken in seals if not broken), None)
    seal = good or (seals[0][0] if seals else None)
    claimed = seal.body.get("event_count") if seal else 0
    sealed = claimed if type(claimed) is int else 0
    count = sealed if good else len(records)
    outcome, unreadable = outcome_hash(job, blobs, count)
    calls, replay = list(check_calls(job)), sorted(check_replay(job), key=Finding.order)
    found += [*check_records(records), *check_plans(job), *check_approvals(job), *calls, *replay, *unreadable]
    found += check_after_seal(job, sealed) if good else []
    pending = sorted(key for key, call in job.calls.items() if call.starts and call.settled is None)
    full_root = roots[-1].hex() if roots else ""
    root = roots[sealed - 1].hex() if seal and 0 < sealed <= seal.at else ""
    unique = {finding.order(): finding for finding in found}
    violations = [unique[order].to_json() for order in sorted(unique)]
    report = {
        "ok": not violations and not pending,
        "ended": job.end is not None,
        "execution_hash": execution_hash(job, count),
        "event_chain_root_hash": root if good else full_root,
        "tool_invocation_ledger_proof": {"ok": not pending and not calls, "pending_idempotency_keys": pending},
        "replay_proof_result": {"ok": not replay, "error": replay[0].message if replay else ""},
        "outcome_hash": outcome,
        "event_count": count,
        "seal": {"present": bool(seal), "ok": bool(good), "event_count": sealed, "root": root, "full_root": full_root},
        "violations": violations,
    }
    return report, job, seal


SUMMARY = (
    *("execution_hash", "event_chain_root_hash", "outcome_hash", "event_count"),
    *("tool_invocation_ledger_proof", "replay_proof_result"),
)


def check_bundle(data: bytes, trusted: dict[str, Key] | None) -> dict[str, Any]:
    envelope = parse(unzip(data), "bad_envelope")
    if envelope.get("payloadType") != "application/vnd.in-toto+json":
        raise Bad("bad_envelope", "its payloadType is not application/vnd.in-toto+json")
    payload = unbase64(envelope.get("payload"), "bad_envelope")
    statement = parse(payload, "bad_statement")
    try:
        kinds = statement["_type"], statement["predicateType"]
        if kinds != ("https://in-toto.io/Statement/v1", "urn:aetheris:job-evidence:v1"):
            raise Bad("bad_statement", "not a urn:aetheris:job-evidence:v1")
        predicate = statement["predicate"]
        records = [read_record(at, one) for at, one in enumerate(predicate["records"])]
        blobs = {name: unbase64(blob, "bad_statement") for name, blob in predicate["blobs"].items()}
        keys = read_keys(json.dumps(predicate).encode()) if trusted is None else trusted
        job_id, proof = str(predicate["job_id"]), str(predicate["inclusion"])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise Bad("bad_statement", "lacks a part, or has one of another form") from None
    check_envelope(envelope, payload, keys)
    report, job, seal = judge(records, blobs, keys)
    found = []
    digest = {"aetherisEventChain": report["event_chain_root_hash"]}
    if statement.get("subject") != [{"name": job_id, "digest": digest}]:
        found.append(Finding("subject_differs", None, "the statement's subject is not this job with this chain"))
    if records and records[0].log_key != job_id.encode(errors="replace"):
        found.append(Finding("other_job", None, "the records are another job's"))
    for name, value in {**derived(job), "report": {name: report[name] for name in SUMMARY}}.items():
        if predicate.get(name) != value:
            found.append(Finding("derived_differs", None, f"{name} is not what the records say"))
    try:
        if seal is None:
            raise Bad("not_sealed", "the records hold no seal")
        check_log_of_seals(proof, seal.value, keys)
    except Bad as error:
        found.append(Finding(error.args[0], None, error.args[1]))
    violations = [*(finding.to_json() for finding in found), *report["violations"]]
    return {
        "job_id": job_id,
        **report,
        "ok": report["ok"] and not found,
        "violations": violations,
        "trusted": list(keys),
    }


def show(report: dict[str, Any]) -> None:
    for name in ("job_id", "trusted", *SUMMARY, "seal"):
        print(f"{name:<30} {report.get(name)}")
    for finding in report["violations"]:
        where = f"event {finding['event_id']} at offset {finding['offset']}: " if finding["event_id"] else ""
        print(ascii(f"violation {finding['rule']}: {where}{finding['message']}")[1:-1])
    print("holds" if report["ok"] else "does not hold")


def main(arguments: list[str]) -> int:
    as_json = "--json" in arguments
    arguments = [argument for argument in arguments if argument != "--json"]
    if len(arguments) not in (1, 3) or (len(arguments) == 3 and arguments[1] != "--public-key"):
        print(__doc__.splitlines()[0] if __doc__ else "", file=sys.stderr)
        return 2
    try:
        trusted = read_keys(Path(arguments[2]).read_bytes()) if len(arguments) == 3 else None
        data = Path(arguments[0]).read_bytes()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"can't be used: {type(error).__name__}", file=sys.stderr)
        return 2
    try:
        report = check_bundle(data, trusted)
    except Bad as error:
        report = {"ok": False, "violations": [Finding(error.args[0], None, error.args[1]).to_json()]}
    if as_json:
        print(json.dumps(report))
    else:
        show(report)
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
