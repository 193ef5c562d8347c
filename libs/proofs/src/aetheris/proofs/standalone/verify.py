#!/usr/bin/env python3
"""Check an evidence bundle of Aetheris, trusting nobody:
    python3 verify.py BUNDLE.zip --public-key KEYS [--installation KEY_ID] [--signers FILE] [--at TIME]
    python3 verify.py BUNDLE.zip --self-signed …
    python3 verify.py BUNDLE.zip --redacted …
    python3 verify.py BUNDLE.zip --with OTHER.zip [--with …] …
    python3 verify.py CALL.json --public-key KEYS [--at TIME]

Needs Python 3.11 and the package `cryptography` (for Ed25519 and P-256), and no network. It shares no code with
Aetheris and is meant to be read, from here to the end, in the order in which it checks:

  1 the bundle   zip → signed envelope (DSSE) → statement (in-toto) → the job's records, as the exact bytes of the log
  2 the records  the chain, a hash and a tree over all of them in order; what is wrong with a record, and who wrote it
  3 the job      all records in log order: what each does, and what is wrong with it where it stands
  4 the hashes   execution_hash: what ran; outcome_hash: what came of it
  5 the seal     signed over chain and hashes; and the log of all seals, whose signed checkpoint must contain it
  6 the chain    the jobs that it continues, judged alike; what it says of them is what their sealed records say
  7 the answer   the report; and what the bundle says again for its readers must follow from its records
  8 redacted     a bundle from which records are left out, which only --redacted takes: what is shown, and what is not
  9 one call     the proof of a call by itself (`aetheris receipt`): what was disclosed of it, under its seal
 10 jobs beside  with --with: jobs that calls of each other have begun; what they say of each other must be the same

What is wrong is named by its rule (docs/verification.md says each in a sentence) and by the event. KEYS is a public
key in PEM or a file {"keys": [...]}; without it the bundle's own are taken, and the answer is only "unchanged since
sealed by whoever holds these keys", which is not enough (no_public_key) unless --self-signed says so. KEY_ID is of the
root by which the services sign their records; without it, it is whichever the job names, and the report says it. FILE
is one of allowed signers, as OpenSSH has it: whose keys sign for whom, where a rule asks approvers to sign; without it
their signatures are held against the keys that they name. TIME, by which a key may have retired, is now where it is
not said (2026-01-31T12:00:00+00:00). Ends with 0 if everything holds, 1 if anything doesn't, 2 on wrong usage.
"""

import base64
import gc
import hashlib
import json
import math
import re
import struct
import sys
import uuid
import zlib
from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

MAX_BYTES = 256 * 1024 * 1024
MAX_VALUES = 4_000_000  # of a statement, in its lists and objects
MAX_DEPTH = 256  # of a statement
MAX_RECORD_DEPTH = 128
KNOWN_RULES = {1}  # by which jobs are judged here
MAX_CONTINUED = 16  # jobs behind one, each continuing the next
EVENT_TYPES = set(
    "job_created decision_snapshot plan_generated node_finished state_checkpointed tool_invocation_started "
    "tool_invocation_finished command_committed state_changed policy_allowed approval_requested approval_voted "
    "approval_decided resolution_voted invocation_rejected invocation_cancel_requested retry_scheduled "
    "invocation_in_doubt invocation_probed worker_ended invocation_parked invocation_reopened effect_confirmed "
    "confirmation_failed step_compensated signal_received job_waiting wait_completed job_paused job_resumed job_frozen "
    "job_unfrozen cancel_requested job_stopping job_completed job_failed job_cancelled violation_found "
    "key_revoked birth_repeated call_planned workflow_accepted job_sealed".split()
)

# Values that rules decide on, and where they stand ([]: in each of a list, {}: of an object).
NODE = {
    "kind": "tool llm human wait timer time random workflow",
    "form.fields.[].type": "text textarea select multiselect radio checkbox number slider date datetime boolean",
}
PIN = {
    "effect_class": "pure idempotent probeable opaque",
    "on_in_doubt": "park fail",
    "duplicate_scope": "job session tenant",
}
CLOSED: dict[str, dict[str, str]] = {
    "job_created": {
        "options.on_in_doubt": "park fail",
        "options.confirmation": "strict warn human_in_loop",
        "brief.planning": "agent graph",
        "continues.settled.[].verdict": "happened not_executed",
    },
    "plan_generated": {
        f"{graph}.{each}.{path}": known
        for graph in ("task_graph", "diff")
        for each, places in (("nodes.[]", NODE), ("tools.{}", PIN))
        for path, known in places.items()
    },
    "call_planned": {f"entry.{path}": known for path, known in NODE.items()},
    "tool_invocation_finished": {
        "outcome": "success compensatable_failure retryable_failure permanent_failure",
        "via": "executor catch_up probe late human ledger",
    },
    "policy_allowed": {"repeats": "allow"},
    "approval_decided": {"decision": "approve edit reject"},
    "invocation_probed": {"answer": "found not_found unknown"},
    "invocation_reopened": {"by": "probe policy human"},
    "resolution_voted": {"verdict": "happened not_executed accepted"},
    "confirmation_failed": {"reason": "drift unknown"},
}


class Bad(Exception):
    """A broken rule after which there is nothing to go on with: Bad(rule)."""


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def canonical(value: Any) -> str:
    """RFC 8785; ValueError for what has no such form."""
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, dict):
        names: list[str] = sorted(value, key=utf16)
        return "{" + ",".join(canonical(name) + ":" + canonical(value[name]) for name in names) + "}"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, int) and abs(value) > 2**53 - 1:
        raise ValueError("not exact everywhere")
    return PLAIN.encode(value)


PLAIN = json.JSONEncoder(ensure_ascii=False)


def utf16(text: str) -> bytes:
    return text.encode("utf-16-be")


def number(value: float) -> str:
    """As JavaScript prints it: the shortest digits that read back, an exponent only beyond 1e21 and 1e-6."""
    if not math.isfinite(value):
        raise ValueError("no number")
    exact = Decimal(repr(value or 0.0)).normalize()
    return f"{exact:f}" if -6 <= exact.adjusted() < 21 else f"{exact:e}"


def json_hash(value: Any) -> str:
    """Hex SHA-256 of the canonical form; "", which no recorded hash equals, where there is none."""
    try:
        return sha256(canonical(value).encode()).hex()
    except (ValueError, RecursionError):
        return ""


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key comes twice")
    return found


def refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def fraction(text: str) -> float:
    """As long before its point as an integer may be."""
    if len(re.split("[.eE]", text.lstrip("-"))[0]) > 4300:
        raise ValueError("too long")
    return float(text)


STRICT = json.JSONDecoder(object_pairs_hook=once, parse_constant=refuse, parse_float=fraction)


def parse(data: bytes, rule: str) -> dict[str, Any]:
    """One JSON object in UTF-8, without duplicate keys and NaN."""
    try:
        found = STRICT.decode(data.decode())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Bad(rule)
    return found


def parse_record(value: bytes) -> dict[str, Any]:
    """Moreover nested no deeper than any reader goes, and without lone surrogates."""
    if nests_deeper(value, MAX_RECORD_DEPTH):
        raise Bad("undecodable")
    found = parse(value, "undecodable")
    try:
        if b"\\u" in value:
            PLAIN.encode(found).encode()
    except UnicodeEncodeError:
        raise Bad("undecodable") from None
    return found


def nests_deeper(data: bytes, levels: int) -> bool:
    """Before it is parsed: how deep a parser gets is its caller's matter. What is no JSON may seem to."""
    if data.count(b"{") + data.count(b"[") <= levels:
        return False
    outside = re.sub(rb'"(?:[^"\\]|\\.)*+"?', b"", data, flags=re.DOTALL)
    depths = accumulate((one in b"[{") - (one in b"]}") for one in outside)
    return max(depths, default=0) > levels


def unbase64(text: Any, rule: str, *, exact: bool = False) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (ValueError, TypeError):
        raise Bad(rule) from None
    if exact and base64.b64encode(data).decode() != text:
        raise Bad(rule)
    return data


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def as_bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


# --- 1. The bundle.


NAME, STATEMENT = b"bundle.dsse.json", "application/vnd.in-toto+json"


def unzip(data: bytes) -> bytes:
    """The envelope, in a zip that may come from anybody: it has the one form that a bundle's zip has, to the last byte.

    Nothing is unpacked before that is known, and at most a hundred times what is there.
    """
    try:
        method, crc, packed_size, size = *struct.unpack_from("<H", data, 8), *struct.unpack_from("<3I", data, 14)
        packed = data[46 : 46 + packed_size]
        about = struct.pack("<4H3I2H", 0, method, 0, 33, crc, packed_size, size, len(NAME), 0)
        local = b"PK\3\4" + struct.pack("<H", 20) + about + NAME + packed
        central = b"PK\1\2" + struct.pack("<2H", 788, 20) + about + struct.pack("<3H2I", 0, 0, 0, 0o100644 << 16, 0)
        central += NAME
        end = b"PK\5\6" + struct.pack("<4H2IH", 0, 0, 1, 1, len(central), len(local), 0)
        if data != local + central + end or method not in (0, 8) or size > min(MAX_BYTES, 100 * packed_size):
            raise Bad("something else in it, or around it; or too large")
        inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        envelope = inflater.decompress(packed, size + 1) if method else packed
        if method and (not inflater.eof or inflater.unused_data):
            raise Bad("more in it than it says")
        if len(envelope) != size or zlib.crc32(envelope) != crc:
            raise Bad("not what it says")
    except Exception:
        raise Bad("bad_zip") from None
    return envelope


def open_envelope(data: bytes) -> tuple[bytes, list[Any]]:
    """Its payload and its signatures. The payload is not parsed before the signature over it holds."""
    head, joint = b'{"payload":"', b'",'
    end = data.find(joint, len(head))
    if not data.startswith(head) or end < 0 or len(data) - end > 64 * 1024:
        raise Bad("bad_envelope")
    beside = parse(b"{" + data[end + len(joint) :], "bad_envelope")
    of_type, signatures = beside.pop("payloadType", None), beside.pop("signatures", None)
    if beside or of_type != STATEMENT or not isinstance(signatures, list):
        raise Bad("bad_envelope")
    return unbase64(data[len(head) : end], "bad_envelope"), signatures


def check_envelope(payload: bytes, given: list[Any], keys: dict[str, "Key"]) -> None:
    signatures: list[tuple[Key | None, bytes]] = []
    for one in given:
        if not isinstance(one, dict):
            raise Bad("bad_envelope")
        key = of_use(keys, "seal").get(str(one.get("keyid")))
        signatures.append((key, unbase64(one.get("sig"), "bad_envelope") if key else b""))
    check_signatures("envelope", signatures, pae(STATEMENT, payload))


def is_deep(value: Any, levels: int = MAX_DEPTH) -> bool:
    level = [value]
    for _ in range(levels):
        inside = [one.values() if isinstance(one, dict) else one for one in level]
        level = [one for each in inside for one in each if isinstance(one, (list, dict))]
    return bool(level)


def pae(payload_type: str, payload: bytes) -> bytes:
    """What DSSE signs."""
    return b"DSSEv1 %d %b %d %b" % (len(payload_type), payload_type.encode(), len(payload), payload)


LAST = datetime.max.replace(tzinfo=UTC)  # when each key that ends has ended


class Key:
    """A public key, and when what it signs counts; None is no bound. `use` is seal, log, or "" for both."""

    def __init__(self, entry: dict[str, Any], now: datetime = LAST) -> None:
        try:
            key = load_pem_public_key(entry["public_key"].encode())
        except UnsupportedAlgorithm:
            key = None
        if not isinstance(key, Ed25519PublicKey):
            raise ValueError("not Ed25519")
        self.key, self.raw = key, key.public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.id = sha256(self.raw).hex()[:16]
        times = [entry.get(name) for name in ("valid_from", "valid_until", "revoked_at")]
        self.valid_from, self.valid_until, self.revoked_at = (None if at is None else moment(at) for at in times)
        retired = self.valid_until and self.valid_until <= now
        self.ended = "revoked" if self.revoked_at else "retired" if retired else ""
        self.use = entry.get("use", "")
        if entry.get("key_id", self.id) != self.id or self.use not in ("", "seal", "log"):
            raise ValueError("key_id is not its key's, or it has another use")

    def signed(self, signature: bytes, message: bytes) -> bool:
        try:
            self.key.verify(signature, message)
        except Exception:
            return False
        return True

    def refusal(self, signed_at: str) -> str:
        """The rule by which a seal of that time doesn't count; "" where it does."""
        if not (self.valid_from or self.valid_until or self.revoked_at):
            return ""
        try:
            at = moment(signed_at)
        except ValueError:
            return "seal_time"
        if self.revoked_at and at >= self.revoked_at:
            return "seal_revoked_key"
        in_time = (not self.valid_from or self.valid_from <= at) and (not self.valid_until or at < self.valid_until)
        return "" if in_time else "seal_key_time"


def moment(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError("a time without its offset")
    return at


def read_keys(text: bytes, now: datetime = LAST) -> dict[str, Key]:
    entries = [{"public_key": text.decode()}] if text.lstrip().startswith(b"-----") else json.loads(text)["keys"]
    keys = {key.id: key for key in (Key(entry, now) for entry in entries)}
    if len(keys) != len(entries):
        raise ValueError("a key comes twice")
    return keys


def of_use(keys: dict[str, Key], use: str) -> dict[str, Key]:
    return {name: key for name, key in keys.items() if key.use in ("", use)}


def check_signatures(what: str, signatures: list[tuple[Key | None, bytes]], message: bytes) -> None:
    """A trusted key that has not ended must have signed; of the signatures by trusted keys none may be wrong.

    What is signed says no time, so who has a key that was revoked, or replaced, could have signed it just now.
    """
    trusted = [(key, signature) for key, signature in signatures if key is not None]
    if not all(key.signed(signature, message) for key, signature in trusted):
        raise Bad(f"{what}_signature")
    ended = [key.ended for key, _ in trusted]
    if all(ended):
        raise Bad(f"{what}_{'revoked' if 'revoked' in ended else 'retired' if ended else 'unknown'}_key")


# --- 2. The records.


class Record:
    """One record as it lies in the log, and what it says. `at` is its place among the job's records, from 0.

    `type` is "" for a record that says nothing: it can't be read, or is of another version.
    """

    def __init__(self, at: int, offset: int, key: bytes | None, headers: list[tuple[str, bytes]], value: bytes) -> None:
        self.at, self.offset, self.log_key, self.value = at, offset, key, value
        self.headers = dict(reversed(headers))  # the first of a name counts
        names = [name for name, _ in headers]
        self.repeated = {name for name in COVERED if names.count(name) > 1}  # nobody can say which of them counts
        self.id = self.header("ce_id").decode(errors="replace")
        named = re.fullmatch(rb"io\.aetheris\.([a-z0-9_]+)\.v([0-9]+)", self.header("ce_type"))
        self.chained = named[1] if named else self.header("ce_type")
        try:
            self.body, self.readable = parse_record(b"" if self.repeated else value), True
        except Bad:
            self.body, self.readable = {}, False
        name = self.chained.decode(errors="replace")
        rules = self.body.get("rules", 1)  # by which a creation has its job judged
        other = name == "job_created" and not (type(rules) is int and rules in KNOWN_RULES)
        version = b"2" if name == "plan_generated" and self.body.get("bodies") is True else b"1"
        other = other or not (named and named[2] == version) or says_unknown(CLOSED.get(name, {}), self.body)
        self.outdated = self.readable and name in EVENT_TYPES and other
        self.type = name if self.readable and not self.outdated else ""
        self.key, self.nonce, self.node = map(self.text, ("idempotency_key", "invocation_id", "node_id"))
        self.outcome, self.via = self.text("outcome"), self.text("via")
        self.succeeded = self.outcome in ("success", "compensatable_failure")  # the latter in part
        self.output = self.text("output_hash") if self.succeeded else ""
        self.claims = ""  # the type of what is not signed by who may write it: that says nothing
        self.left_out = False  # it lies behind what was sealed at first, and is no fact that may come late
        self.hash, self.shown = sha256(value), True  # not where a redacted bundle has its hash alone
        self.certificate: Any = None  # which it carried, then

    def header(self, name: str) -> bytes:
        return self.headers.get(name, b"")

    def text(self, name: str) -> str:
        value = self.body.get(name)
        return value if isinstance(value, str) else ""

    def worker(self) -> tuple[str, ...]:
        """The worker that it names, and which life of it."""
        named = self.body.get("worker_id"), self.body.get("incarnation")
        texts = tuple(one for one in named if isinstance(one, str))
        return texts if texts == named else ()


def says_unknown(places: dict[str, str], body: dict[str, Any]) -> bool:
    """Whether a text stands in one of these places that is none of those that are known there."""
    for path, known in places.items():
        found: list[Any] = [body]
        for step in path.split("."):
            if step == "[]":
                within = [listed(one) for one in found]
            elif step == "{}":
                within = [list(mapping(one).values()) for one in found]
            else:
                within = [[mapping(one)[step]] for one in found if step in mapping(one)]
            found = [one for each in within for one in each]
        if any(isinstance(one, str) and one not in known.split() for one in found):
            return True
    return False


def read_record(at: int, one: dict[str, Any]) -> Record:
    if type(one["offset"]) is not int:
        raise TypeError("an offset is a number")
    headers = [(name, unbase64(value, "bad_statement")) for name, value in one["headers"]]
    if not all(isinstance(name, str) for name, _ in headers):
        raise TypeError("a header's name is a text")
    key = None if one["key"] is None else unbase64(one["key"], "bad_statement")
    return Record(at, one["offset"], key, headers, unbase64(one["value"], "bad_statement"))


Finding = tuple[str, Record | None]


def broken(record: Record, **rules: object) -> list[Finding]:
    """Those of the rules that are broken."""
    return [(rule, record) for rule, is_broken in rules.items() if is_broken]


def chain(records: list[Record]) -> list[bytes]:
    """The root after each record: SHA-256(root before + "\\n" + event id + " " + type + " " + base64(value))."""
    roots, root = [], b""
    for record in records:
        said = b" ".join((record.header("ce_id"), record.chained, base64.b64encode(record.value)))
        root = sha256(root + b"\n" + said)
        roots.append(root)
    return roots


COVERED = ("ce_id", "ce_type", "ce_time", "ce_source")


def prefixed(data: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if data is None else struct.pack(">I", len(data)) + data


def leaves(records: list[Record]) -> list[bytes]:
    """What the chain's second version is a tree over; a header that comes more than once is FFFFFFFE."""
    found: list[bytes] = []
    for one in records:
        said = [b"\xff\xff\xff\xfe" if name in one.repeated else prefixed(one.headers.get(name)) for name in COVERED]
        found.append(sha256(b"\0" + b"".join(said) + prefixed(one.hash)))
    return found


def trees(hashes: list[bytes], counts: Collection[int]) -> dict[int, bytes]:
    """The roots over the first so many hashes of leaves, for each of the counts that there are (RFC 9162 §2.1.1)."""
    found = {0: sha256(b"")} if 0 in counts else {}
    complete: list[bytes] = []  # subtrees, ever smaller ones
    for count, one in enumerate(hashes, 1):
        complete.append(one)
        for _ in range((count & -count).bit_length() - 1):  # as often as two of a size stand last
            complete[-2:] = [sha256(b"\1" + complete[-2] + complete[-1])]
        if count in counts:
            *left, root = complete
            for larger in reversed(left):
                root = sha256(b"\1" + larger + root)
            found[count] = root
    return found


def tree(hashes: list[bytes]) -> bytes:
    """The root over all of them."""
    return trees(hashes, {len(hashes)})[len(hashes)]


STEPS = {"success": 3, "compensatable_failure": 3, "retryable_failure": 4, "permanent_failure": 4}
MAY_SAY = {
    "executor": {*STEPS},
    "late": {*STEPS},
    "catch_up": {"success", "compensatable_failure"},
    "probe": {"success", "compensatable_failure"},
    "human": {"success", "compensatable_failure", "permanent_failure"},
    "ledger": {"permanent_failure"},
}


def is_proved(record: Record) -> bool:
    """What a try says of itself has its word: hashed so many times as fits what is said, it gives the try's name.

    That it certainly took no effect, and may be repeated, nobody else can say; what others may say needs no word.
    """
    if record.type == "tool_invocation_finished":
        if record.outcome not in MAY_SAY.get(record.via, set[str]()):
            return False
        steps = STEPS[record.outcome] if record.via in ("executor", "late", "catch_up") else 0
    elif record.type == "invocation_in_doubt":
        by_itself = record.body.get("word") is not None
        steps = 2 if record.body.get("returned") is True else int(by_itself)
    else:
        return True
    return steps == 0 or leads(record.text("word"), steps, record.nonce)


def leads(word: str, steps: int, nonce: str) -> bool:
    if not re.fullmatch(r"[0-9a-f]{64}", word):
        return False
    value = bytes.fromhex(word)
    for _ in range(steps):
        value = sha256(b"nonce1\0" + value)
    return value.hex() == nonce


def check_checkpoints(records: list[Record], roots: list[bytes]) -> list[Finding]:
    """What is said of a checkpoint is the chain's root over what lay below its `as_of`."""
    found: list[Finding] = []
    before: list[int] = []
    for record in records:
        if record.type == "state_checkpointed":
            as_of = record.body.get("as_of")
            held = bisect_right(before, as_of) if isinstance(as_of, int) else 0
            root = roots[held - 1].hex() if held else None
            found += broken(record, checkpoint_differs=record.text("state_hash") != root)
        insort(before, record.offset)
    return found


DECISIONS = ("policy_allowed", "approval_requested", "invocation_rejected")


def check_activations(records: list[Record]) -> tuple[list[Finding], list[Record]]:
    """Decisions that name another policy for an activation than one before; and those by an earlier one than before.

    The configured file is 0, and may change. What a replaced ledger had decided comes late, and is no fault.
    """
    found: list[Finding] = []
    late: list[Record] = []
    policies: dict[int, str] = {}
    last = -math.inf
    for record in records:
        number, policy = record.body.get("activation"), record.text("policy_hash")
        if record.type not in DECISIONS or type(number) is not int:
            continue
        found += broken(record, activation_differs=number > 0 and policies.setdefault(number, policy) != policy)
        late += [record] if number < last else []
        last = max(last, number)
    return found, late


def check_records(records: list[Record]) -> list[Finding]:
    found: list[Finding] = [] if records else [("no_history", None)]
    last = -1
    for record in records:
        first, says = records[0], record.readable and not record.outdated
        job, node = (record.text(name).encode(errors="replace") for name in ("job_id", "node_id"))
        found += broken(
            record,
            not_born=record is first and record.type != "job_created",
            born_twice=record.type == "job_created" and record.id != first.id,
            repeated_header=record.repeated,
            undecodable=not record.readable and not record.repeated,
            unknown_version=record.outdated,
            foreign_record=record.body and record.text("job_id") != first.text("job_id"),
            key_mismatch=says and record.log_key not in (None, job),
            subject_mismatch=says and record.header("ce_subject") not in (b"", job, node),
            ambiguous_header=re.search(rb"[ \n]", record.header("ce_id") + record.header("ce_type")),
            bad_reference=not is_referred(record.body),
        )
        found = [one for one in found if not (one[1] is record and record.left_out)]
        found += broken(record, out_of_order=record.offset <= last)
        last = max(last, record.offset)
    return found


# Who wrote them: a job is signed if its creation names a root, which then certifies the keys of its services.

SIGNED_BY = {
    "planner": "job_created plan_generated cancel_requested job_paused job_resumed job_stopping job_completed "
    "job_failed job_cancelled birth_repeated",
    "ledger": "policy_allowed approval_requested approval_voted approval_decided resolution_voted "
    "invocation_rejected invocation_cancel_requested retry_scheduled invocation_parked invocation_reopened "
    "worker_ended job_waiting wait_completed signal_received job_frozen job_unfrozen workflow_accepted",
    "prober": "invocation_probed effect_confirmed confirmation_failed",
    "auditor": "violation_found job_sealed",
}
WRITERS = {name: service for service, names in SIGNED_BY.items() for name in names.split()}
ANY_END = ("success", "compensatable_failure", "retryable_failure", "permanent_failure")
ENDS = {  # by whom it was learnt how a call ended, and what he can know
    "executor": ANY_END,
    "late": ANY_END,
    "catch_up": ANY_END[:2],
    "probe": ANY_END[:2],
    "human": (*ANY_END[:2], "permanent_failure"),
    "ledger": ("permanent_failure",),
}
REACH = 10_000  # so far behind it a creation counts: further on it is a copy
NUMBER, BY = "(0|[1-9][0-9]{0,6})", '"key":"([0-9a-f]{64})"'
VALUE = r'"value":"([A-Za-z0-9+/]{86}==)"\}\}'
SIGNATURE = re.compile(f'"index":{NUMBER},{BY},"path":"([A-Za-z0-9+/]+=*)","size":{NUMBER},{VALUE}|{BY},{VALUE}')


def check_writers(records: list[Record], creation: int = -1, stated: str | None = None) -> str | None:
    """The root's key id, if the job is signed; what its writer has not signed says nothing from here on.

    Of a redacted job the creation may be left out: where it lies and which root it names is stated, and borne out, or
    not, by the signatures behind it. Certificates of records that are left out stand beside these.
    """
    born: Record | None = None
    root: str | None = None
    keys: dict[str, tuple[str, Ed25519PublicKey | None]] = {}
    for record in records:
        if not record.shown:
            if born is None and record.at == creation and record.chained == b"job_created":
                born, root = record, stated
            keys = certified(record.certificate, root) | keys
            continue
        says = record.body
        service = WRITERS.get(record.type, "")
        if record.type == "tool_invocation_finished":
            service = "" if record.via in ("executor", "late", "catch_up") else "ledger"
        elif record.type == "invocation_in_doubt":
            service = "" if says.get("returned") is True or says.get("word") is not None else "ledger"
        elif record.type in ("job_waiting", "wait_completed") and says.get("wait_type") in ("upgrade", "resolve"):
            service = "planner"
        named = says.get("installation") if born is None and record.type == "job_created" else root
        known = says.get("as_of")  # of a creation: an offset that was taken when it was written
        lies = type(known) is int and known < record.offset <= known + REACH
        counts = lies or named is None or born is not None or record.type != "job_created"  # else no key of it is one
        proved = counts and (named is None or not service or is_by(service, named, record, born, keys))
        if root and record.type == "key_revoked":
            proved = is_revocation(root, says)
            keys |= {says["key_id"]: ("", None)} if proved else {}
        if root and record.type == "tool_invocation_finished":
            proved = proved and record.outcome in ENDS.get(record.via, ())
        if proved and born is None and record.type == "job_created":
            born, root = record, named
        if not proved:
            record.claims, record.type = record.type, ""
    return root


def is_revocation(root: str, says: dict[str, Any]) -> bool:
    """Has the job's root signed that a key counts no more?"""
    try:
        by, signature = (unbase64(says[name], "", exact=True) for name in ("root", "signature"))
        body = {"installation": root, **{name: says[name] for name in ("key_id", "at", "reason")}}
        if sha256(by).hex() != root or not all(isinstance(one, str) for one in body.values()):
            return False
        said = pae("application/vnd.aetheris.revocation+json", canonical(body).encode())
        Ed25519PublicKey.from_public_bytes(by).verify(signature, said)
    except Exception:
        return False
    return True


def certified(certificate: Any, root: str | None) -> dict[str, tuple[str, Ed25519PublicKey | None]]:
    """By its id, the service and the key of a certificate that this root signed; nothing for any other."""
    says = mapping(certificate)
    try:
        body = {name: says[name] for name in ("service", "public_key", "not_before", "not_after", "root")}
        key, by = (unbase64(body[name], "", exact=True) for name in ("public_key", "root"))
        if not all(isinstance(one, str) for one in body.values()) or sha256(by).hex() != root:
            return {}
        said = pae("application/vnd.aetheris.certificate+json", canonical(body).encode())
        Ed25519PublicKey.from_public_bytes(by).verify(unbase64(says["signature"], "", exact=True), said)
        return {sha256(key).hex(): (body["service"], Ed25519PublicKey.from_public_bytes(key))}
    except Exception:
        return {}


def is_by(
    service: str, root: Any, record: Record, born: Record | None, keys: dict[str, tuple[str, Ed25519PublicKey | None]]
) -> bool:
    """Has a key that this root certifies for the service signed the record, whose last member it is, in its place?"""
    value, mark, tail = record.value.rpartition(b',"sig":{')
    found = SIGNATURE.fullmatch(tail.decode(errors="replace"))
    if not value or not mark or not found or not isinstance(root, str):
        return False
    index, key_id, path, size, signature = found.groups()[:5] if found[2] else ("0", found[6], "", "1", found[7])
    try:
        hashes = unbase64(path, "", exact=True)
        known = keys.get(key_id) or certified(record.body.get("certificate"), root).get(key_id)
        if known is None:
            return False
        place = {
            "born": None if record.type in ("job_created", "birth_repeated") else born and born.hash.hex(),
            "installation": root,
            "key": record.text("job_id"),
            "sequence": None,
            "topic": "aetheris.jobs.events.v1",
            "type": record.type,
        }
        stated = pae("application/vnd.aetheris.record", canonical(place).encode() + b"\n" + value + b"}")
        steps = [hashes[at : at + 32] for at in range(0, len(hashes), 32)]
        top = root_of(sha256(b"\0" + stated), int(index), int(size), steps)
        if top is None or len(hashes) % 32 or len(steps) > 20:
            return False
        if known[1] is None:  # revoked
            return False
        known[1].verify(unbase64(signature, "", exact=True), pae("application/vnd.aetheris.records", top))
    except Exception:
        return False
    if known[0] == service:
        keys[key_id] = known
    return known[0] == service


# --- 3. The job.


@dataclass
class Entry:
    """A node: the revision that it came with, what the plan says of it, and as what its tool was pinned then."""

    since: int = -1
    says: dict[str, Any] = field(default_factory=dict[str, Any])
    tool: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        undone = self.says.get("compensates")
        self.undoes = undone if isinstance(undone, str) else ""
        self.irreversible = any(part.get("irreversible") is True for part in (self.says, self.tool))
        self.is_harmless = self.says.get("kind", "tool") != "tool" or self.tool.get("effect_class") == "pure"

    def same(self, other: "Entry") -> bool:
        """Is it the same call of the same tool?"""
        if self is other or not self.says or not other.says:
            return self is other and bool(self.says)
        return entry_hash(self.says) == entry_hash(other.says) and json_hash(self.tool) == json_hash(other.tool)


NO_ENTRY = Entry()
MAX_CALLS = 10_000  # of one body
FIELDS = set(  # of a node
    "id kind tool args depends_on retry compensate_with compensates occurrence irreversible timeout_s wait form".split()
)


@dataclass
class Planned:
    """A call that a body plans: whose it is, what was asked for, and what starts (a human may have edited it)."""

    parent: str
    by: str  # the body that planned it last
    asked: str  # the entry's hash
    key: str
    args_hash: str
    entry: Entry
    weight: int  # in frontiers; 0 where its tool is pure

    @property
    def only_reads(self) -> bool:
        harmless = self.weight == 0 and not self.entry.irreversible
        return harmless and self.entry.says.get("compensate_with") is None


@dataclass
class Body:
    """The code of a node, in the try of it that began last, and what its calls come to."""

    nonce: str = ""
    call: Any = None  # the node's
    expected: int = 0  # of what was recorded when it began
    has_asked: bool = False  # for that
    word: str = ""  # whose preimage is that of its next call
    calls: int = 0
    recorded: int = 0
    open: list[tuple[Any, int]] = field(default_factory=list[tuple[Any, int]])  # calls that have begun, with weights
    waived: dict[str, set[str]] = field(default_factory=dict[str, set[str]])  # for the code with this hash

    def frontier(self) -> str:
        return f"{self.expected % 2**256:064x}"

    def has_open(self) -> bool:
        """Are there calls that have not settled? What surely failed is recorded no more."""
        while self.open and self.settled(*self.open[-1]):
            self.open.pop()
        return bool(self.open)

    def settled(self, call: Any, weight: int) -> bool:
        if call.settled and call.outcome != "success" and call.sure:
            self.recorded -= weight
        return call.settled is not None


def needs(says: dict[str, Any]) -> set[str]:
    """The nodes that a node comes after, or whose results it uses."""
    return {*map(str, listed(says.get("depends_on"))), *references(says.get("args"))}


def awaited(says: dict[str, Any]) -> str:
    """The key of the signal that a node waits for."""
    key = mapping(says.get("wait")).get("key")
    return key if isinstance(key, str) else ""


def references(part: Any) -> Iterator[str]:
    if isinstance(part, dict) and len(part) == 1 and isinstance(part.get("$ref"), str):
        yield part["$ref"].partition("#")[0]
        return
    for inner in part.values() if isinstance(part, dict) else listed(part):
        yield from references(inner)


def entry_hash(says: dict[str, Any]) -> str:
    """Absent and default are one."""
    defaults = {"kind": "tool", "args": {}, "depends_on": [], "occurrence": 1, "irreversible": False}
    return json_hash(defaults | {name: value for name, value in says.items() if value is not None})


@dataclass
class Try:
    """A tool_invocation_started that counts, its node's entry at that place, and how it is said to have ended."""

    start: Record
    entry: Entry
    args: dict[str, Any] | None = None  # its call's, where the records tell them
    leaf: bytes = b""  # of what can be shown of it, once that was asked for
    ends: list[Record] = field(default_factory=list[Record])

    def success(self) -> Record | None:
        return next((end for end in self.ends if end.succeeded), None)


@dataclass
class Reports:
    """What was said of one try: (via, outcome, output); by executor and catch-up (outcome, output); effect or none."""

    stated: set[tuple[str, str, str]] = field(default_factory=set[tuple[str, str, str]])
    direct: set[tuple[str, ...]] = field(default_factory=set[tuple[str, ...]])
    truths: set[bool] = field(default_factory=set[bool])  # by probe, human and what came late
    effects: set[bool] = field(default_factory=set[bool])  # by anybody


@dataclass
class Call:
    """All of an idempotency key. `state` is none, started, parked or reopened until `settled` says what came of it."""

    state: str = "none"
    nonce: str = ""  # of the try in charge
    token: int = 1
    attempt: int = 0
    live: set[str] = field(default_factory=set[str])  # nonces of tries that may have taken effect
    tries: list[Try] = field(default_factory=list[Try])
    said: dict[str, Reports] = field(default_factory=lambda: defaultdict(Reports))  # of each nonce
    outputs: set[str] = field(default_factory=set[str])
    commits: list[Record] = field(default_factory=list[Record])
    returned: set[str] = field(default_factory=set[str])  # nonces whose own code has raised, and can act no more
    absent: set[str] = field(default_factory=set[str])  # nonces not found when they could act no more
    doubts: dict[str, str] = field(default_factory=dict[str, str])  # nonce → parked or in_doubt
    settled: Record | None = None
    outcome: str = ""  # success, failed or rejected
    sure: bool = False  # it certainly took no effect
    asks: int = 1  # the token that an approval must carry: a person's retry of what needed one needs another
    asked: Record | None = None
    votes: dict[str, Record] = field(default_factory=dict[str, Record])  # by voter; the first of each
    decided: Record | None = None
    words: list[Record] = field(default_factory=list[Record])  # on what is parked, where several must say the same
    allowed: dict[str, Record] = field(default_factory=dict[str, Record])  # tool versions, and who lets them start

    def said_yes(self) -> bool:
        return self.decided is not None and self.decided.text("decision") == "approve"

    def standing(self) -> Any:
        return self.settled or (self.state, frozenset(self.live))

    def settle(self, record: Record, outcome: str, *, sure: bool) -> None:
        self.settled, self.outcome, self.sure = record, outcome, sure

    def hand_over(self) -> None:
        self.state = "reopened"
        self.token += 1


class Job:
    """All records of a job, folded in log order: a method for each type says what it does, and what is wrong with it.

    The log is the lock (docs/guarantees.md): of all that was written of a key, only what the state before it allows
    counts. The rest is void; it may still be wrong.
    """

    def __init__(
        self,
        records: list[Record],
        signers: "list[Signer] | None" = None,
        blobs: dict[str, bytes] | None = None,
        counts: Collection[int] = (),
    ) -> None:
        self.records, self.signers = records, signers
        self.hashed: dict[int, Hashed] = {}  # what the first so many records amount to, for each of the counts
        self.created = next((record for record in records if record.type == "job_created"), None)
        self.by_type: dict[str, list[Record]] = defaultdict(list)
        self.plans: list[Record] = []  # one for each revision
        self.entries: dict[str, list[Entry]] = defaultdict(list)  # of each node, oldest first
        self.needs: dict[str, set[str]] = {}  # of each node, as its newest entry has it
        adopted = continued(self.created, "adopted")
        self.adopted = {f"{one.get('job_id')}/{one.get('node_id')}" for one in adopted}  # what plans may refer to
        self.tools: dict[str, dict[str, Any]] = {}
        self.bodies: dict[str, Body] = {}  # of each node that has one
        self.planned_calls: dict[str, Planned] = {}  # by node
        self.awaited: set[str] = set()  # keys of signals that nodes wait for
        self.calls: dict[str, Call] = defaultdict(Call)
        self.calls_of: dict[str, dict[str, Call]] = defaultdict(dict)  # by node
        self.twins_of: dict[tuple[str, str], dict[str, Call]] = defaultdict(dict)  # irreversible, by what it means
        self.tries: list[Try] = []
        self.tries_of: dict[str, list[Try]] = defaultdict(list)  # by nonce
        self.void: set[tuple[str, str, str]] = set()  # key, nonce and token of starts that did not count
        self.workers_ended: set[tuple[str, ...]] = set()
        self.pauses = 0
        self.paused = False
        self.freezes: dict[tuple[Any, ...], int] = {}  # the number of the last of each scope
        self.frozen: set[tuple[Any, ...]] = set()  # tenant, agent and tool of those in force
        self.gone: set[tuple[str, ...]] = set()  # of those: not by the word of who submitted the job
        self.ended_by_hand: list[dict[str, Any]] = []
        self.waiting: dict[str, Record] = {}  # node → its own wait
        self.waited: dict[str, Record] = {}  # node → what ended that wait
        self.finished: dict[str, Record] = {}
        self.compensated: dict[str, str] = {}
        self.undone_at = math.inf
        self.end: Record | None = None
        self.edits: list[Record] = []
        self.said_yes: list[Record] = []  # decisions that are no refusal
        self.identity = Identity(self, blobs or {})
        self.accepting: Record | None = None  # who is asked to accept what could not be confirmed
        self.acceptances: list[Record] = []  # votes on that, where several must accept it
        self.confirmed: set[str] = set()
        self.reopened_by_hand: list[dict[str, Any]] = []
        self.moved: set[int] = set()  # places of the records that changed where their key stands
        self.unproven: list[Record] = []  # reports without the word of their try: as if nobody had written them
        self.seals: list[Record] = []  # those with which nothing is wrong, once that is known
        self.found: list[Finding] = []  # wrong with plans and decisions
        self.ledger: list[Finding] = []  # with at most once
        self.replay: list[Finding] = []  # with what planner and ledger recorded of it
        self.fold(blobs or {}, counts)
        self.check_end()

    def fold(self, blobs: dict[str, bytes], counts: Collection[int]) -> None:
        for at, record in enumerate(self.records):
            if at in counts:
                self.hashed[at] = hashed(self, blobs)
            self.by_type[record.type].append(record)
            if not is_proved(record):
                self.unproven.append(record)
            elif record.type in HANDLED:
                call = self.calls[record.key]
                before = call.standing()
                HANDLED[record.type](self, record, call)
                if call.standing() != before:
                    self.moved.add(record.at)
        if len(self.records) in counts:
            self.hashed[len(self.records)] = hashed(self, blobs)

    def entry(self, node: str, revision: int = sys.maxsize) -> Entry:
        """A node's entry in a revision, or now."""
        return next((entry for entry in reversed(self.entries.get(node, [])) if entry.since <= revision), NO_ENTRY)

    def success(self, node: str) -> Record | None:
        """What a node has settled as a success by."""
        return next((call.settled for call in self.calls_of.get(node, {}).values() if call.outcome == "success"), None)

    def undone_by(self) -> dict[str, str]:
        """Node → the node that has undone it, and not only in part."""
        ends = {name: self.success(name) for name in self.entries if self.entry(name).undoes}
        return {self.entry(name).undoes: name for name, end in ends.items() if end and end.outcome == "success"}

    def has_undone(self, undo: str, node: str) -> bool:
        end = self.success(undo) if node and self.entry(undo).undoes == node else None
        return end is not None and end.outcome == "success"

    # Plans.

    def plan_generated(self, plan: Record, _call: Call) -> None:
        """The first graph of each revision, without gaps, adds nodes; behind a stop only such as undo what was done."""
        revision = plan.body.get("revision")
        part = plan.body.get("task_graph" if revision == 0 else "diff")
        entries = [mapping(item) for item in listed(mapping(part).get("nodes"))]
        late = self.by_type["job_stopping"] or any(says.get("compensates") for says in entries)
        if late and not (self.may_compensate() and all(map(self.undoes, entries))):
            return
        if self.bodies and not late:
            return  # what follows only undoes
        tools = self.tools | {name: mapping(tool) for name, tool in mapping(mapping(part).get("tools")).items()}
        if type(revision) is not int or revision != len(self.plans) or not self.is_graph(entries, tools):
            return
        if not self.may_have_bodies(plan, entries, tools):
            return
        self.needs |= {says["id"]: needs(says) for says in entries}
        self.found += broken(
            plan,
            plan_hash_mismatch=plan.text("plan_hash") != json_hash(part),
            plan_differs=revision == 0 and self.identity.is_another_plan(mapping(part)),
        )
        self.plans.append(plan)
        self.tools = tools
        for says in entries:
            tool = says.get("tool")
            pinned = self.tools.get(tool, {}) if isinstance(tool, str) else {}
            self.entries[str(says.get("id"))].append(Entry(revision, says, pinned))

    def may_have_bodies(self, plan: Record, entries: list[dict[str, Any]], tools: dict[str, dict[str, Any]]) -> bool:
        """They stand in the first plan, which says so, and do nothing themselves."""
        bodies = [says for says in entries if says.get("kind") == "workflow"]
        if not bodies:
            return plan.body.get("bodies") is not True
        pins = [tools[says["tool"]] for says in bodies if says.get("tool")]
        harmless = all(pin.get("effect_class") == "pure" and pin.get("irreversible") is not True for pin in pins)
        harmless = (
            harmless and len(pins) == len(bodies) and all(says.get("irreversible") is not True for says in bodies)
        )
        if plan.body.get("bodies") is not True or self.plans or not harmless:
            return False
        self.bodies = {says["id"]: Body() for says in bodies}
        self.awaited = {awaited(says) for says in entries} - {""}
        return True

    # Calls that bodies plan.

    def in_charge(self, node: str, nonce: Any) -> Body | None:
        body = self.bodies.get(node)
        if body is None or body.call is None or body.nonce != nonce:
            return None
        return body if body.call.state == "started" and not body.call.settled else None

    def call_planned(self, plan: Record, _call: Call) -> None:
        """A body in charge plans a call: it only reads, or all is asked for that was recorded when that body began."""
        parent, word, after = plan.text("parent"), plan.text("word"), plan.body.get("after")
        body = self.in_charge(parent, plan.body.get("invocation_id"))
        if body is None or not re.fullmatch("[0-9a-f]{64}", word):
            return
        if sha256(b"call1\0" + bytes.fromhex(word)).hex() != body.word:
            return
        body.word = word  # said, whatever becomes of this record
        if self.end or self.by_type["job_stopping"]:
            return
        asked = body.has_asked or plan.body.get("frontier") == body.frontier()
        if after is not None and not (isinstance(after, list) and all(self.is_given(mapping(item)) for item in after)):
            return
        planned = self.to_plan(plan, parent)
        if planned and (asked or planned.only_reads) and self.takes(plan.node, planned, body):
            body.has_asked = asked

    def to_plan(self, plan: Record, parent: str) -> Planned | None:
        """What a record plans; None where it could stand in no plan, or is not what it is called."""
        says, name = mapping(plan.body.get("entry")), plan.node
        kind, tool, args = says.get("kind", "tool"), says.get("tool"), says.get("args", {})
        times, undo = says.get("occurrence", 1), says.get("compensate_with")
        called = [one for one in (tool, mapping(undo).get("tool") if undo is not None else None) if one]
        if (
            not FIELDS.issuperset(says)
            or kind not in ("tool", "llm", "human", "wait", "timer", "time", "random")
            or says.get("id") != name
            or not re.fullmatch("[A-Za-z0-9_.-]{1,64}", name)
            or name.endswith(".undo")
            or says.get("compensates") is not None
            or says.get("depends_on")
            or mapping(says.get("wait")).get("personal") is not None
            or (kind == "tool") != isinstance(tool, str)
            or type(times) is not int
            or times < 1
            or not all(isinstance(one, str) and self.tools.get(one) for one in called)
            or not isinstance(args, dict)
        ):
            return None
        uses = str(tool or kind)
        try:
            given = said_once(args)
            meant = said_once(by_meaning(args))
        except (ValueError, RecursionError):
            return None
        content = sha256(as_bytes(f"{parent}\0{uses}\0") + meant).hex()[:16]
        named = re.sub("[^A-Za-z0-9_.-]", "-", uses[:30]) + f".{content}.{times}"
        if not name.startswith(f"{parent}.") and name != named:
            return None
        entry = Entry(0, says, self.tools[uses] if kind == "tool" else {})
        weight = 0 if entry.is_harmless else int.from_bytes(sha256(name.encode()), "big")
        made = self.made_by(plan, parent, says, given)
        return made and Planned(parent, plan.nonce, entry_hash(says), *made, entry, weight)

    def made_by(self, plan: Record, parent: str, says: dict[str, Any], given: bytes) -> tuple[str, str] | None:
        """(key, hash of the arguments); with results as said, where it may be given these: what starts is compared."""
        tool, kind, used = says.get("tool"), says.get("kind", "tool"), set(references(says.get("args")))
        key, hashed = plan.body.get("call_key"), plan.body.get("args_hash")
        if not used:
            literal = sha256(as_bytes(f"{plan.text('job_id')}\0{plan.node}\0{tool or kind}\0") + given).hex()
            return (literal, sha256(given).hex()) if key is None and hashed is None else None
        is_own = kind not in ("tool", "llm") or tool in ("jobs.start", "jobs.continue", "local.read", "local.act")
        if is_own or not all(isinstance(one, str) and re.fullmatch("[0-9a-f]{64}", one) for one in (key, hashed)):
            return None
        own = used - self.adopted
        calls = [(self.planned_calls.get(name), self.success(name) or self.is_waited(name)) for name in own]
        return (
            (str(key), str(hashed)) if all(call and call.parent == parent and ended for call, ended in calls) else None
        )

    def is_waited(self, node: str) -> bool:
        """Has what it waited for come?"""
        return node in self.waited and self.waited[node].type == "wait_completed"

    def workflow_of(self, start: Record) -> Any:
        """The workflow whose body has planned a call: where it is frozen, the call doesn't start either."""
        planned = self.planned_calls.get(start.node)
        return self.entry(planned.parent).says.get("tool") if planned else None

    def takes(self, node: str, planned: Planned, body: Body) -> bool:
        """What has begun stays; before, it is planned otherwise while no human has said yes to it."""
        known, waits = self.planned_calls.get(node), awaited(planned.entry.says)
        own = awaited(known.entry.says) if known else ""
        undo = planned.entry.says.get("compensate_with") is not None and self.entry(f"{node}.undo").says
        is_free = not undo and (waits in ("", own) or waits not in self.awaited)
        if known is None:
            if body.calls >= MAX_CALLS or node in self.entries or not is_free:
                return False
            body.calls += 1
        elif known.parent != planned.parent or self.has_begun(node, known):
            return False
        elif known.asked == planned.asked:
            known.by = planned.by
            return True
        elif any(yes.node == node for yes in self.said_yes) or node in self.waiting or not is_free:
            return False
        self.awaited = self.awaited - {own} | ({waits} - {""})
        self.planned_calls[node] = planned
        self.entries[node] = [planned.entry]
        self.needs[node] = set()
        return True

    def has_begun(self, node: str, planned: Planned) -> bool:
        known = self.calls.get(planned.key)
        return bool(self.calls_of.get(node)) or node in self.waited or (known is not None and known.settled is not None)

    def edit_planned(self, decision: Record) -> None:
        """A call that has not begun is made with what a human says."""
        planned, args = self.planned_calls.get(decision.node), decision.body.get("data")
        if planned is None or planned.key != decision.key or self.has_begun(decision.node, planned):
            return
        if not isinstance(args, dict) or any(references(args)):
            return
        uses = planned.entry.says.get("tool") or planned.entry.says.get("kind")
        with suppress(ValueError, RecursionError):
            given = said_once(args)
            planned.key = sha256(as_bytes(f"{decision.text('job_id')}\0{decision.node}\0{uses}\0") + given).hex()
            planned.args_hash = sha256(given).hex()

    def is_as_planned(self, start: Record, call: Call, entry: Entry) -> bool:
        """Of a body's call: it is that call; the first try is of the body that planned it, and no other has begun."""
        planned = self.planned_calls.get(start.node)
        if planned is None:
            return True
        uses, times = entry.says.get("tool") or entry.says.get("kind"), entry.says.get("occurrence", 1)
        named = (start.key, start.text("args_hash"), start.text("tool_name"), start.body.get("occurrence", 1))
        body, by = self.bodies[planned.parent], start.body.get("parent_invocation")
        runs = body.call is not None and body.call.state in ("started", "reopened") and not body.call.settled
        allowed = call.allowed.get(json_hash(start.body.get("tool_version")))
        repeats = call.asks == 1 and allowed is not None and allowed.body.get("repeats") == "allow"
        return (
            named == (planned.key, planned.args_hash, uses, times)
            and (bool(call.tries) or (by == planned.by == body.nonce and runs))
            and (not entry.irreversible or times == 1 or repeats or has_yes(call, start))
        )

    def begins(self, start: Record, call: Call) -> None:
        """Another body runs, or a call of one is recorded."""
        body, planned = self.bodies.get(start.node), self.planned_calls.get(start.node)
        if body is not None:
            body.open = [one for one in body.open if not body.settled(*one)]
            waived = body.waived.get(str(mapping(start.body.get("code")).get("hash")), set[str]())
            gone = sum(self.planned_calls[name].weight for name in waived if self.is_recorded(name))
            body.nonce, body.call, body.word = start.nonce, call, start.text("plans")
            body.expected, body.has_asked = body.recorded - gone, False
        elif planned is not None and len(call.tries) == 1:
            of = self.bodies[planned.parent]
            of.recorded += planned.weight
            of.open.append((call, planned.weight))

    def is_recorded(self, node: str) -> bool:
        planned, calls = self.planned_calls.get(node), self.calls_of.get(node, {}).values()
        surely_failed = (one.settled and one.outcome != "success" and one.sure for one in calls)
        return planned is not None and planned.weight > 0 and not all(surely_failed)

    def may_end(self, end: Record) -> bool:
        """A body settles when none of its calls is open; by its own word if it is in charge and has asked."""
        body = self.bodies.get(end.node)
        if body is None or end.outcome == "retryable_failure":
            return True
        if body.has_open():
            return False
        if end.type == "invocation_rejected" or end.via not in ("executor", "late", "catch_up"):
            return True
        in_charge = self.in_charge(end.node, end.nonce)
        return in_charge is not None and (body.has_asked or end.body.get("frontier") == body.frontier())

    def workflow_accepted(self, word: Record, call: Call) -> None:
        """A person lets a code pass by calls that are recorded here."""
        body, waives = self.bodies.get(word.node), word.body.get("waives")
        parked = body is not None and body.call is call and call.state == "parked" and not call.settled
        if body is not None and parked and body.nonce == word.nonce and isinstance(waives, list):
            held = {name for name in map(str, waives) if self.is_recorded(name)}
            held = {name for name in held if self.planned_calls[name].parent == word.node}
            body.waived.setdefault(word.text("code_hash"), set()).update(held)

    def is_graph(self, entries: list[dict[str, Any]], tools: dict[str, dict[str, Any]]) -> bool:
        """Do they have ids, each its own, tools that are pinned, and needs that the plan then meets, in no circle?"""
        ids = {name for name in (says.get("id") for says in entries) if isinstance(name, str) and name}
        called = [tool for tool in (says.get("tool") for says in entries) if tool is not None]
        if not ids or len(ids) < len(entries) or not all(isinstance(tool, str) and tool in tools for tool in called):
            return False
        added = {says["id"]: needs(says) for says in entries}
        planned = self.needs | added
        after = [{*map(str, listed(says.get("depends_on")))} for says in entries]
        if any(not needed <= planned.keys() for needed in after):
            return False
        if any(not needed <= planned.keys() | self.adopted for needed in added.values()):
            return False
        try:  # what was there needs nothing that is new
            TopologicalSorter(planned if ids & self.needs.keys() else added).prepare()
        except CycleError:
            return False
        return True

    def may_compensate(self) -> bool:
        """Stopped, not ended, nothing open; and a human said so, or nothing may have taken effect unseen."""
        started = [call for call in self.calls.values() if call.tries]
        if not self.by_type["job_stopping"] or self.end or any(call.settled is None for call in started):
            return False
        if self.by_type["cancel_requested"]:
            return self.by_type["cancel_requested"][0].body.get("compensate") is True
        unsure = [call.tries[0].start.node for call in started if call.outcome != "success" and not call.sure]
        return all(self.entry(node).is_harmless for node in unsure)

    def undoes(self, says: dict[str, Any]) -> bool:
        """Is it a new node, just what a node declares that has succeeded?"""
        undone = str(says.get("compensates"))
        declaring = self.entry(undone).says
        call, name = declaring.get("compensate_with"), declaring.get("id")
        if self.entry(str(says.get("id"))).says or not isinstance(call, dict) or not self.success(undone):
            return False
        called = {"tool": call.get("tool"), "args": call.get("args", {})}
        declared = {"id": f"{name}.undo", "compensates": name, "occurrence": declaring.get("occurrence", 1), **called}
        free = ("depends_on", "retry")
        return entry_hash(declared) == entry_hash({name: value for name, value in says.items() if name not in free})

    # Calls.

    def approval_requested(self, request: Record, call: Call) -> None:
        """Before the try that it asks about; what had started by then was not asked about."""
        self.found += broken(request, form_differs=self.identity.is_about_another(request))
        is_open = not call.settled and call.state in ("none", "reopened") and call.token == call.asks
        if is_open and is_number(token(request), call.asks):
            call.asked = call.asked or request

    def approval_voted(self, vote: Record, call: Call) -> None:
        """A yes where several must say it; who may not give it has given none."""
        asked, who = call.asked, vote.text("approver")
        if asked is None or call.decided or not is_number(token(vote), call.asks):
            return
        wrong = self.own_or_unfit(vote, asked, who) | self.unsigned(vote, asked, who)
        keys = [mapping(one.body.get("signature")).get("key") for one in call.votes.values()]
        if asked.body.get("signed") is True and mapping(vote.body.get("signature")).get("key") in keys:
            return  # one key, one vote
        heard = [voice(one, name) for name, one in call.votes.items()]
        if any(wrong.values()) or any(voice(vote, who) & one for one in heard):
            return
        if not any(asked.body.get(name) != vote.body.get(name) for name in BOUND_TO):
            call.votes[who] = vote

    def approval_decided(self, decision: Record, call: Call) -> None:
        """The first one about a request stands: by whom was asked, about what was asked."""
        if decision.text("decision") == "edit":
            self.edits.append(decision)
        if call.decided or not is_number(token(decision), call.asks):
            return
        call.decided = decision
        if decision.text("decision") != "reject":
            self.said_yes.append(decision)
        if decision.text("decision") == "edit":
            self.edit_planned(decision)
        self.identity.edits[decision.node] += [decision] if decision.text("decision") == "edit" else []
        if call.asked is None:
            self.found += broken(decision, unasked_decision=True)
            return
        asked, who, needed = call.asked, decision.text("approver"), call.asked.body.get("approvals")
        yes = decision.text("decision") == "approve"
        given = [name for name in listed(decision.body.get("votes")) if name in call.votes]
        wrong = self.own_or_unfit(decision, asked, who)
        self.found += broken(
            decision,
            decision_differs=any(asked.body.get(name) != decision.body.get(name) for name in BOUND_TO),
            votes_missing=yes and not breaks_glass(decision) and isinstance(needed, int) and len(set(given)) < needed,
            **wrong | {"own_edit": yes and wrong["own_edit"]} | self.unsigned(decision, asked, who),
        )

    def unsigned(self, word: Record, asked: Record, who: str) -> dict[str, bool]:
        """Where the request must be signed: his own key (SSH's, a passkey) signed just this, if the signers give it."""
        if asked.body.get("signed") is not True:
            return {}
        named, text = mapping(word.body.get("signature")), self.to_sign(word, asked)
        signature = read_signature(named.get("armored"))
        good = text and signature and signature.fingerprint == named.get("key") and signature.holds(text)
        good = good and not said_by(word).get("delegation")  # a signature does not say in whose place
        at = word.header("ce_time").decode(errors="replace")
        given = self.signers is None or not signature or any(one.gives(signature.key, who, at) for one in self.signers)
        return {"not_signed": not good, "foreign_signature": bool(good) and not given}

    def to_sign(self, word: Record, asked: Record) -> bytes:
        """What he signs: a line for each field, its value in canonical JSON; empty where there is no such form."""
        created, job = self.created.body if self.created else {}, asked.text("job_id")
        decision = word.body.get("decision", "approve")
        try:
            execution = uuid.uuid5(ROOT_ID, "\0".join(("execution", job, asked.node, asked.key)))
        except ValueError:
            return b""
        entry = self.entry(asked.node).says
        fields = {
            "installation": created.get("installation"),
            "tenant": created.get("tenant"),
            "job": job,
            "step": asked.node,
            "request": f"{job}:{execution}" + ("" if token(asked) == 1 else f":{token(asked)}"),
            "tool": entry.get("tool") or entry.get("kind"),
            **{name: asked.body.get(name) for name in ("tool_version", "args_hash", "rule", "policy_hash")},
            "approvals": asked.body.get("approvals") or 1,
            "approver": word.body.get("approver"),
            "decision": decision,
            "data_hash": json_hash(word.body.get("data")) if decision == "edit" else None,
            "break_glass": breaks_glass(word),
        }
        try:
            lines = [f"{name}: {canonical(value)}\n" for name, value in fields.items()]
            return "".join(("aetheris approval 1\n", *lines)).encode()
        except (ValueError, RecursionError):
            return b""

    def own_or_unfit(self, word: Record, asked: Record, who: str) -> dict[str, bool]:
        """What keeps somebody from saying yes to a request."""
        edits = [one for one in self.edits if one.node == asked.node and one.at < asked.at and makes(one, asked)]
        editors = {asked.text("edited_by"), *(one.text("approver") for one in edits[-1:])} - {""}
        own_edit = asked.body.get("self_approval") is not True and bool(voice(word, who) & editors)
        return {**unfit(self.created, asked.body, word, who), "own_edit": own_edit}

    def check_who(self, word: Record, says: dict[str, Any], who: str) -> None:
        """The gate, by the rule as a record has it: not who submitted the job, and whom it names."""
        self.found += broken(word, **unfit(self.created, says, word, who))

    def resolution_voted(self, vote: Record, call: Call) -> None:
        """A word that is not enough by itself: what it is about must be parked, or waited for."""
        if vote.text("verdict") == "accepted":
            self.acceptances.append(vote)
        elif call.state == "parked" and vote.nonce == call.nonce and not call.settled:
            last = next((one for one in reversed(call.words) if one.text("by") == vote.text("by")), None)
            as_of, word = vote.body.get("as_of"), (vote.text("verdict"), vote.body.get("output_hash"))
            said = last and (last.text("verdict"), last.body.get("output_hash")) == word
            if type(as_of) is int and not said and (last is None or as_of >= last.offset):
                call.words.append(vote)  # else a repeat, maybe of what he took back: said before his last word

    def check_agreed(self, end: Record, says: dict[str, Any], votes: list[Record], said: tuple[Any, ...]) -> None:
        """What a person's word settles where several must say it: the last words of as many are just this."""
        needed, cited = several(says, end), listed(end.body.get("votes"))
        heard: set[str] = set()
        agreeing = 0
        for vote in reversed(votes) if needed else ():
            who = vote.text("by")
            may = not any(unfit(self.created, says, vote, who).values())
            if may and not voice(vote, who) & heard:
                heard |= voice(vote, who)
                agreeing += (vote.text("verdict"), vote.body.get("output_hash")) == said and who in cited
        self.found += broken(end, votes_missing=agreeing < needed)

    def policy_allowed(self, allowed: Record, call: Call) -> None:
        """Before the first try: it says who decides about the call, and nobody changes that while it is in flight."""
        if call.asks == 1 and not call.tries:
            call.allowed.setdefault(json_hash(allowed.body.get("tool_version")), allowed)

    def tool_invocation_started(self, start: Record, call: Call) -> None:
        entry = self.entry(start.node)
        known = (start.key, start.nonce, repr(start.body.get("token")))
        if known in self.void or not self.may_start(start, call, entry):  # a repeat of what nobody runs
            self.void.add(known)
            return
        call.state, call.nonce = "started", start.nonce
        call.live.add(start.nonce)
        new = Try(start, entry, self.identity.args_of(start, entry))
        first = call.tries[0].start if call.tries else start
        version, planned = start.text("tool_version"), entry.says.get("tool") or entry.says.get("kind")
        undone = self.success(entry.undoes)
        self.ledger += broken(
            start,
            nonce_reused=self.tries_of[start.nonce],
            key_moved=any(start.body.get(n) != first.body.get(n) for n in ("node_id", "tool_name", "args_hash")),
            other_tool=(start.text("tool_name"), version) != (planned, entry.tool.get("version", version)),
        )
        self.found += self.identity.wrong(start, entry)
        if undone and not self.calls_of[start.node]:  # what was committed last is undone first
            self.replay += broken(start, compensation_order=undone.at >= self.undone_at)
            self.undone_at = undone.at
        for tries in (call.tries, self.tries, self.tries_of[start.nonce]):
            tries.append(new)
        self.calls_of[start.node][start.key] = call
        self.begins(start, call)
        if entry.irreversible:
            self.twins_of[content(start)][start.key] = call

    def may_start(self, start: Record, call: Call, entry: Entry) -> bool:
        """Everything that must hold where it stands, or it is void."""
        revision, after = start.body.get("revision"), start.body.get("after")
        others = [other for key, other in self.calls_of[start.node].items() if key != start.key]
        twins = [twin for key, twin in self.twins_of[content(start)].items() if key != start.key]
        return (
            bool(start.key and start.nonce and start.node)
            and call.settled is None
            and call.state in ("none", "reopened")
            and is_number(start.body.get("token"), call.token)
            and is_number(start.body.get("attempt_id"), call.attempt)
            and start.text("external_key") == f"aetheris:{start.text('job_id')}:{start.node}:{call.attempt}"
            # the revision that it names has its node just as the plan in force has it
            and type(revision) is int
            and 0 <= revision < len(self.plans)
            and entry.same(self.entry(start.node, revision))
            # nothing has ended it, no human said no, and behind a stop only compensations planned later start
            and self.end is None
            and (call.decided is None or call.said_yes())
            and start.worker() not in self.workers_ended
            and not self.paused
            and not any(tool in (None, entry.says.get("tool"), self.workflow_of(start)) for _, _, tool in self.frozen)
            and all(entry.undoes and not covers(stop, entry.since) for stop in self.by_type["job_stopping"])
            # no other key of its node may have taken effect, and what it builds on was settled as it says
            and all(other.outcome == "rejected" and other.sure for other in others)
            and (after is None or (isinstance(after, list) and all(self.is_given(mapping(item)) for item in after)))
            # a human who was asked has said yes to just this; what can't be undone is allowed, and not done twice
            and (call.asked is None or has_yes(call, start))
            and (not (entry.irreversible or call.asks > 1) or is_approved(call, start))
            and (not entry.irreversible or all(t.settled and t.outcome != "success" and t.sure for t in twins))
            and self.is_as_planned(start, call, entry)
        )

    def is_given(self, item: dict[str, Any]) -> bool:
        """Did exactly that try settle its key, with exactly that result?"""
        nonce, result_hash = item.get("invocation_id"), item.get("result_hash")
        for one in self.tries_of.get(nonce, []) if isinstance(nonce, str) else []:
            settled = self.calls[one.start.key].settled
            if settled and settled.succeeded and settled.nonce == nonce:
                return bool(result_hash) and settled.body.get("output_hash") == result_hash
        return False

    def tool_invocation_finished(self, report: Record, call: Call) -> None:
        """A try's end, by whoever says so: the first end that counts settles the key."""
        tries = [one for one in call.tries if one.start.nonce == report.nonce]
        elsewhere = report.body.get("result") is None and is_blob(report.body.get("result_ref"))
        hashed = elsewhere or report.output == json_hash(report.body.get("result")) != ""
        self.ledger += broken(
            report,
            success_without_valid_start=report.succeeded and not tries,
            output_hash_mismatch=report.succeeded and not hashed,
        )
        if report.via == "probe" and report.succeeded:
            sent = [(report.key, one.start.text("external_key"), result_hash(report)) for one in tries]
            self.found += broken(report, unprobed_success=self.identity.found.isdisjoint(sent))
        self.compare(report, call.said[report.nonce])
        call.outputs |= {report.output} if report.succeeded else set()
        if tries and report.succeeded and not tries[-1].success():
            self.check_success(report, call, tries[-1])
        for one in tries:
            one.ends.append(report)
        in_charge = report.nonce == call.nonce and bool(tries)
        if call.settled or not self.may_end(report):
            return
        if report.nonce in call.live and report.succeeded:
            call.settle(report, "success", sure=False)
            self.check_end_by_hand(report, call)
        elif report.nonce in call.live and report.outcome == "retryable_failure":  # it certainly took no effect
            call.live.discard(report.nonce)
            if in_charge and call.state in ("started", "parked"):
                call.hand_over()
                call.attempt += not call.live
        elif in_charge and report.outcome == "permanent_failure":
            if report.via in ("executor", "late") and report.nonce in call.live:
                call.settle(report, "failed", sure=call.live == {report.nonce})
            elif report.via == "ledger" and call.state in ("started", "reopened"):
                call.settle(report, "failed", sure=call.state == "reopened" and not call.live)
            elif report.via == "human" and call.state == "parked":
                call.settle(report, "failed", sure=False)
                self.check_end_by_hand(report, call)

    def check_end_by_hand(self, report: Record, call: Call) -> None:
        """A person said what became of it; a cancel ends what waits, by anybody."""
        if report.via == "human" and report.text("error") != "cancelled":
            says = named(call)
            self.check_who(report, says, report.text("by"))
            verdict = "happened" if report.succeeded else "not_executed"
            words = call.words if call.state == "parked" else []
            self.check_agreed(report, says, words, (verdict, report.body.get("output_hash")))

    def compare(self, report: Record, said: "Reports") -> None:
        """What is said of one try agrees: executor and catch-up in all, others in whether it took effect."""
        stated = (report.via, report.outcome, report.output)
        if stated in said.stated:
            return
        said.stated.add(stated)
        direct, truth = report.via in ("executor", "catch_up"), report.via in ("probe", "human", "late")
        self.ledger += broken(
            report,
            reports_disagree=direct and any(one != stated[1:] for one in said.direct),
            truth_differs=(not report.succeeded) in (said.effects if truth else said.truths),
        )
        said.direct |= {stated[1:]} if direct else set()
        said.truths |= {report.succeeded} if truth else set()
        said.effects.add(report.succeeded)

    def check_success(self, success: Record, call: Call, one: Try) -> None:
        """One success a key, and none against its settlement, unless the outside can't have seen two effects."""
        tries = {other.start.nonce: other for other in call.tries}
        before = sorted((end.at, nonce) for nonce, other in tries.items() if (end := other.success()))
        settled = call.settled
        against = settled is not None and call.outcome != "success"
        if settled and against and settled.via in ("executor", "late") and settled.nonce != success.nonce:
            against = not is_harmless(tries[settled.nonce], one)  # a try speaks for itself only
        twice = before and not is_harmless(tries[before[-1][1]], one)
        self.ledger += broken(success, second_success=twice, contradicts_settlement=against)

    def command_committed(self, commit: Record, call: Call) -> None:
        call.commits.append(commit)

    def invocation_rejected(self, rejection: Record, call: Call) -> None:
        self.wait_completed(rejection, call)
        ended = self.waited.get(rejection.node)
        answered = ended and ended.type == "wait_completed" and ended.key == rejection.key
        overruled = call.said_yes() and rejection.text("reason") in ("approval", "edited", "expired")
        if (
            not call.settled
            and call.state in ("none", "reopened")
            and not answered
            and not overruled
            and self.may_end(rejection)
        ):
            call.settle(rejection, "rejected", sure=not call.live)

    def invocation_parked(self, parked: Record, call: Call) -> None:
        call.doubts.setdefault(parked.nonce, "parked")
        if not call.settled and call.state == "started" and parked.nonce == call.nonce:
            call.state, call.words = "parked", []

    def invocation_reopened(self, reopened: Record, call: Call) -> None:
        call.doubts[reopened.nonce] = "in_doubt"
        by, in_charge = reopened.text("by"), bool(call.tries) and reopened.nonce == call.nonce
        wanted = ["parked"] if by == "human" else ["started"]
        if by == "probe" and in_charge and self.can_act_no_more(call, call.tries[-1]):
            wanted.append("parked")
        if not call.settled and call.state in wanted and in_charge:
            self.ledger += broken(reopened, unproven_reopening=not is_founded(call, call.tries[-1], reopened))
            call.hand_over()
            self.replay += broken(
                reopened, derivations_differ=not is_number(reopened.body.get("next_token"), call.token)
            )
            if by == "human":
                self.reopen_by_hand(reopened, call)

    def reopen_by_hand(self, reopened: Record, call: Call) -> None:
        """A person has it tried again: he is named, and what can't be undone or was approved needs another yes."""
        parts = listed(reopened.body.get("evidence"))
        word = mapping(parts[0]) if parts else {}
        who = word.get("by") if isinstance(word.get("by"), str) else ""
        self.reopened_by_hand.append(
            {
                "node_id": reopened.node,
                "idempotency_key": reopened.key,
                "token": reopened.body.get("next_token"),
                "by": who,
                "said_at": reopened.header("ce_time").decode(errors="replace"),
                "evidence": word.get("evidence"),
                "event_id": reopened.id,
                "offset": reopened.offset,
            }
        )
        self.check_who(reopened, named(call), str(who))
        if call.asked or self.entry(call.tries[-1].start.node).irreversible:
            call.asks, call.asked, call.decided, call.allowed = call.token, None, None, {}
            call.votes = {}

    def invocation_probed(self, answer: Record, call: Call) -> None:
        one = next((one for one in call.tries if one.start.nonce == answer.nonce), None)
        key = answer.text("external_key")
        sent = {one.start.text("external_key") for one in call.tries if one.start.nonce == answer.nonce}
        self.found += broken(answer, external_key_differs=sent and key not in sent)
        if answer.text("answer") == "found":
            self.identity.found.add((answer.key, key, result_hash(answer)))
        over = one is not None and self.can_act_no_more(call, one)
        if one and over and answer.text("answer") == "not_found" and key and key == one.start.text("external_key"):
            call.absent.add(one.start.nonce)

    def can_act_no_more(self, call: Call, one: Try) -> bool:
        return one.start.worker() in self.gone or one.start.nonce in call.returned

    def invocation_in_doubt(self, doubt: Record, call: Call) -> None:
        if doubt.body.get("returned") is True and doubt.nonce in {one.start.nonce for one in call.tries}:
            call.returned.add(doubt.nonce)

    def worker_ended(self, ended: Record, _call: Call) -> None:
        """What a person says is named; of who submitted the job it proves nothing."""
        if not ended.worker():
            return
        by, by_hand = ended.body.get("by"), ended.text("how") == "human"
        if by_hand and ended.worker() not in self.workers_ended:
            said = {name: ended.body.get(name) for name in ("worker_id", "incarnation", "by", "evidence")}
            said["said_at"] = ended.header("ce_time").decode(errors="replace")
            self.ended_by_hand.append({**said, "event_id": ended.id, "offset": ended.offset})
        self.workers_ended.add(ended.worker())
        submitted_by = self.created.body.get("submitted_by") if self.created else None
        if not by_hand or by not in (None, submitted_by):
            self.gone.add(ended.worker())

    def job_paused(self, pause: Record, _call: Call) -> None:
        """Nothing starts until it is over; it has the next number, or it is void."""
        over = self.paused or self.end or self.by_type["cancel_requested"]
        if not over and is_number(pause.body.get("number"), self.pauses + 1):
            self.paused, self.pauses = True, self.pauses + 1

    def job_resumed(self, resumed: Record, _call: Call) -> None:
        if is_number(resumed.body.get("number"), self.pauses):
            self.paused = False

    def job_frozen(self, freeze: Record, _call: Call) -> None:
        """What it names does not start until it is over; it has a higher number than the last, or it is void."""
        scope, number = frozen_scope(freeze), freeze.body.get("number")
        created = self.created.body if self.created else {}
        tenant, agent = created.get("tenant"), created.get("submitted_by")
        concerned = scope is not None and scope[0] in (None, tenant) and scope[1] in (None, agent)
        if scope and concerned and not self.end and type(number) is int and number > self.freezes.get(scope, 0):
            self.freezes[scope] = number
            self.frozen.add(scope)

    def job_unfrozen(self, over: Record, _call: Call) -> None:
        """Of one that nobody had ordered it says up to which number freezes were: the next has a higher one."""
        scope, ordered = frozen_scope(over), over.body.get("ordered")
        if scope in self.frozen and is_number(over.body.get("number"), self.freezes[scope]):
            if ordered is None:
                self.frozen.discard(scope)
            elif type(ordered) is int and 0 <= ordered < self.freezes[scope]:
                self.frozen.discard(scope)
                self.freezes[scope] = ordered

    def cancel_requested(self, _cancel: Record, _call: Call) -> None:
        """What a cancel undoes goes on."""
        self.paused = False

    # Nodes.

    def job_waiting(self, waiting: Record, _call: Call) -> None:
        if not waiting.node and waiting.text("wait_type") == "confirmation":
            key = waiting.text("correlation_key")
            self.accepting = self.accepting if key in self.confirmed else waiting
            self.confirmed.add(key)
        if waiting.text("wait_type") in ("signal", "timer", "human") and waiting.node not in self.waited:
            before = self.waiting.get(waiting.node)
            self.waiting[waiting.node] = before if before and before.key == waiting.key else waiting

    def wait_completed(self, ended: Record, _call: Call) -> None:
        """The first end of a node's own wait stands; where that is a rejection, it ended in vain."""
        confirms = ended.type == "wait_completed" and not ended.node and ended.text("wait_type") == "confirmation"
        if confirms and self.accepting and same_key(ended, self.accepting):
            if self.accepting.text("rule"):
                self.check_who(ended, self.accepting.body, ended.text("by"))
                mine = [
                    vote for vote in self.acceptances if vote.at > self.accepting.at and same_key(vote, self.accepting)
                ]
                self.check_agreed(ended, self.accepting.body, mine, ("accepted", None))
            self.accepting = None
        waiting, names = self.waiting.get(ended.node), ("wait_type", "correlation_key")
        own = waiting is not None and all(ended.body.get(name) == waiting.body.get(name) for name in names)
        if waiting and waiting.key == ended.key and (own or ended.type == "invocation_rejected"):
            self.waited.setdefault(ended.node, ended)

    def node_finished(self, finished: Record, _call: Call) -> None:
        """What the planner says came of a node is what its call or its wait gave."""
        first = self.finished.setdefault(finished.node, finished)
        compensated = finished.text("result_type") == "compensated"
        again = first.id != finished.id and not compensated
        unfounded = False
        if compensated:
            again = self.compensated.setdefault(finished.node, finished.id) != finished.id
            unfounded = not again and not self.has_undone(f"{finished.node}.undo", finished.node)
        self.replay += broken(finished, node_finished_twice=again, unfounded_compensation=unfounded)
        if first is finished:
            self.check_node(finished)

    def check_node(self, finished: Record) -> None:
        entry, settled, waited = self.entry(finished.node), self.success(finished.node), self.waited.get(finished.node)
        said, output = finished.text("result_type"), finished.text("output_hash")
        if not entry.says:
            self.replay += broken(finished, unknown_node=True)
        elif settled:
            one = next(t for t in self.calls[settled.key].tries if t.start.nonce == settled.nonce)
            pure, partial = one.entry.is_harmless, settled.outcome == "compensatable_failure"
            may = {"success": pure, "side_effect_committed": not pure, "compensatable_failure": partial and not pure}
            differs = output != settled.text("output_hash")
            self.replay += broken(finished, result_type_differs=not may.get(said), injected_result_differs=differs)
        elif said in ("success", "side_effect_committed", "compensatable_failure"):
            waits = entry.says.get("kind") in ("wait", "timer", "human")
            given = waited if waits and waited and waited.type == "wait_completed" else None
            same = given and output == given.text("output_hash") == json_hash(given.body.get("payload"))
            self.replay += broken(finished, unfounded_node=not given, injected_result_differs=given and not same)

    def step_compensated(self, step: Record, _call: Call) -> None:
        self.replay += broken(step, unfounded_compensation=not self.has_undone(step.node, step.text("compensates")))

    # Its end.

    def job_ended(self, end: Record, _call: Call) -> None:
        """The first end stands; a completed job is done with every node, and every end names what was undone."""
        if self.end:
            return
        self.end = end
        good = ("success", "side_effect_committed", "compensated")
        done = {record.node for record in self.by_type["node_finished"] if record.text("result_type") in good}
        named = end.body.get("compensated") or []
        self.replay += broken(
            end,
            incomplete=end.type == "job_completed" and any(map(self.is_missing, self.planned().keys() - done)),
            compensated_differs=not isinstance(named, list) or set(map(str, named)) != self.undone_by().keys(),
        )
        said = end.body.get("result") if end.type == "job_completed" else None
        others = [name for name, value in mapping(said).items() if json_hash(value) != self.given(name)]
        for _ in others or ([] if said is None or isinstance(said, dict) else [said]):
            self.replay += broken(end, job_result_differs=True)

    def given(self, node: str) -> str | None:
        """The hash of what a node has given, by its call or as what it waited for; None: nothing, or a large result."""
        settled, waited = self.success(node), self.waited.get(node)
        if settled:
            return json_hash(settled.body.get("result")) if settled.body.get("result_ref") is None else None
        ended = waited is not None and waited.type == "wait_completed"
        return json_hash(waited.body.get("payload")) if waited is not None and ended else None

    def is_missing(self, node: str) -> bool:
        """But for a call that a model asked for, and went on without: it surely took no effect, nothing needs it."""
        if node in self.planned_calls:  # of a body's calls that began the planner has said what came of them
            return node in self.calls_of and all(record.node != node for record in self.by_type["node_finished"])
        created = next((record.body for record in self.by_type["job_created"]), {})
        by_turns = mapping(created.get("brief")).get("planning", "agent") == "agent"
        asked = (
            isinstance(created.get("goal"), str) and by_turns and self.entry(node).says.get("kind", "tool") == "tool"
        )
        reports = [record.text("result_type") for record in self.by_type["node_finished"] if record.node == node]
        calls = self.calls_of[node].values() if node in self.calls_of else []
        harmless = self.entry(node).is_harmless
        nothing = all(call.settled and call.outcome != "success" and (call.sure or harmless) for call in calls)
        needed = any(node in needed for needed in self.needs.values())
        return not asked or "permanent_failure" not in reports or not nothing or needed

    def planned(self) -> dict[str, Entry]:
        return {name: self.entry(name) for name in self.entries if self.entry(name).says}

    def check_end(self) -> None:
        """What is missing, as far as the records go."""
        for call in self.calls.values():
            if self.end and call.tries and not call.settled and call.state != "reopened":
                self.ledger += broken(call.tries[-1].start, unclosed_start=True)
            # a success and its commit are one batch: of one that came last we may have seen the first half
            if call.settled and call.outcome == "success" and call.settled is not self.records[-1]:
                committed = [commit.body.get("output_hash") for commit in call.commits]
                self.replay += broken(call.settled, not_committed=call.settled.body.get("output_hash") not in committed)
            hashes = {one.start.text("args_hash") for one in call.tries}
            for commit in call.commits:
                self.replay += broken(commit, stray_commit=commit.text("output_hash") not in call.outputs)
                self.found += broken(commit, input_hash_differs=hashes and commit.text("input_hash") not in hashes)


class Made(NamedTuple):
    """A call, as plan, results and edits make it."""

    args: dict[str, Any]
    args_hash: str
    content_key: str


class Identity:
    """What each call of a job is, as far as its records go: its arguments and hashes, from plan, results and edits."""

    def __init__(self, job: Job, blobs: dict[str, bytes]) -> None:
        self.job, self.blobs = job, blobs
        adopted, given = (continued(job.created, name) for name in ("adopted", "given"))
        self.adopted = {f"{one.get('job_id')}/{one.get('node_id')}": one for one in adopted}
        self.given = {str(one.get("name")): one.get("result") for one in given}
        self.edits: dict[str, list[Record]] = defaultdict(list)  # node → those that stand
        self.found: set[tuple[str, str, str]] = set()  # key, external key and result that probes have found
        self.made: dict[tuple[str, int | str, int], dict[str, Made]] = {}  # what calls_made has found
        self.made_by_edits: dict[tuple[str, int], tuple[dict[str, Any], int]] = {}  # by key, and of how many edits

    def is_another_plan(self, graph: dict[str, Any]) -> bool:
        """Than what was submitted; of a goal, than one node that asks the brief's model for just that.

        A job that a call of another has begun has its id and its plan from that.
        """
        created = self.job.created.body if self.job.created else {}
        if created.get("begun") is not None and not is_of_its_call(created, graph):
            return True
        if created.get("plan") is not None:
            return json_hash(created["plan"]) != json_hash(graph)
        goal, brief, nodes = created.get("goal"), mapping(created.get("brief")), listed(graph.get("nodes"))
        if not isinstance(goal, str):
            return False
        asking = mapping(nodes[0]) if len(nodes) == 1 else {}
        args = mapping(asking.get("args"))
        offered = {*map(str, listed(brief.get("tools")))}
        if asking.get("kind") == "workflow":  # its body asks; the node of a job of before that asks itself
            known = {"goal", "brief"} | ({"first", "earlier"} if created.get("continues") is not None else set())
            named = (asking.get("id"), asking.get("tool"), args.get("goal")) == ("goal", "goal", goal)
            same = named and args.keys() <= known and json_hash(args.get("brief")) == json_hash(brief)
            return not same or {*mapping(graph.get("tools"))} != {*offered, "goal"}
        same = (asking.get("kind"), args.get("prompt"), args.get("model")) == ("llm", goal, brief.get("model"))
        return not same or not {*mapping(graph.get("tools"))} == {*mapping(args.get("tools"))} == offered

    def calls_made(self, about: Record, entry: Entry) -> "dict[str, Made]":
        """By key, each call that a node may make: the plan's, and those of edits."""
        edits = self.edits.get(about.node, [])
        planned = self.job.planned_calls.get(about.node)
        known = (about.node, planned.asked if planned else entry.since, len(edits))
        if known not in self.made:
            args = self.arguments(entry.says)
            found = self.call(about, entry, args) if isinstance(args, dict) else {}
            for edit in edits:
                if edit.key in found and isinstance(edit.body.get("data"), dict):
                    found |= self.call(about, entry, edit.body["data"])
            self.made[known] = found
        return self.made[known]

    def arguments(self, says: dict[str, Any]) -> Any:
        """A node's, with what its references stand for by now; None where one leads nowhere."""
        try:
            return self.filled(says.get("args") or {})
        except (LookupError, ValueError):
            return None

    def filled(self, part: Any) -> Any:
        if isinstance(part, list):
            return [self.filled(inner) for inner in part]
        if not isinstance(part, dict):
            return part
        if len(part) != 1 or not isinstance(part.get("$ref"), str):
            return {name: self.filled(inner) for name, inner in part.items()}
        node, _, pointer = part["$ref"].partition("#")
        settled, waited = self.job.success(node), self.job.waited.get(node)
        if node in self.adopted:
            adopted = self.adopted[node]
            large = adopted.get("result_ref") is not None
            output = adopted.get("result_hash")
            value = large_result(adopted["result_ref"], output, self.blobs) if large else self.given.get(node)
        elif settled:
            value = read_result(settled, self.blobs)
        elif waited and waited.type == "wait_completed":
            value = waited.body.get("payload")
        else:
            raise LookupError(node)
        return place(value, pointer)

    def call(self, about: Record, entry: Entry, args: dict[str, Any]) -> "dict[str, Made]":
        """By its key, a call; nothing where the arguments have no canonical form."""
        created = self.job.created.body if self.job.created else {}
        tool, volatile = entry.says.get("tool") or entry.says.get("kind"), map(str, listed(entry.tool.get("volatile")))
        left_out = {*volatile}
        try:
            named = by_meaning({name: args[name] for name in args if name not in left_out})
            given, meant = map(said_once, (args, named))
        except (ValueError, RecursionError):
            return {}
        key = sha256(as_bytes(f"{about.text('job_id')}\0{about.node}\0{tool}\0") + given).hex()
        content_key = sha256(as_bytes(f"ck1\0{created.get('tenant')}\0{tool}\0") + meant).hex()
        return {key: Made(args, sha256(given).hex(), content_key)}

    def args_of(self, start: Record, entry: Entry) -> dict[str, Any] | None:
        """A try's, where plan, results and edits make just them."""
        try:
            own = self.calls_made(start, entry).get(start.key)
        except Bad:
            return None
        return own.args if own and own.args_hash == start.text("args_hash") else None

    def wrong(self, start: Record, entry: Entry) -> list[Finding]:
        try:
            made = self.calls_made(start, entry)
        except Bad:
            return []  # said of the result itself
        planned = 1 if entry.says.get("occurrence") is None else entry.says["occurrence"]
        own = made.get(start.key)
        return broken(
            start,
            occurrence_differs=type(planned) is not int or not is_number(start.body.get("occurrence"), planned),
            args_differ=start.text("args_hash") not in {call.args_hash for call in made.values()},
            key_differs=own is None,
            content_key_differs=own and start.text("content_key") != own.content_key,
        )

    def is_about_another(self, request: Record) -> bool:
        """Does its form show another call than the one that is asked about?"""
        context = mapping(mapping(request.body.get("form")).get("context"))
        tool, args = context.get("tool"), context.get("arguments")
        said = context.get("job_id"), context.get("node_id"), context.get("tool_version")
        about = request.text("job_id"), request.node, request.body.get("tool_version")
        if said != about or not isinstance(tool, str) or not isinstance(args, dict):
            return True
        try:
            given = said_once(args)
        except (ValueError, RecursionError):
            return True
        if sha256(given).hex() == request.text("args_hash"):
            return request.key != sha256(as_bytes("\0".join((*about[:2], tool, ""))) + given).hex()
        entry = self.job.entry(request.node)  # they are too large to be shown, or too deep
        try:
            whole = self.edited(request, entry) or self.arguments(entry.says)
        except Bad:
            return False
        found = self.call(request, entry, whole) if isinstance(whole, dict) else {}
        same = request.key in found and found[request.key].args_hash == request.text("args_hash")
        return not same or json_hash(beginnings(whole)) != json_hash(args)

    def edited(self, request: Record, entry: Entry) -> Any:
        """What an edit has made the arguments of the call that is asked about; None where none has made that call."""
        edits = self.edits.get(request.node, [])
        made, taken = self.made_by_edits.get((request.node, entry.since), ({}, 0))
        for edit in edits[taken:]:
            if isinstance(edit.body.get("data"), dict):
                for key in self.call(edit, entry, edit.body["data"]):
                    made.setdefault(key, edit.body["data"])
        self.made_by_edits[request.node, entry.since] = made, len(edits)
        return made.get(request.key)


HANDLED = {
    name: getattr(Job, name)
    for name in (
        "plan_generated approval_requested approval_voted approval_decided resolution_voted policy_allowed "
        "tool_invocation_started tool_invocation_finished command_committed invocation_rejected invocation_parked "
        "invocation_reopened invocation_in_doubt invocation_probed worker_ended job_waiting wait_completed "
        "call_planned workflow_accepted node_finished step_compensated job_paused job_resumed job_frozen job_unfrozen "
        "cancel_requested"
    ).split()
} | dict.fromkeys(("job_completed", "job_failed", "job_cancelled"), Job.job_ended)


def continued(created: Record | None, name: str) -> list[dict[str, Any]]:
    """A list in what a creation says of the job that it continues."""
    says = mapping(created.body.get("continues")) if created else {}
    return [mapping(one) for one in listed(says.get(name))]


def said_once(args: dict[str, Any]) -> bytes:
    """Arguments as keys have them: none are no bytes."""
    return canonical(args).encode() if args else b""


def by_meaning(part: Any) -> Any:
    """Of each value that is hidden d and k alone: c depends on its job."""
    if isinstance(part, list):
        return [by_meaning(inner) for inner in part]
    if not isinstance(part, dict):
        return part
    said = mapping(part.get("$hidden"))
    texts = {name for name, one in said.items() if isinstance(one, str)}
    if len(part) == 1 and len(said) == 3 and texts == {"c", "d", "k"}:
        return {"$hidden": {"d": said["d"], "k": said["k"]}}
    return {name: by_meaning(inner) for name, inner in part.items()}


def hidden(part: Any) -> Iterator[str]:
    """The c of each value that is hidden in it."""
    if isinstance(part, list):
        for inner in part:
            yield from hidden(inner)
    if not isinstance(part, dict):
        return
    said = mapping(part.get("$hidden"))
    c = said["c"] if len(part) == 1 and {*said} == {"c", "d", "k"} else None
    if isinstance(c, str) and re.fullmatch("[0-9a-f]{64}", c):
        yield c
        return
    for inner in part.values():
        yield from hidden(inner)


def place(value: Any, pointer: str) -> Any:
    """RFC 6901, with names and indices that can't be read in two ways."""
    if pointer and not pointer.startswith("/"):
        raise LookupError(pointer)
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and not re.fullmatch("0|[1-9][0-9]{0,9}", name):
            raise LookupError(pointer)
        value = value[int(name)] if isinstance(value, list) else mapping(value)[name]
    return value


def beginnings(args: dict[str, Any]) -> dict[str, Any]:
    """What a person is shown of arguments that are too large, or too deep: thirty, of long ones the beginning."""
    if len(canonical(args).encode()) <= 64 * 1024 and not is_deep(args, 64):
        return args
    return {name: beginning(args[name]) for name in [*args][:30]}


def beginning(value: Any) -> Any:
    data = canonical(value).encode()
    if len(data) <= 1_000:
        return value
    text = value if isinstance(value, str) else data[:3_600].decode(errors="ignore")
    return {"$left_out": {"sha256": sha256(data).hex(), "bytes": len(data)}, "begins": text[:900]}


def is_blob(reference: Any) -> bool:
    """Does it say which bytes a large result is, and how many?"""
    digest, size = (mapping(reference).get(name) for name in ("sha256", "size"))
    return isinstance(digest, str) and bool(re.fullmatch("[0-9a-f]{64}", digest)) and type(size) is int and size >= 0


def is_referred(body: dict[str, Any]) -> bool:
    """A result_ref is one, and stands alone, or there is none."""
    return body.get("result_ref") is None or (is_blob(body["result_ref"]) and body.get("result") is None)


def result_hash(record: Record) -> str:
    """Of what a record says was found; a large result is named by the hash of its bytes."""
    reference = record.body.get("result_ref")
    return json_hash(record.body.get("result") if reference is None else ["result_ref", reference])


def frozen_scope(record: Record) -> tuple[Any, ...] | None:
    """The tenant, the agent and the tool that a freeze names; None where it names nobody."""
    said = mapping(record.body.get("scope"))
    tenant, agent, tool = names = tuple(said.get(name) for name in ("tenant", "agent", "tool"))
    nobody = tenant is None and tool is None
    if nobody or not all(name is None or (isinstance(name, str) and 1 <= len(name) <= 256) for name in names):
        return None
    return None if agent is not None and (tenant is None or tool is not None) else names


def is_harmless(first: Try, second: Try) -> bool:
    """A pure tool, or one that deduplicates by the external key, sent twice."""
    if first.start.text("kind") in ("llm", "time", "random") and not first.entry.tool and not second.entry.tool:
        return True
    kinds = {str(one.entry.tool.get("effect_class")) for one in (first, second)}
    same = first.start.text("external_key") == second.start.text("external_key")
    return kinds == {"pure"} or (kinds == {"idempotent"} and same)


def is_founded(call: Call, last: Try, reopened: Record) -> bool:
    """By a person; where a repeat does no harm; or not found, asked when nothing could act or arrive any more."""
    tool, by = last.entry.tool, reopened.text("by")
    if by == "human":
        who = mapping(next(iter(listed(reopened.body.get("evidence"))), None)).get("by")
        return isinstance(who, str) and who != ""
    if by != "probe":
        return not tool or tool.get("effect_class") in ("pure", "idempotent")
    bound = seconds(tool.get("settles_within_s"), seconds(tool.get("timeout_s"), 30.0))  # 30: what a pin leaves out
    waited = [seconds(mapping(part).get("asked_after_s"), -1.0) for part in listed(reopened.body.get("evidence"))]
    asked_late = max(waited, default=-1.0) >= bound - 0.001  # the ledger rounds
    return tool.get("effect_class") == "probeable" and last.start.nonce in call.absent and asked_late


def seconds(value: Any, otherwise: float) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else otherwise


def named(call: Call) -> dict[str, Any]:
    """Whom the log names to say what became of a call: its request does, else what the policy said before it started.

    Where neither names anybody, anybody may but who submitted the job; where it can't be undone, any person.
    """
    last = call.tries[-1] if call.tries else None
    said = call.asked or (call.allowed.get(json_hash(last.start.body.get("tool_version"))) if last else None)
    if said:
        return said.body
    return {"approver_kinds": ["person"]} if last and last.entry.irreversible else {}


def several(says: dict[str, Any], word: Record) -> int:
    """How many must say what settles; 0 where one may, or says that it is an emergency."""
    needed = says.get("approvals")
    return needed if type(needed) is int and needed > 1 and not breaks_glass(word) else 0


BOUND_TO = ("node_id", "args_hash", "tool_version", "rule")  # what a decision repeats of its request


def unfit(created: Record | None, says: dict[str, Any], word: Record, who: str) -> dict[str, bool]:
    """The gate: not who submitted the job, and whom, of what kind and with which role, the rule names."""
    said = said_by(word)
    may, kinds, roles = (says.get(f"approver{name}") for name in ("s", "_kinds", "_roles"))
    own = created is not None and created.text("submitted_by") in voice(word, who)
    tenant, lent = created and created.text("tenant"), mapping(said.get("delegation"))
    named_as = str(lent.get("principal", who))
    broken_glass = said.get("breaks_glass") is True
    foreign = said.get("id", who) != who or said.get("tenant") not in (None, tenant)
    named = not isinstance(may, list) or any(fnmatchcase(named_as, str(pattern)) for pattern in may)
    such = not isinstance(kinds, list) or said.get("kind") in kinds
    role = not isinstance(roles, list) or any(one in listed(said.get("roles")) for one in roles)
    alone = said.get("kind") == "person" and "break_glass" in listed(said.get("roles"))
    fits = (alone if broken_glass else named and such and role) and (not lent or is_lent(word, lent))
    elsewhere = ("approval_decided", "approval_voted", "invocation_reopened")  # signed, or approved and signed anew
    unsigned = says.get("signed") is True and word.type not in elsewhere
    own = own and says.get("self_approval") is not True
    return {"self_approval": own, "not_an_approver": not fits or foreign, "not_signed": unsigned}


ROOT_ID = uuid.uuid5(uuid.NAMESPACE_URL, "urn:aetheris")


def child_id(job_id: str, node: str) -> str:
    """The id of the job that a call has begin."""
    return str(uuid.uuid5(ROOT_ID, f"child\0{job_id}\0{node}"))


def is_of_its_call(created: dict[str, Any], graph: dict[str, Any]) -> bool:
    """Whether id and plan of a job are those of the call by which it says that it has begun."""
    said, nodes = mapping(created["begun"]), listed(graph.get("nodes"))
    by_job, node, replaces = str(said.get("job_id")), str(said.get("node_id")), said.get("replaces") is True
    entry = mapping(nodes[0]) if len(nodes) == 1 else {}
    args = {"workflow": entry.get("tool"), "args": entry.get("args", {})}
    if not replaces:
        args["detached"] = said.get("awaited_by") is None
    try:
        called = f"{by_job}\0{node}\0jobs.{'continue' if replaces else 'start'}\0" + canonical(args)
    except (ValueError, RecursionError):
        return False
    same = created.get("job_id") == child_id(by_job, node)
    return same and len(nodes) == 1 and said.get("idempotency_key") == sha256(as_bytes(called)).hex()


ARMOR = re.compile(
    r"-----BEGIN SSH SIGNATURE-----\r?\n((?:[A-Za-z0-9+/=]{1,76}\r?\n)+)-----END SSH SIGNATURE-----(?:\r?\n)?"
)
SSH_HASHES = {b"sha256": hashlib.sha256, b"sha512": hashlib.sha512}


class SshSignature:
    """An SSHSIG (OpenSSH, PROTOCOL.sshsig): by Ed25519, in a file or on a security key touched; a passkey's."""

    def __init__(self, blob: bytes) -> None:
        if blob[:10] != b"SSHSIG\0\0\0\1":
            raise ValueError("another version")
        self.key, self.namespace, reserved, self.hash_name, signed = ssh_strings(blob[10:])
        self.raw, self.application = ssh_key(self.key)
        self.passkey = PasskeySignature(signed) if len(self.raw) == 65 else None
        is_touched = self.application is not None and not self.passkey
        self.details = signed[-5:] if is_touched else b""  # flags and a counter
        kind, self.value = (b"", b"") if self.passkey else ssh_strings(signed[:-5] if is_touched else signed)
        same = kind == ssh_strings(self.key)[0] and len(self.value) == 64
        if not self.passkey and (not same or (is_touched and not self.details[0] & 1)):
            raise ValueError("not by its key")
        if reserved or self.hash_name not in SSH_HASHES:
            raise ValueError("another kind")
        self.fingerprint = "SHA256:" + base64.b64encode(sha256(self.key)).decode().rstrip("=")

    def holds(self, message: bytes) -> bool:
        digest = SSH_HASHES[self.hash_name](message).digest()
        signed = b"SSHSIG" + b"".join(map(ssh_string, (self.namespace, b"", self.hash_name, digest)))
        if self.namespace != b"aetheris-approval":
            return False
        if self.passkey:
            return self.passkey.holds(self.raw, (self.application or b"").decode(), signed)
        if self.application is not None:
            signed = sha256(self.application) + self.details + sha256(signed)
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(self.value, signed)
        except Exception:
            return False
        return True


class PasskeySignature:
    """What a browser made (WebAuthn's assertion), as OpenSSH keeps it (PROTOCOL.u2f): type, numbers r and s; flags and
    a counter, which nothing rests on; the page's origin, the client data, extensions."""

    def __init__(self, signed: bytes) -> None:
        kind, at = ssh_string_at(signed, 0)
        numbers, at = ssh_string_at(signed, at)
        origin, self.client_data, extensions = ssh_strings(signed[at + 5 :])
        self.flagged = signed[at : at + 5] + extensions
        self.r, self.s = map(ssh_number, ssh_strings(numbers))
        flags = self.flagged[0]  # somebody was there (1) and verified (4); no data of a new key (64); extensions (128)
        if kind != b"webauthn-" + PASSKEY or flags & 0x45 != 0x05 or bool(flags & 0x80) != bool(extensions):
            raise ValueError("not by a passkey, or by nobody")
        if nests_deeper(self.client_data, 8):
            raise ValueError("too deep")
        said = STRICT.decode(self.client_data.decode())
        if not isinstance(said, dict) or self.client_data[:1] + self.client_data[-1:] != b"{}":
            raise ValueError("no client data")
        self.origin, self.is_within = origin.decode("ascii"), said.get("crossOrigin", False) is not False
        if said.get("origin") != self.origin or said.get("type") != "webauthn.get" or "topOrigin" in said:
            raise ValueError("of another page")

    def holds(self, point: bytes, host: str, message: bytes) -> bool:
        """The message is the challenge, the page is of the key's host; both in the one way that browsers have."""
        challenge = base64.urlsafe_b64encode(message).decode().rstrip("=")
        begins = f'{{"type":"webauthn.get","challenge":"{challenge}","origin":"{self.origin}"'
        scheme = "https?" if host == "localhost" else "https"
        own = re.fullmatch(scheme + "://" + re.escape(host) + "(:[1-9][0-9]{0,4})?", self.origin)
        if not own or self.is_within or not self.client_data.startswith(begins.encode()):
            return False
        try:
            key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
            signed = sha256(host.encode()) + self.flagged + sha256(self.client_data)
            key.verify(encode_dss_signature(self.r, self.s), signed, ec.ECDSA(SHA256()))
        except Exception:
            return False
        return True


def read_signature(armored: Any) -> SshSignature | None:
    found = ARMOR.fullmatch(armored) if isinstance(armored, str) and len(armored) <= 4096 else None
    try:
        return SshSignature(unbase64("".join(found[1].split()), "", exact=True)) if found else None
    except (Bad, ValueError, RecursionError):
        return None


PASSKEY = b"sk-ecdsa-sha2-nistp256@openssh.com"
HOST = re.compile(rb"([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]*[a-z0-9])?")
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of P-256


def ssh_key(blob: bytes) -> tuple[bytes, bytes | None]:
    """The raw key, of a passkey a point of P-256; and of a security key what it is for, of a passkey which host."""
    kind, raw, *rest = ssh_strings(blob)
    if kind == PASSKEY:
        point, host = rest
        if raw != b"nistp256" or len(point) != 65 or len(host) > 253 or not HOST.fullmatch(host):
            raise ValueError("no passkey's")
        ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
        return point, host
    if (kind, len(raw), len(rest)) not in ((b"ssh-ed25519", 32, 0), (b"sk-ssh-ed25519@openssh.com", 32, 1)):
        raise ValueError("not Ed25519")
    return raw, rest[0] if rest else None


def ssh_number(data: bytes) -> int:
    """In its shortest form, and one that a signature can have."""
    found = int.from_bytes(data, "big")
    if not 0 < found < ORDER or data != found.to_bytes(found.bit_length() // 8 + 1, "big"):
        raise ValueError("out of range")
    return found


def ssh_strings(data: bytes) -> list[bytes]:
    found, at = list[bytes](), 0
    while at < len(data):
        one, at = ssh_string_at(data, at)
        found.append(one)
    return found


def ssh_string_at(data: bytes, at: int) -> tuple[bytes, int]:
    """A string behind its length, and where it ends."""
    end = at + 4 + int.from_bytes(data[at : at + 4], "big")
    if len(data) < max(end, at + 4):
        raise ValueError("cut off")
    return data[at + 4 : end], end


def ssh_string(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


class Signer:
    """A line of a file of allowed signers (ssh-keygen(1)): names, options, type of the key, key."""

    LINE = re.compile(
        r'([^ \t"]+)[ \t]+(?:((?:[^ \t"]|"[^"]*")+)[ \t]+)?'
        r"((?:sk-)?(?:ssh|ecdsa)-[a-z0-9@.-]+)[ \t]+([^ \t]+)(?:[ \t].*)?"
    )

    def __init__(self, line: str) -> None:
        parts = self.LINE.fullmatch(line)
        if not parts:
            raise ValueError("no signer")
        self.names, options = parts[1].split(","), parts[2] or ""
        found = re.findall(r'([a-z-]+)="([^"\\]*)"', options, re.IGNORECASE)
        said = {name.lower(): value for name, value in found}
        again = ",".join(f'{name}="{value}"' for name, value in found)
        if again != options or len(said) != len(found) or said.keys() - {"namespaces", "valid-after", "valid-before"}:
            raise ValueError("an option that is not taken")
        self.spaces = said.get("namespaces", "*").split(",")
        self.after, self.before = ssh_time(said.get("valid-after")), ssh_time(said.get("valid-before"))
        self.key = unbase64(parts[4], "bad_signers", exact=True)
        if ssh_key(self.key) and ssh_strings(self.key)[0] != parts[3].encode():
            raise ValueError("another type")

    def gives(self, key: bytes, name: str, time: str) -> bool:
        """Is this the key of who has this name, for approvals, at that time?"""
        try:
            at = moment(time)
        except ValueError:
            return False
        in_time = (not self.after or self.after <= at) and (not self.before or at <= self.before)
        return (
            key == self.key and in_time and ssh_named(self.names, name) and ssh_named(self.spaces, "aetheris-approval")
        )


def ssh_time(text: str | None) -> datetime | None:
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{8}(?:[0-9]{4}(?:[0-9]{2})?)?[Zz]", text):
        raise ValueError("no time in UTC")
    return datetime.strptime(text[:-1].ljust(14, "0"), "%Y%m%d%H%M%S").replace(tzinfo=UTC)


def ssh_named(patterns: list[str], text: str) -> bool:
    """One of the patterns fits, and none that stands behind a ! does."""
    plain = {one: re.escape(one.removeprefix("!")).replace(r"\*", ".*").replace(r"\?", ".") for one in patterns}
    fits = [one for one, pattern in plain.items() if re.fullmatch(pattern, text, re.DOTALL)]
    return bool(fits) and not any(one.startswith("!") for one in fits)


def read_signers(text: bytes) -> list[Signer]:
    lines = [line.removesuffix("\r").strip(" \t") for line in text.decode().split("\n")]
    if any(re.search("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]", line) for line in lines):
        raise ValueError("a control character")
    return [Signer(line) for line in lines if line and not line.startswith("#")]


def voice(word: Record, who: str) -> set[str]:
    """Who said it, and in whose place: whoever is either has said it."""
    lender = mapping(said_by(word).get("delegation")).get("principal")
    return {who} if lender is None else {who, str(lender)}


def is_lent(word: Record, lent: dict[str, Any]) -> bool:
    """Had what was lent not ended, and is it something that can be lent?"""
    try:
        at, until = (datetime.fromisoformat(str(lent.get(name)).replace("Z", "+00:00")) for name in ("at", "until"))
        in_time = at < until
    except (ValueError, TypeError):
        return False
    return in_time and not breaks_glass(word) and word.text("decision") != "edit"


def breaks_glass(record: Record) -> bool:
    """Did somebody decide alone, in an emergency?"""
    return said_by(record).get("breaks_glass") is True


def is_signed_word(record: Record) -> bool:
    return record.type in ("approval_voted", "approval_decided") and bool(mapping(record.body.get("signature")))


def signed_word(word: Record, signers: list[Signer] | None) -> dict[str, Any]:
    """What an approver signed, by which key; `known`: whether the signers say that it is his."""
    named, at = mapping(word.body.get("signature")), word.header("ce_time").decode(errors="replace")
    key, signature, who = str(named.get("key")), read_signature(named.get("armored")), word.text("approver")
    own = signature.key if signature and signature.fingerprint == key else b""
    known = None if signers is None else any(one.gives(own, who, at) for one in signers)
    found = {"what": word.type, "node_id": word.body.get("node_id"), "by": who, "key": key, "known": known}
    return found | {"said_at": at, "event_id": word.id, "offset": word.offset}


def said_by(word: Record) -> dict[str, Any]:
    """What is recorded of who said it, beside his name."""
    if word.type == "job_created":
        return mapping(mapping(word.body.get("continues")).get("said_by"))
    return mapping(word.body.get("principal"))


def emergency(record: Record) -> dict[str, Any]:
    found = {"what": record.type, "node_id": record.body.get("node_id"), "by": said_by(record).get("id")}
    said_at = record.header("ce_time").decode(errors="replace")
    return found | {"said_at": said_at, "event_id": record.id, "offset": record.offset}


def is_approved(call: Call, start: Record) -> bool:
    """By policy for this version, or by a yes to this version and these arguments."""
    return json_hash(start.body.get("tool_version")) in call.allowed or has_yes(call, start)


def has_yes(call: Call, start: Record) -> bool:
    decided = call.decided.body if call.decided and call.said_yes() else None
    return decided is not None and all(decided.get(n) == start.body.get(n) for n in ("tool_version", "args_hash"))


def token(record: Record) -> Any:
    """Absent is 1."""
    return 1 if record.body.get("token") is None else record.body["token"]


def same_key(ended: Record, waiting: Record) -> bool:
    return ended.body.get("correlation_key") == waiting.body.get("correlation_key")


def makes(edit: Record, asked: Record) -> bool:
    return json_hash(edit.body.get("data")) == asked.text("args_hash") != ""


def content(start: Record) -> tuple[str, str]:
    return start.text("content_key"), str(start.body.get("occurrence", 1))


def covers(stop: Record, since: int) -> bool:
    up_to = stop.body.get("up_to_revision")
    return not isinstance(up_to, int) or since <= up_to


def is_number(value: Any, expected: int) -> bool:
    return type(value) is int and value == expected


# --- 4. The hashes of a job, or of its first records.


class Hashed(NamedTuple):
    execution: str
    outcome: str
    unreadable: list[Finding]  # results without which there is no outcome_hash
    calls: str | None  # the root over those of which parts can be shown alone; None where one can't be told


def hashed(job: Job, blobs: dict[str, bytes]) -> Hashed:
    """Of what has been folded so far."""
    return Hashed(execution_hash(job), *outcome_hash(job, blobs), calls_root(job))


def calls_root(job: Job) -> str | None:
    """Over the calls that the external system has an id of, in the order of their ends; "" where there are none."""
    named = [(end, one) for one in job.tries if (end := one.success()) and end.text("external_id")]
    named.sort(key=lambda pair: (pair[0].at, pair[1].start.at))
    for end, one in named:
        if one.args is None:
            return None
        one.leaf = one.leaf or call_leaf(one.start, end, one.args)
    return tree([one.leaf for _, one in named]).hex() if named else ""


OF_END = ("error", "evidence", "by", "principal", "usage")


def call_leaf(start: Record, end: Record, args: dict[str, Any]) -> bytes:
    """A leaf over the digests of a call's parts, each salted by what only the call's end has."""
    parts = {
        "call": {
            **{"step": start.node, "outcome": end.outcome, "via": end.via, "external_id": end.text("external_id")},
            **{"ended_at": end.header("ce_time").decode(errors="replace"), "records": [start.at, end.at]},
        },
        **{"tool": start.text("tool_name"), "version": start.text("tool_version")},
        "output_hash": end.text("output_hash"),
        **{name: end.body[name] for name in OF_END if end.body.get(name) is not None},
        "args": sorted(args),
        **{f"args.{name}": value for name, value in args.items()},
    }
    secret = json_hash([end.nonce, end.body.get("word"), end.body.get("sig")])
    salts = hashlib.shake_256(b"call1\0" + secret.encode()).hexdigest(16 * len(parts))
    digests = [json_hash([salts[32 * at : 32 * at + 32], name, parts[name]]) for at, name in enumerate(sorted(parts))]
    return parts_leaf(filter(None, digests))


def parts_leaf(digests: Iterable[str]) -> bytes:
    return sha256(b"\0" + bytes.fromhex("".join(sorted(digests))))


def execution_hash(job: Job) -> str:
    """SHA-256(plan_hash, then node_id:result_type and a newline for each node_finished; each event counts once)."""
    kinds = ("plan_generated", "decision_snapshot", "job_created")
    first = next((job.by_type[kind][0] for kind in kinds if job.by_type[kind]), None)
    if first is None:
        return ""
    text = [json_hash(first.body.get("task_graph") if first.type == "plan_generated" else first.body)]
    seen: set[str] = set()
    for record in job.by_type["node_finished"]:
        if not record.id or record.id not in seen:
            text.append(f"{record.node}:{record.text('result_type')}\n")
        seen.add(record.id)
    return sha256(as_bytes("".join(text))).hex() if text[0] else ""


def outcome_hash(job: Job, blobs: dict[str, bytes]) -> tuple[str, list[Finding]]:
    """SHA-256 of [[node_id, result_type, output_hash], ...] in the plan's order: the same after a clean run.

    This output_hash is that of the result without external_id and what the tool's pin declares volatile.
    """
    last = {record.node: record for record in job.by_type["node_finished"]}
    rows: list[list[str]] = []
    found: list[Finding] = []
    for node in in_order(job):
        settled = job.success(node)
        if node in job.planned_calls and not settled:
            continue  # what code tried in vain, or only planned, is no outcome of it
        said, output = (last[node].text(name) if node in last else "" for name in ("result_type", "output_hash"))
        if settled:
            try:
                volatile = listed(job.tries_of[settled.nonce][0].entry.tool.get("volatile"))
                output = lasting_hash(read_result(settled, blobs), {"external_id", *map(str, volatile)})
            except Bad as error:
                found.append((error.args[0], settled))
        rows.append([node, said, output])
    return ("" if found or not job.plans else json_hash(rows)), found


def in_order(job: Job) -> list[str]:
    """Node ids in topological order (Kahn; ties by the bytes of the id)."""
    entries = job.planned()
    sorter = TopologicalSorter(
        {name: map(str, listed(entry.says.get("depends_on"))) for name, entry in entries.items()}
    )
    sorter.prepare()
    order: list[str] = []
    ready: list[tuple[bytes, str]] = []
    while True:
        for name in sorter.get_ready():
            heappush(ready, (as_bytes(name), name))
        if not ready:
            return order
        order.append(heappop(ready)[1])
        sorter.done(order[-1])


def lasting_hash(result: Any, left_out: set[str]) -> str:
    if isinstance(result, dict):
        result = {name: value for name, value in result.items() if name not in left_out}
    try:
        hashed = json_hash(by_meaning(result))
    except RecursionError:
        hashed = ""
    if not hashed:
        raise Bad("not_canonical")
    return hashed


def read_result(settled: Record, blobs: dict[str, bytes]) -> Any:
    """From its payload, or from the blob that it names."""
    reference = settled.body.get("result_ref")
    if not isinstance(reference, dict):
        return settled.body.get("result")
    return large_result(reference, settled.output, blobs)


def large_result(reference: Any, output_hash: Any, blobs: dict[str, bytes]) -> Any:
    """The result in the blob that a reference names."""
    named = mapping(reference)
    blob = blobs.get(str(named.get("sha256")))
    if blob is None:
        raise Bad("missing_blob")
    if (sha256(blob).hex(), len(blob)) != (named.get("sha256"), named.get("size")):
        raise Bad("blob_mismatch")
    try:
        result = json.loads(blob)
    except (ValueError, RecursionError):
        raise Bad("output_hash_mismatch") from None
    if not json_hash(result) == output_hash != "":
        raise Bad("output_hash_mismatch")
    return result


# --- 5. The seal, and the log of all seals.


class Seals:
    """Seals among a job's records. Only of those that a key signed, and of the first, costs the check their records.

    Anybody may have written the others, and any number of them.
    """

    def __init__(self, records: list[Record], stated: list[Record], keys: dict[str, Key]) -> None:
        self.records, self.stated, self.keys = records, stated, keys
        self.leaves = leaves(records)
        self.trees = trees(self.leaves, {len(records), *map(sealed_by, stated)})
        self.signed = {one.at for one in stated if is_signed(one, keys.get(one.text("key_id")))}
        self.whole = {one.at for one in stated if one is stated[0] or one.at in self.signed}
        self.counts = {sealed_by(one) for one in stated if one.at in self.whole}
        self.first: dict[str, Record] = {}  # by the hash of its line
        for one in records:
            if one.type == "job_sealed":
                self.first.setdefault(sha256(one.value).hex(), one)

    def grown(self, seal: Record, amends: Any) -> bool:
        """Does it prove that the tree of the seal which it amends only grew?"""
        before = self.first.get(amends) if isinstance(amends, str) else None
        if before is None or before.at >= seal.at or not 0 < sealed_by(before) <= sealed_by(seal):
            return False
        proof = growth(self.leaves[: sealed_by(seal)], sealed_by(before))
        return bool(proof) and seal.body.get("consistency") == proof


def sealed_by(seal: Record) -> int:
    """How many records it is over; -1 where it says no number of those before it."""
    count = seal.body.get("event_count")
    return count if type(count) is int and 0 < count <= seal.at else -1


def check_seal(seal: Record, job: Job, roots: list[bytes], seals: Seals) -> list[Finding]:
    """It says what the records that it covers say, and a key signed it that counts at its time."""
    count = sealed_by(seal)
    if count < 0:
        return [("seal_count", seal)]
    key, amends = seals.keys.get(seal.text("key_id")), seal.body.get("amends")
    covered = job.hashed[count] if seal.at in seals.whole else None
    signed = seal.at in seals.signed
    is_second = is_number(seal.body.get("chain"), 2)
    refusal = key.refusal(seal.text("sealed_at")) if key and signed else ""
    return broken(
        seal,
        seal_root=seal.text("root") != roots[count - 1].hex(),
        seal_chain=not is_second,
        seal_tree=is_second and seal.text("tree") != seals.trees[count].hex(),
        seal_consistency=amends is not None and covered and not seals.grown(seal, amends),
        seal_execution_hash=covered and seal.text("execution_hash") != covered.execution,
        seal_outcome_hash=covered and not covered.unreadable and seal.text("outcome_hash") != covered.outcome,
        seal_calls=covered and covered.calls is not None and seal.body.get("calls") not in (None, covered.calls),
        seal_tenant=job.created and seal.text("tenant") != job.created.text("tenant"),
        sealed_unfinished=not job.end or job.end.at >= count,
        seal_unknown_key=key is None,
        seal_signature=key and not signed,
        **{refusal: refusal},
    )


def growth(hashes: list[bytes], before: int, *, whole: bool = True) -> list[str]:
    """The proof that the tree over these leaves begins with that over so many of them (RFC 9162 §2.1.4.1)."""
    if before == len(hashes):
        return [] if whole else [tree(hashes).hex()]
    middle = 1 << (len(hashes) - 1).bit_length() - 1
    if before <= middle:
        return [*growth(hashes[:middle], before, whole=whole), tree(hashes[middle:]).hex()]
    return [*growth(hashes[middle:], before - middle, whole=False), tree(hashes[:middle]).hex()]


def standing(seals: list[Record]) -> list[Record]:
    """The first seal, and each that amends the one before by a longer prefix, that one in it."""
    found: list[Record] = []
    for seal in seals:
        count, last = seal.body.get("event_count"), found[-1] if found else None
        longer = last is None or (type(count) is int and count > last.at)
        if longer and seal.body.get("amends") == (last and sha256(last.value).hex()):
            found.append(seal)
    return found


def leave_out(records: list[Record], begin: int, seals: set[int], *, signed: bool) -> None:
    """Behind what was sealed at first only facts that come late count, as far as their writers prove them."""
    ended: set[tuple[str, str]] = set()
    for record in records[begin:]:
        fact = signed and record.type in ("effect_confirmed", "confirmation_failed", "violation_found")
        if record.type == "tool_invocation_finished" and is_proved(record):
            fact = signed or record.via in ("executor", "late", "catch_up")
            ended |= {(record.key, record.output)} if fact and record.succeeded else set()
        fact = fact or (record.type == "command_committed" and (record.key, record.text("output_hash")) in ended)
        if not fact and record.at not in seals:
            record.left_out, record.type, record.claims, record.body = True, "", "", {}


def is_signed(seal: Record, key: Key | None) -> bool:
    beside = ("signature", "certificate", "sig")  # the last two are its record's
    unsigned = {name: value for name, value in seal.body.items() if name not in beside}
    with suppress(Bad, ValueError, RecursionError):
        message = pae("application/vnd.aetheris.seal+json", canonical(unsigned).encode())
        return key is not None and key.signed(unbase64(seal.text("signature"), "seal_signature"), message)
    return False


def check_after_seal(job: Job, count: int) -> list[Finding]:
    """Behind what is sealed: only seals, confirmations, and what changes nothing."""
    finished = {(r.node, r.text("result_type")) for r in job.by_type["node_finished"] if r.at < count}
    changing = job.moved | {record.at for record in (*job.plans, *job.by_type["step_compensated"])}
    changing |= {job.end.at} if job.end else set()
    found: list[Finding] = []
    for record in job.records[count:]:
        again = record.type != "node_finished" or (record.node, record.text("result_type")) in finished
        found += broken(record, after_seal=record.at in changing or not again)
    return found


def check_log_of_seals(proof: str, seal: bytes, keys: dict[str, Key]) -> None:
    """The proof (C2SP tlog-proof) leads from this seal to the root that a checkpoint (C2SP signed note) signs."""
    head, parted, checkpoint = proof.partition("\n\n")
    lines = re.fullmatch(r"c2sp\.org/tlog-proof@v1\n(?:extra [^\n]*\n)?index (0|[1-9][0-9]{0,18})((?:\n[^\n]*)*)", head)
    if not lines or not parted or len(proof) > 1 << 20:
        raise Bad("bad_proof")
    path = [unbase64(line, "bad_proof", exact=True) for line in lines[2].split("\n")[1:]]
    if len(path) > 64 or any(len(step) != 32 for step in path):
        raise Bad("bad_proof")
    size, root = check_checkpoint(checkpoint, keys)
    if not is_included(sha256(b"\0" + sha256(seal)), int(lines[1]), size, path, root):
        raise Bad("not_included")


def is_included(found: bytes, index: int, size: int, path: list[bytes], root: bytes) -> bool:
    return root_of(found, index, size, path) == root


def root_of(found: bytes, index: int, size: int, path: list[bytes]) -> bytes | None:
    """RFC 9162, 2.1.3.2; None where the path has another length."""
    if index >= size:
        return None
    last = size - 1
    for step in path:
        if last == 0:
            return None
        if index & 1 or index == last:
            found = sha256(b"\1" + step + found)
            while not index & 1 and index:
                index, last = index >> 1, last >> 1
        else:
            found = sha256(b"\1" + found + step)
        index, last = index >> 1, last >> 1
    return found if last == 0 else None


def check_checkpoint(note: str, keys: dict[str, Key]) -> tuple[int, bytes]:
    """(size, root) that a trusted, not revoked key signed."""
    text, _, tail = note.rpartition("\n\n")
    said = re.fullmatch(r"([^\n]+)\n(0|[1-9][0-9]{0,18})\n([^\n]+)(?:\n[^\n]+)*", text)
    lines = re.findall(r"\u2014 ([^ \n]+) ([^ \n]+)\n", tail)
    if not said or tail != "".join(f"\u2014 {name} {signature}\n" for name, signature in lines) or len(lines) > 64:
        raise Bad("bad_checkpoint")
    root = unbase64(said[3], "bad_checkpoint", exact=True)
    signatures = [(name, unbase64(signature, "bad_checkpoint", exact=True)) for name, signature in lines]
    strange = not lines or len(root) != 32 or any(len(signature) < 5 for _, signature in signatures)
    if strange or re.search("[\x00-\x09\x0b-\x1f\ud800-\udfff]", note):
        raise Bad("bad_checkpoint")
    known = {sha256(said[1].encode() + b"\n\1" + key.raw)[:4]: key for key in of_use(keys, "log").values()}
    ours = [(known.get(signature[:4]), signature[4:]) for name, signature in signatures if name == said[1]]
    check_signatures("checkpoint", ours, (text + "\n").encode())
    return int(said[2]), root


# --- 6. The jobs that it continues.


@dataclass
class Link:
    """A job of the chain, judged by itself, with its large results."""

    job_id: str
    report: dict[str, Any]
    job: Job
    seal: Record | None
    blobs: dict[str, bytes]

    def says(self) -> dict[str, Any]:
        return mapping(self.job.created.body.get("continues")) if self.job.created else {}

    def adopted(self) -> list[dict[str, Any]]:
        return [mapping(one) for one in listed(self.says().get("adopted"))]

    def words(self) -> dict[str, dict[str, Any]]:
        """What the person who continues says of the steps that nobody was sure of."""
        return {str(mapping(one).get("node_id")): mapping(one) for one in listed(self.says().get("settled"))}

    def words_shown(self) -> list[dict[str, Any]]:
        by = self.job.created.text("submitted_by") if self.job.created else ""
        named = {"job_id": self.job_id, "of": str(self.says().get("job_id")) if self.says() else "", "by": by}
        names = ("node_id", "verdict", "evidence")
        return [named | {name: word.get(name) for name in names} for word in self.words().values()]


def check_chain(chain: list[Link]) -> list[dict[str, Any]]:
    """Each job against the one that it continues; and what is wrong in those."""
    found: list[dict[str, Any]] = []
    for place, one in enumerate(chain):
        wrong = check_link(one, chain[place + 1] if place + 1 < len(chain) else None, place)
        found += [finding(rule, record) | {"job_id": one.job_id} for rule, record in wrong]
    return found + [broken | {"job_id": one.job_id} for one in chain[1:] for broken in one.report["violations"]]


def check_link(one: Link, earlier: Link | None, place: int) -> list[Finding]:
    created, says = one.job.created, one.says()
    if created is None or not (says or earlier):
        return []
    if place >= MAX_CONTINUED:
        return [("continued_too_long", created)]
    if earlier is None:
        return [("continued_missing", created)]
    if not says or earlier.job_id != str(says.get("job_id")):
        return [("continued_other", created)]
    before, named, good = earlier.job, mapping(says.get("seal")), earlier.job.seals
    is_sealed = bool(earlier.report["seal"]["ok"] and good)
    names = ("event_count", "root", "outcome_hash", "key_id")
    found = broken(
        created,
        continued_not_sealed=not is_sealed,
        continued_seal=is_sealed and not any(all(s.body.get(n) == named.get(n) for n in names) for s in good),
        continued_not_failed=before.end is None or before.end.type == "job_completed",
        continued_tenant=before.created is None or before.created.text("tenant") != created.text("tenant"),
    )
    return found + check_adopted(one, earlier, created)


def check_adopted(one: Link, earlier: Link, created: Record) -> list[Finding]:
    """What was done is adopted just as it was done, and not done again; what may have been done needs a human."""
    carried, known = (
        {*map(json_hash, earlier.adopted())},
        {name: Step(earlier.job, name) for name in earlier.job.entries if not is_body(earlier.job.entry(name))},
    )
    own: set[str] = set()
    found: list[Finding] = []
    for adopted in one.adopted():
        name = str(adopted.get("node_id"))
        if adopted.get("job_id") != earlier.job_id:
            found += broken(created, adopted_unfounded=json_hash(adopted) not in carried)
            continue
        own.add(name)
        rule = known[name].refuses(adopted, one.words().get(name, {})) if name in known else "adopted_unsettled"
        found += [(rule, created)] if rule else []
    taken = {*map(json_hash, one.adopted())}
    found += broken(
        created,
        adopted_missing=any(step.done and name not in own for name, step in known.items())
        or any(adopted not in taken for adopted in carried),
        continued_unsure=any(
            step.unsure and name not in own and one.words().get(name, {}).get("verdict") != "not_executed"
            for name, step in known.items()
        ),
        continued_word=not all(name in known and known[name].answered(word) for name, word in one.words().items()),
        adopted_value=not all(is_used(mapping(use), one, earlier, known) for use in listed(one.says().get("uses")))
        or not all(is_given(mapping(given), one) for given in listed(one.says().get("given"))),
    )
    for name, word in one.words().items():
        if name in known and known[name].answered(word):
            found += known[name].may_say(earlier.job, created)
    names = {str(adopted.get("node_id")) for adopted in one.adopted()}
    means = {(a["content_key"], str(a.get("occurrence", 1))) for a in one.adopted() if a.get("content_key")}
    for again in one.job.tries:
        same = again.entry.irreversible and content(again.start) in means
        found += broken(again.start, adopted_again=again.start.node in names or same)
    return found


def is_body(entry: Entry) -> bool:
    """Has a node calls of its own, and does nothing else?"""
    return entry.says.get("kind") == "workflow"


class Step:
    """What a node of an ended job came to."""

    def __init__(self, job: Job, name: str) -> None:
        entry = job.entry(name)
        undone = job.end.body.get("compensated") if job.end else None
        self.undone, self.undoes = name in map(str, listed(undone)), bool(entry.undoes)
        calls = list(job.calls_of[name].values()) if name in job.calls_of else []
        doubts = [] if entry.is_harmless or self.undone else [call for call in calls if call.tries and is_unsure(call)]
        self.doubt, self.irreversible = (doubts[0] if doubts else None), entry.irreversible
        self.unsure = self.doubt is not None
        self.settled, waited = job.success(name), job.waited.get(name)
        self.start: Record | None = None
        if self.settled:
            self.start = next(t.start for t in job.tries_of[self.settled.nonce] if t.start.key == self.settled.key)
        elif waited and waited.type == "wait_completed":
            self.settled = waited
        self.done = bool(self.settled) and not (self.undoes or self.undone or self.unsure)
        end, said = (one.body if one else {} for one in (self.settled, self.start))
        self.says = {
            "idempotency_key": self.settled.key if self.settled else None,
            "result_hash": end.get("output_hash"),
            "result_ref": end.get("result_ref"),
            "external_id": end.get("external_id"),
            "content_key": said.get("content_key") if entry.irreversible else None,
            "occurrence": said.get("occurrence", 1) if entry.irreversible else 1,
        }
        if said.get("tool_name") is not None:  # a wait has neither tool nor arguments
            self.says |= {name: said.get(name) for name in ("invocation_id", "tool_name", "args_hash")}

    def answered(self, word: dict[str, Any]) -> bool:
        """Is a person's word about the very call that nobody is sure of, and can it settle that?"""
        if self.doubt is None or self.undoes or (self.settled and self.settled.outcome == "compensatable_failure"):
            return False
        last = self.doubt.tries[-1].start
        about = word.get("idempotency_key"), word.get("invocation_id")
        return about == (last.key, last.nonce) and word.get("verdict") in ("happened", "not_executed")

    def may_say(self, job: Job, created: Record) -> list[Finding]:
        """The gate of the job that it is about: not who submitted that one, and whom the rule names."""
        call, who = self.doubt, created.text("submitted_by")
        says = named(call) if call else {}
        too_few = bool(several(says, created))
        return broken(created, votes_missing=too_few, **unfit(job.created, says, created, who))

    def as_said(self, word: dict[str, Any]) -> dict[str, Any]:
        """What is adopted of a call that a person says happened."""
        body = self.doubt.tries[-1].start.body if self.doubt else {}
        names = ("idempotency_key", "invocation_id", "tool_name", "args_hash")
        return {name: body.get(name) for name in names} | {
            "result_hash": json_hash(word.get("result")),
            "result_ref": None,
            "external_id": None,
            "content_key": body.get("content_key") if self.irreversible else None,
            "occurrence": body.get("occurrence", 1) if self.irreversible else 1,
        }

    def refuses(self, adopted: dict[str, Any], word: dict[str, Any]) -> str:
        """The rule by which it can't be adopted so."""
        adopted = {"occurrence": 1} | adopted
        if word.get("verdict") == "happened" and self.answered(word):
            same = all(adopted.get(name) == value for name, value in self.as_said(word).items())
            return "" if same else "adopted_differs"
        if self.unsure:
            return "adopted_unsure"
        if self.settled is None or self.undoes:
            return "adopted_unsettled"
        if self.undone:
            return "adopted_undone"
        given = {name: adopted.get(name) for name in self.says}
        return "" if given == self.says and json_hash(given) == json_hash(self.says) else "adopted_differs"


def is_unsure(call: Call) -> bool:
    """Perhaps it took effect, or in part; a person's "not executed" is a word, a cancel is none."""
    if call.settled is None:
        return bool(call.live)
    if call.outcome == "success":
        return call.settled.outcome == "compensatable_failure"
    denied = call.outcome == "failed" and call.settled.via == "human" and call.settled.text("error") != "cancelled"
    return not call.sure and not denied


def is_used(use: dict[str, Any], one: Link, earlier: Link, known: dict[str, Step]) -> bool:
    """Is a value that stands for an adopted result just that?"""
    name, _, pointer = str(use.get("ref")).partition("#")
    settled = known[name].settled if name in known else None
    planned = one.job.entry(str(use.get("node_id")), 0).says
    try:
        result = read_result(settled, earlier.blobs) if settled else None
        given = pointed(one.words()[name].get("result") if name in one.words() else result, pointer)
        return json_hash(given) == json_hash(pointed(planned, str(use.get("at")))) != ""
    except (Bad, LookupError, ValueError):
        return False


def is_given(given: dict[str, Any], one: Link) -> bool:
    """Is a result that references lead into the one that is adopted under that name?"""
    hashes = {f"{each.get('job_id')}/{each.get('node_id')}": each.get("result_hash") for each in one.adopted()}
    return json_hash(given.get("result")) == hashes.get(str(given.get("name"))) != ""


def pointed(value: Any, pointer: str) -> Any:
    """RFC 6901."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        value = value[int(name)] if isinstance(value, list) else mapping(value)[name]
    return value


# --- 7. The answer.


def judge(
    records: list[Record],
    blobs: dict[str, bytes],
    keys: dict[str, Key],
    signers: list[Signer] | None = None,
    amended: list[Record] | None = None,
) -> tuple[dict[str, Any], Job, Record | None]:
    """The report on a job's records, the job, and the seal that counts: the last of those that amend the first."""
    installation = check_writers(records)
    if amended:
        places = {seal.at for seal in amended}
        leave_out(records, amended[0].body["event_count"], places, signed=installation is not None)
    roots = chain(records)
    stated = [one for one in records if one.type == "job_sealed" and (amended or one.body.get("amends") is None)]
    told = Seals(records, stated, keys)
    job = Job(records, signers, blobs, {len(records), *told.counts})
    seals = [(seal, check_seal(seal, job, roots, told)) for seal in stated]
    asked = seals[-1:] if amended else seals
    good = next((seal for seal, wrong in asked if not wrong), None)
    seal = good or (asked[0][0] if asked else None)
    claimed = seal.body.get("event_count") if seal else 0
    sealed = claimed if type(claimed) is int else 0
    count = sealed if good else len(records)
    hashes = job.hashed[count]
    found = [*check_records(records), *job.found, *job.ledger, *job.replay, *hashes.unreadable]
    found += check_checkpoints(records, roots)
    differing, late = check_activations(records)
    found += differing
    found += [one for _, wrong in seals for one in wrong] + (check_after_seal(job, sealed) if good else [])
    places = {(record.at if record else 0, rule): record for rule, record in found}
    wrong = {record.at for _, record in found if record}
    job.seals = [seal for seal in job.by_type["job_sealed"] if seal.at not in wrong]
    pending = sorted(key for key, call in job.calls.items() if call.tries and not call.settled)
    full_root = roots[-1].hex() if roots else ""
    root = roots[sealed - 1].hex() if seal and 0 < sealed <= seal.at else ""
    report = {
        "ok": not found and not pending,
        "ended": job.end is not None,
        "installation": installation,
        "execution_hash": hashes.execution,
        "event_chain_root_hash": root if good else full_root,
        "event_tree_root_hash": told.trees[count].hex(),
        "tool_invocation_ledger_proof": {"ok": not pending and not job.ledger, "pending_idempotency_keys": pending},
        "replay_proof_result": {"ok": not job.replay, "error": job.replay[0][0] if job.replay else ""},
        "outcome_hash": hashes.outcome,
        "event_count": count,
        "seal": {
            **{"present": bool(seal), "ok": bool(good), "event_count": sealed},
            **{"root": root, "tree": told.trees[sealed].hex() if root else "", "full_root": full_root},
        },
        "violations": [finding(rule, places[at, rule]) for at, rule in sorted(places)],
        "reopened_by_hand": job.reopened_by_hand,
        "glass_broken": [emergency(record) for record in job.records if breaks_glass(record)],
        "signed": [signed_word(one, signers) for one in job.records if is_signed_word(one)],
        "ended_by_hand": job.ended_by_hand,
        "unproven": [finding("unproven_record", record) for record in records if record.claims],
        "notes": [
            *(finding("unproven_report", record) for record in job.unproven),
            *(finding("activation_decreases", record) for record in late),
            *(finding("signed_creation", record) for record in records if names_root(record) and not installation),
        ],
        "after_seal": [],
        "hidden_values": len(
            {c for one in records if b'"$hidden"' in one.value and not one.left_out for c in hidden(one.body)}
        ),
        "amended": None,
    }
    return report, job, seal


def judge_sealed(
    records: list[Record], blobs: dict[str, bytes], keys: dict[str, Key], signers: list[Signer] | None = None
) -> tuple[dict[str, Any], Job, Record | None]:
    """The same of the records that a seal by one of the keys covers, and of it; what else lies behind is just named.

    Where others amend that seal, of those that the last one covers; and what was sealed at first is judged by itself.
    """
    check_writers(records)
    roots = chain(records)
    seals = standing([one for one in records if one.type == "job_sealed" and is_over(one, roots, keys)])
    if not seals:
        return judge(records, blobs, keys, signers)
    first, seal, at = seals[0], seals[-1], seals[0].at
    first.at = first.body["event_count"]
    at_first, job, good = judge([*records[: first.at], first], blobs, keys, signers)
    at_first["seal"]["full_root"] = roots[-1].hex()
    if seal is first:
        behind = [finding("after_seal", one) for one in records[first.at :] if one is not first]
        return at_first | {"after_seal": behind}, job, good
    first.at, seal.at = at, seal.body["event_count"]
    report, job, good = judge([*records[: seal.at], seal], blobs, keys, signers, seals)
    left_out = [one for one in records[: seal.at] if one.left_out] + records[seal.at :]
    report["seal"]["full_root"] = roots[-1].hex()
    amended = {
        **{name: at_first["seal"][name] for name in ("event_count", "root", "tree")},
        **{"ok": at_first["ok"], "amendments": len(seals) - 1},
        "shows": [one for one in report["violations"] if one not in at_first["violations"]],
    }
    behind = [finding("after_seal", one) for one in left_out if one is not seal]
    return report | {"after_seal": behind, "amended": amended}, job, good


def is_over(seal: Record, roots: list[bytes], keys: dict[str, Key]) -> bool:
    """Is it over just these records, and signed by a key that counts at its time? What else it says, its rules say."""
    count, key = seal.body.get("event_count"), keys.get(seal.text("key_id"))
    if type(count) is not int or not 0 < count <= seal.at or seal.text("root") != roots[count - 1].hex():
        return False
    return key is not None and is_signed(seal, key) and not key.refusal(seal.text("sealed_at"))


def names_root(record: Record) -> bool:
    return record.type == "job_created" and record.body.get("installation") is not None


def finding(rule: str, record: Record | None = None) -> dict[str, Any]:
    return {"rule": rule, "event_id": record.id if record else "", "offset": record.offset if record else -1}


def derived(job: Job, report: dict[str, Any]) -> dict[str, Any]:
    """What a bundle says again, for its readers."""
    created, shown = job.created.body if job.created else {}, ("revision", "plan_hash", "planner", "planner_version")
    kinds = (
        "policy_allowed",
        "approval_requested",
        "approval_voted",
        "approval_decided",
        "resolution_voted",
        "invocation_rejected",
    )
    approvals = sorted((record for kind in kinds for record in job.by_type[kind]), key=lambda record: record.at)
    summary = ("execution_hash", "event_chain_root_hash", "event_tree_root_hash", "outcome_hash", "event_count")
    proofs = ("tool_invocation_ledger_proof", "replay_proof_result")
    graphs = [mapping(plan.body.get("diff" if at else "task_graph")) for at, plan in enumerate(job.plans)]
    return {
        "ledger": [ledger_row(job, one) for one in job.tries],
        "approvals": [{"event_id": r.id, "offset": r.offset, "type": r.type, "says": r.body} for r in approvals],
        "provenance": {
            **{name: created.get(name) for name in ("tenant", "submitted_by", "agent", "request_hash")},
            "plans": [{"event_id": plan.id} | {name: plan.body.get(name) for name in shown} for plan in job.plans],
            "decisions": [record.id for record in job.by_type["decision_snapshot"]],
            "tools": [graph.get("tools", {}) for graph in graphs],
        },
        "report": {name: report[name] for name in (*summary, *proofs)},
        "amended": without_ok(report["amended"]),
    }


def without_ok(amended: dict[str, Any] | None) -> dict[str, Any] | None:
    """What was sealed at first, and what came to light since."""
    if amended is None:
        return None
    shows = sorted(amended["shows"], key=lambda one: (one["offset"], one["rule"], one["event_id"]))
    return {name: value for name, value in (amended | {"shows": shows}).items() if name != "ok"}


def ledger_row(job: Job, one: Try) -> dict[str, Any]:
    start, success, call = one.start, one.success(), job.calls[one.start.key]
    return {
        "invocation_id": start.nonce,
        "step_id": start.node,
        **{name: start.text(name) for name in ("tool_name", "args_hash", "idempotency_key", "external_key")},
        **{name: start.body.get(name) for name in ("attempt_id", "token")},
        "status": "success" if success else "failure" if one.ends else call.doubts.get(start.nonce, "started"),
        "committed": bool(success and success.output in [commit.text("output_hash") for commit in call.commits]),
        "external_id": success.text("external_id") if success else "",
        "output_hash": success.output if success else "",
    }


WHOLE, REDACTED = "urn:aetheris:job-evidence:v1", "urn:aetheris:job-evidence-redacted:v1"


def check_bundle(
    data: bytes,
    trusted: dict[str, Key] | None,
    installation: str | None = None,
    signers: list[Signer] | None = None,
    now: datetime = LAST,
) -> dict[str, Any]:
    """The report on a bundle and on what it continues, by these keys or by its own, of this root or of its own."""
    return check_job(data, trusted, installation, signers, now)[0]


def check_job(
    data: bytes,
    trusted: dict[str, Key] | None,
    installation: str | None,
    signers: list[Signer] | None,
    now: datetime,
) -> tuple[dict[str, Any], Link | None]:
    """The same, and its job; None of a redacted one, which does not show all that it says of others."""
    payload, signatures = open_envelope(unzip(data))
    if trusted is not None:
        check_envelope(payload, signatures, trusted)
    if sum(map(payload.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise Bad("bad_statement")
    statement = parse(payload, "bad_statement")
    if is_deep(statement):
        raise Bad("bad_statement")
    try:
        if statement["_type"] != "https://in-toto.io/Statement/v1" or statement["predicateType"] not in (
            WHOLE,
            REDACTED,
        ):
            raise ValueError("another kind of statement")
        predicate = statement["predicate"]
        own = read_keys(json.dumps({"keys": predicate["keys"]}).encode(), now)
        keys = own if trusted is None else trusted
        given, is_whole = (predicate, *predicate.get("continued", [])), statement["predicateType"] == WHOLE
        jobs = [Given(one) for one in given if is_whole]
        redacted = [Redacted(one) for one in given if not is_whole]
        if not is_whole:
            check_stated(predicate["redaction"])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise Bad("bad_statement") from None
    if trusted is None:
        check_envelope(payload, signatures, keys)
    if redacted:
        return check_redacted(statement, redacted, keys, installation, signers), None
    chain = [
        Link(one.job_id, *judge_sealed(one.records, one.blobs, of_use(keys, "seal"), signers), one.blobs)
        for one in jobs
    ]
    first, report = chain[0], chain[0].report
    digests = {
        "aetherisEventChain": report["event_chain_root_hash"],
        "aetherisEventTree": report["event_tree_root_hash"],
    }
    subject = [{"name": first.job_id, "digest": digests}]
    wrong = {
        "subject_differs": statement.get("subject") != subject,
        "derived_differs": any(as_text(predicate.get(n)) != as_text(v) for n, v in derived(first.job, report).items()),
    }
    found = [finding(rule) for rule, is_wrong in wrong.items() if is_wrong]
    found += [finding(rule) for rule in jobs[0].wrong(first.seal, keys)]
    for one, link in zip(jobs[1:], chain[1:], strict=True):
        found += [finding(rule) | {"job_id": one.job_id} for rule in one.wrong(link.seal, keys)]
    beside = check_chain(chain)
    if installation:
        others = [link.job_id for link in chain if link.report["installation"] != installation]
        found += [finding("other_installation") | {"job_id": job_id} for job_id in others]
    whole = {
        "job_id": first.job_id,
        **report,
        "ok": report["ok"] and not found and not beside,
        "violations": [*found, *report["violations"], *beside],
        "continued": [{"job_id": link.job_id} | {n: link.report[n] for n in SHOWN} for link in chain[1:]],
        "settled_by_hand": [word for link in chain for word in link.words_shown()],
        "trusted": [*keys],
    }
    return whole, first


def as_text(value: Any) -> str:
    """To Python true is 1, and 1.0 too; in this they differ."""
    return json.dumps(value, sort_keys=True)


SHOWN = ("ok", "event_chain_root_hash", "event_tree_root_hash", "installation", "amended")


class Given:
    """What a bundle has of one job."""

    def __init__(self, one: dict[str, Any]) -> None:
        self.job_id, self.inclusion = one["job_id"], one["inclusion"]
        if not isinstance(self.job_id, str) or not isinstance(self.inclusion, str):
            raise TypeError("a text is missing")
        self.records = [read_record(at, record) for at, record in enumerate(one.pop("records"))]
        self.blobs = {name: unbase64(blob, "bad_statement") for name, blob in one["blobs"].items()}

    def wrong(self, seal: Record | None, keys: dict[str, Key]) -> list[str]:
        """The records are this job's, and their seal is in the log of seals."""
        found = (
            ["other_job"] if self.records and self.records[0].log_key != self.job_id.encode(errors="replace") else []
        )
        if seal is None:
            return [*found, "not_sealed"]
        try:
            check_log_of_seals(self.inclusion, seal.value, keys)
        except Bad as error:
            found.append(error.args[0])
        return found


# --- 8. A redacted bundle: what is shown holds as ever. What is left out is named, and what is not judged by that.

UNRULED = {  # types that no rule looks at, but for the chain
    *("decision_snapshot", "state_changed", "state_checkpointed", "effect_confirmed", "confirmation_failed"),
    *("retry_scheduled", "invocation_cancel_requested", "signal_received"),
}
MOST_PLACES = 1_000


class Redacted:
    """What a redacted bundle has of one job: its records up to the seal that counts, some by their hash alone."""

    def __init__(self, one: dict[str, Any]) -> None:
        self.job_id, self.inclusion, self.creation, self.root = (
            one[name] for name in ("job_id", "inclusion", "creation", "installation")
        )
        texts = (self.job_id, self.inclusion, "" if self.root is None else self.root)
        if type(self.creation) is not int or not all(isinstance(text, str) for text in texts):
            raise TypeError("a text or a number is missing")
        self.records = [read_shown(at, record) for at, record in enumerate(one["records"])]

    def report(self, keys: dict[str, Key], signers: list[Signer] | None) -> dict[str, Any]:
        *records, last = self.records or [Record(0, 0, None, [], b"")]
        root = check_writers(self.records, self.creation, self.root)
        left_out = [one for one in self.records if not one.shown]
        types = [one.chained.decode(errors="replace") for one in left_out]
        sealed = last.shown and last.readable and last.chained == b"job_sealed" and not last.claims
        ruled = {*types} <= UNRULED and sealed and last.body.get("amends") is None
        wrong = [(rule, None) for rule in self.wrong_with_seal(records, last, of_use(keys, "seal"))]
        wrong += [(rule, None) for rule in self.wrong_in_log(last, keys)] if ("not_sealed", None) not in wrong else []
        found = [*wrong, *self.wrong_records(ruled)]
        if ruled:
            job, hashes = Job(self.records, signers), hashed(Job(records), {})
            found += [*job.found, *job.ledger, *job.replay, *check_activations(self.records)[0]]
            found += [one for one in hashes.unreadable if one[0] != "missing_blob"]
            found += broken(
                last,
                seal_execution_hash=last.text("execution_hash") != hashes.execution,
                seal_outcome_hash=not hashes.unreadable and last.text("outcome_hash") != hashes.outcome,
                seal_calls=hashes.calls is not None and last.body.get("calls") not in (None, hashes.calls),
            )
        places = {(record.at if record else -1, rule): record for rule, record in found}
        named = zip(left_out[:MOST_PLACES], types, strict=False)
        return {
            "job_id": self.job_id,
            "ok": not places,
            "installation": root,
            "event_chain_root_hash": last.body.get("root") if sealed else None,  # its word: it is not computed
            "event_tree_root_hash": tree(leaves(records)).hex(),
            "event_count": len(records),
            "sealed_at": str(last.body.get("sealed_at")),
            "redacted": {
                "records": len(left_out),
                "types": {kind: types.count(kind) for kind in sorted({*types})},
                "places": [{"index": r.at, "offset": r.offset, "event_id": r.id, "type": kind} for r, kind in named],
                "rules_checked": ruled,
            },
            "violations": [finding(rule, places[at, rule]) for at, rule in sorted(places)],
            "unproven": [finding("unproven_record", record) for record in self.records if record.claims],
            "hidden_values": len({c for one in self.records if b'"$hidden"' in one.value for c in hidden(one.body)}),
        }

    def wrong_records(self, ruled: bool) -> list[Finding]:
        whole = {"not_born", "born_twice", "foreign_record", "bad_reference"}  # said where all rules are judged
        found = check_records(self.records)
        found = [one for one in found if one[1] and (ruled or one[0] not in whole)]
        found = [one for one in found if one[0] == "out_of_order" or (one[1] and one[1].shown)]
        foreign = [one for one in self.records if one.body and one.text("job_id") != self.job_id]
        return [*found, *(("foreign_record", one) for one in foreign)]

    def wrong_with_seal(self, records: list[Record], last: Record, keys: dict[str, Key]) -> Iterator[str]:
        if not last.shown or last.chained != b"job_sealed" or last.claims:
            yield "not_sealed"
            return
        created = records[self.creation] if 0 <= self.creation < len(records) else None
        if created is None or created.chained != b"job_created":
            yield "not_born"
        if not {one.chained for one in records} & {b"job_completed", b"job_failed", b"job_cancelled"}:
            yield "sealed_unfinished"
        key = keys.get(last.text("key_id"))
        if key is None or not is_signed(last, key):
            yield "seal_signature" if key else "seal_unknown_key"
            return
        if refusal := key.refusal(last.text("sealed_at")):
            yield refusal
            return
        if not is_number(last.body.get("chain"), 2):
            yield "seal_chain"
            return
        count, amends = last.body.get("event_count"), last.body.get("amends")
        before = [r for r in records if r.shown and r.chained == b"job_sealed" and r.hash.hex() == amends]
        old = before[0].body.get("event_count") if before else 0
        proved = growth(leaves(records), old) if type(old) is int and 0 < old <= len(records) else None
        if type(count) is not int or count != len(records) or count < 1:
            yield "seal_count"
        elif last.text("tree") != tree(leaves(records)).hex():
            yield "seal_tree"
        elif amends is not None and (proved is None or last.body.get("consistency") != proved):
            yield "seal_consistency"
        if last.text("job_id") != self.job_id:
            yield "other_job"
        if created and created.shown and created.body.get("tenant") != last.body.get("tenant"):
            yield "seal_tenant"

    def wrong_in_log(self, last: Record, keys: dict[str, Key]) -> Iterator[str]:
        try:
            check_log_of_seals(self.inclusion, last.value, keys)
        except Bad as error:
            yield error.args[0]


def read_shown(at: int, one: dict[str, Any]) -> Record:
    if "value_sha256" not in one:
        return read_record(at, one)
    if not {*one} <= {"offset", "headers", "value_sha256", "certificate"} or type(one["offset"]) is not int:
        raise TypeError("another form of a record")
    headers, said = [(name, unbase64(value, "bad_statement")) for name, value in one["headers"]], one["value_sha256"]
    if not {name for name, _ in headers} <= {*COVERED} or not re.fullmatch("[0-9a-f]{64}", said):
        raise ValueError("another header, or no hash")
    record = Record(at, one["offset"], None, headers, b"")
    if record.repeated:
        raise ValueError("a header that comes twice")
    record.shown, record.hash, record.certificate = False, bytes.fromhex(said), one.get("certificate")
    record.readable, record.outdated, record.type = True, False, ""
    return record


def check_stated(said: dict[str, Any]) -> None:
    """What was to be left out, as the bundle says."""
    if {*said} != {"for", "names"} or not all(isinstance(one, str) for one in (said["for"] or "", *said["names"])):
        raise TypeError("of another form")


def check_redacted(
    statement: dict[str, Any],
    jobs: list[Redacted],
    keys: dict[str, Key],
    installation: str | None,
    signers: list[Signer] | None,
) -> dict[str, Any]:
    """The report on a redacted bundle. What it holds is what is shown, and no rule of what is not."""
    first, *earlier = [one.report(keys, signers) for one in jobs]
    digests = {"aetherisEventChain": first["event_chain_root_hash"], "aetherisEventTree": first["event_tree_root_hash"]}
    subject = [{"name": jobs[0].job_id, "digest": digests}]
    found = [finding("subject_differs")] if statement.get("subject") != subject else []
    found += [one | {"job_id": job["job_id"]} for job in earlier for one in job["violations"]]
    if installation:
        others = [job["job_id"] for job in (first, *earlier) if job["installation"] != installation]
        found += [finding("other_installation") | {"job_id": job_id} for job_id in others]
    violations, shown = [*found, *first["violations"]], ("job_id", "ok", "event_tree_root_hash", "installation")
    return first | {
        "ok": not violations,
        "redacted": statement["predicate"]["redaction"] | first["redacted"],
        "violations": violations,
        "continued": [{name: one[name] for name in (*shown, "redacted")} for one in earlier],
        "trusted": [*keys],
    }


# --- 9. One call, by itself: what was disclosed of it, under the root over calls that its job's seal states.

MAX_CALL_BYTES, SALT = 16 * 1024 * 1024, re.compile("[0-9a-f]{32}")
PARTS = ("call", "tool", "version", "output_hash", *OF_END, "args")


def check_call(data: bytes, keys: dict[str, Key]) -> dict[str, Any]:
    """What the proof of one call shows, by these keys."""
    file = stated(data if len(data) <= MAX_CALL_BYTES else b"")
    if file.get("format") != "aetheris-call-proof" or not is_number(file.get("version"), 1):
        raise Bad("bad_proof")
    line, inclusion = unbase64(file.get("seal"), "bad_proof"), file.get("inclusion")
    seal = check_line(line, keys)
    check_log_of_seals(inclusion if isinstance(inclusion, str) else "", line, keys)
    parts = sealed_parts(file, seal)
    call, args = parts["call"], {name[5:]: value for name, value in parts.items() if name.startswith("args.")}
    if "args" in parts and parts["args"] != sorted(args):
        raise Bad("args_differ")
    if "result" in file and not json_hash(file["result"]) == parts.get("output_hash") != "":
        raise Bad("output_hash_mismatch")
    more = {name: parts[name] for name in OF_END if name in parts}
    more |= {"result": file["result"]} if "result" in file else {}
    openings = file.get("openings")
    if not isinstance(openings, list):
        raise Bad("bad_proof")
    commitments = {*hidden(args), *hidden(more)}
    opened = {c: value for one in openings for c, value in [opening(mapping(one), commitments)]}
    return {
        "ok": True,
        **{name: seal[name] for name in ("job_id", "tenant")},
        **{name: call.get(name) for name in ("step", "outcome", "via", "external_id", "ended_at", "records")},
        **{name: parts[name] for name in ("tool", "version", "output_hash") if name in parts},
        **({"args": with_opened(args, opened)} if args or "args" in parts else {}),
        "all_args": "args" in parts,
        **{name: with_opened(value, opened) for name, value in more.items()},
        "not_shown": len(file["hidden"]),
        "hidden_values": len(commitments),
        "opened_values": len(opened),
        "event_count": seal.get("event_count"),
        "event_tree_root_hash": seal.get("tree"),
        "sealed_at": str(seal.get("sealed_at")),
        "key_id": str(seal.get("key_id")),
        "amendment": seal.get("amends") is not None,
        "violations": [],
        "trusted": [*keys],
    }


def sealed_parts(file: dict[str, Any], seal: dict[str, Any]) -> dict[str, Any]:
    """By name, those that are shown: with the digests of the others they are all of a call that the seal states."""
    shown, others, path, index = (file.get(name) for name in ("shown", "hidden", "path", "index"))
    count, parts = file.get("count"), dict[str, Any]()
    for one in listed(shown):
        salt, name, value = one if isinstance(one, list) and len(one) == 3 else ("", "", None)
        known = isinstance(name, str) and (name in PARTS or name.startswith("args.")) and name not in parts
        if not known or not isinstance(salt, str) or not SALT.fullmatch(salt):
            raise Bad("bad_proof")
        parts[name] = value
    if "call" not in parts or not isinstance(others, list) or type(index) is not int or type(count) is not int:
        raise Bad("bad_proof")
    digests = [json_hash(one) for one in listed(shown)]
    if not isinstance(path, list) or len(path) > 64 or not all(map(is_hash, [*digests, *others, *path])):
        raise Bad("bad_proof")
    leaf, steps = parts_leaf([*digests, *others]), [bytes.fromhex(step) for step in path]
    root = root_of(leaf, index, count, steps) if 0 <= index < count else None
    if root is None or root.hex() != seal.get("calls"):
        raise Bad("not_sealed")
    if not isinstance(parts["call"], dict):
        raise Bad("bad_proof")
    return parts


def stated(data: bytes) -> dict[str, Any]:
    try:
        return parse_record(data)
    except Bad:
        raise Bad("bad_proof") from None


def check_line(line: bytes, keys: dict[str, Key]) -> dict[str, Any]:
    """What a seal says that one of the keys signed, in its time."""
    seal = Record(0, 0, None, [], line)
    key = of_use(keys, "seal").get(str(seal.body.get("key_id")))
    if key is None:
        raise Bad("seal_unknown_key")
    if not is_signed(seal, key):
        raise Bad("seal_signature")
    if refusal := key.refusal(str(seal.body.get("sealed_at"))):
        raise Bad(refusal)
    if not is_number(seal.body.get("chain"), 2):
        raise Bad("seal_chain")
    if not all(isinstance(seal.body.get(name), str) for name in ("job_id", "tenant")):
        raise Bad("bad_proof")
    return seal.body


def is_hash(text: Any) -> bool:
    return isinstance(text, str) and re.fullmatch("[0-9a-f]{64}", text) is not None


def opening(one: dict[str, Any], commitments: set[str]) -> tuple[str, Any]:
    """The c of a hidden value, and the value that it was made of: SHA-256("ah1" ␀ salt ␀ its canonical form)."""
    c, salt = str(one.get("c")), str(one.get("salt"))
    with suppress(ValueError, RecursionError, KeyError):
        said = b"\0".join((b"ah1", bytes.fromhex(salt), canonical(one["value"]).encode()))
        if c in commitments and is_hash(salt) and sha256(said).hex() == c:
            return c, one["value"]
    raise Bad("opening_differs")


def with_opened(part: Any, opened: dict[str, Any]) -> Any:
    if isinstance(part, list):
        return [with_opened(inner, opened) for inner in part]
    if not isinstance(part, dict):
        return part
    said = mapping(part.get("$hidden"))
    c, d, k = (said.get(name) for name in ("c", "d", "k"))
    is_named = isinstance(k, str) and re.fullmatch(r"[0-9a-f]{32}(\.[0-9a-f]{32}){0,3}", k)
    if len(part) == 1 and len(said) == 3 and is_hash(c) and is_hash(d) and is_named:
        return opened.get(str(c), part)
    return {name: with_opened(inner, opened) for name, inner in part.items()}


# --- 10. Jobs beside each other, of which one has begun another.

HANDED_DOWN = ("tenant", "submitted_by", "agent", "session", "labels", "options")
LARGE_RESULT = "its result is too large for a record: a child job returns at most 64 KiB"


def begun(job: Job) -> dict[str, Any]:
    """By which call of another job it says that it has begun; {} where it says nothing of the kind."""
    return mapping(job.created.body.get("begun")) if job.created else {}


def told_of(says: dict[str, Any]) -> str:
    """The job that is told how one ends which says this of its beginning; "" where none is."""
    told = says.get("awaited_by")
    return str(mapping(told).get("job_id")) if told is not None else ""


def callers(job: Job, tool: str) -> dict[str, Record]:
    """The nodes of its bodies' calls of a tool that have succeeded, as they were planned first, with those ends."""
    ends = {node: job.success(node) for node in job.planned_calls if job.entry(node, 0).says.get("tool") == tool}
    return {node: end for node, end in ends.items() if end}


def successor(one: Link) -> str:
    """The job that goes on in its place; "" where there is none."""
    completed = one.job.end is not None and one.job.end.type == "job_completed"
    return next((child_id(one.job_id, node) for node in callers(one.job, "jobs.continue") if completed), "")


def end_told(one: Link) -> dict[str, Any] | None:
    """What others are told of how it has ended; None before that."""
    end, said = one.job.end, {"job_id": one.job_id}
    if end is None:
        return None
    if end.type != "job_completed":
        failed = end.type == "job_failed"
        why = end.body.get("error") if failed else end.text("reason") or "cancelled"
        return said | {"status": "failed" if failed else "cancelled", "error": why}
    after, result = successor(one), mapping(end.body.get("result"))
    came = {"result": result["workflow"]} if "workflow" in result else {"error": LARGE_RESULT}
    return said | {"status": "completed"} | ({"continued_as": after} if after else came)


def check_related(jobs: list[Link]) -> list[dict[str, Any]]:
    """What is wrong between jobs: each has begun by a call of another one, is told of its end, or has begun it."""
    known = {one.job_id: one for one in jobs}
    begins = {str(says.get("job_id")) for one in jobs if (says := begun(one.job))}
    found: list[dict[str, Any]] = []
    for one in jobs:
        created, says = one.job.created, begun(one.job)
        if created is None:
            continue
        by, told = known.get(str(says.get("job_id"))), known.get(told_of(says))
        wrong = broken(
            created,
            child_other=not by and not told and one.job_id not in begins,
            child_not_sealed=(by or told) and not one.report["seal"]["ok"],
        )
        wrong += check_begun(one, by, created) if by else []
        found += [finding(rule, record) | {"job_id": one.job_id} for rule, record in wrong]
        heard = check_told(one, told) if told else []
        found += [finding(rule, record) | {"job_id": told_of(says)} for rule, record in heard]
    return found


def check_begun(one: Link, by: Link, created: Record) -> list[Finding]:
    """It follows from a call that has succeeded there, and so does all that it says of itself."""
    says, above, parent = begun(one.job), begun(by.job), by.job.created.body if by.job.created else {}
    replaces = says.get("replaces") is True
    call = callers(by.job, "jobs.continue" if replaces else "jobs.start").get(str(says.get("node_id")))
    founded = call is not None and call.key == says.get("idempotency_key")
    founded = founded and is_of_its_call(created.body, mapping(created.body.get("plan")))
    if founded and replaces:
        founded = one.job_id == successor(by)
    elif founded and call is not None:
        founded = call.body.get("result") == one.job_id
    depth = above.get("depth", 1) if above else 0
    deeper = 0 if replaces and above else 1
    is_as_deep = type(depth) is int and is_number(says.get("depth", 1), depth + deeper)
    waits = told_of(above) if replaces else by.job_id
    is_told = told_of(says) == waits or (not replaces and not told_of(says))
    tools = [json_hash(mapping(body.get("plan")).get("tools")) for body in (created.body, parent)]
    handed = all(json_hash(created.body.get(name)) == json_hash(parent.get(name)) for name in HANDED_DOWN)
    as_handed = bool(parent) and handed and tools[0] == tools[1]
    differs = not (is_as_deep and is_told and as_handed)
    return broken(created, child_unfounded=not founded, child_differs=differs)


def check_told(one: Link, told: Link) -> list[Finding]:
    """What the other one has heard of its end, and its code was told, is how it has ended."""
    name, by_type = f"aetheris.ended.{one.job_id}", told.job.by_type
    signal = next((heard for heard in by_type["signal_received"] if heard.text("correlation_key") == name), None)
    payload = json_hash(signal.body.get("payload")) if signal else None
    found = broken(signal, child_end=payload != json_hash(end_told(one))) if signal else []
    for node in {wait.node: 1 for wait in by_type["job_waiting"] if wait.text("correlation_key") == name}:
        end = told.job.waited.get(node)
        if end is not None and end.type == "wait_completed":
            found += broken(end, child_end=json_hash(end.body.get("payload")) != payload)
    return found


def beside(first: Link, report: dict[str, Any], others: list[tuple[dict[str, Any], Link | None]]) -> dict[str, Any]:
    """The report on a job, with those on the jobs beside it, and what is wrong between them all."""
    jobs = [first, *(link for _, link in others if link)]
    found = [{"job_id": one.get("job_id", ""), **wrong} for one, _ in others for wrong in one["violations"]]
    found += check_related(jobs)
    names, known = ("job_id", *SHOWN[:4]), {one.job_id for one in jobs}
    children = [child_id(first.job_id, node) for node in callers(first.job, "jobs.start")]
    return report | {
        "ok": report["ok"] and not found and all(one["ok"] for one, _ in others),
        "violations": [*report["violations"], *found],
        "with": [{name: one.get(name) for name in names} for one, _ in others],
        "begun": [{"job_id": child, "shown": child in known} for child in children],
    }


class NotBeside(Exception):
    """Jobs that can't be held against each other."""


def check_jobs(files: list[bytes], *by: Any) -> dict[str, Any]:
    """The report on a bundle's job, held against those of the bundles beside it.

    Raises:
        Bad: the first bundle can't be read.
        NotBeside: one is redacted, or two are of one job.
    """
    judged: list[tuple[dict[str, Any], Link | None]] = []
    for at, data in enumerate(files):
        try:
            report, link = check_job(data, *by)
        except Bad as error:
            if not at:
                raise
            judged.append(({"ok": False, "violations": [finding(error.args[0])]}, None))
            continue
        if link is None or any(other and other.job_id == link.job_id for _, other in judged):
            raise NotBeside("redacted, so that what it says of others is not shown, or a job is given twice")
        judged.append((report, link))
    report, first = judged[0]
    return report if first is None else beside(first, report, judged[1:])


def main(arguments: list[str]) -> int:
    self_signed, redacted = "--self-signed" in arguments, "--redacted" in arguments
    arguments = [one for one in arguments if one not in ("--self-signed", "--redacted")]
    pairs = list(zip(arguments[1::2], arguments[2::2], strict=False))
    given = dict(pair for pair in pairs if pair[0] != "--with")
    others = [path for name, path in pairs if name == "--with"]
    known = {"--installation", "--signers", "--at"} | ({"--public-key"} if not self_signed else set())
    if len(arguments) != 1 + 2 * (len(given) + len(others)) or not given.keys() <= known:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        now = moment(given["--at"]) if "--at" in given else datetime.now(UTC)
        trusted = read_keys(Path(given["--public-key"]).read_bytes(), now) if "--public-key" in given else None
        signers = read_signers(Path(given["--signers"]).read_bytes()) if "--signers" in given else None
        files = [read_file(path) for path in (arguments[0], *others)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, Bad) as error:
        print(f"can't be used: {type(error).__name__}", file=sys.stderr)
        return 2
    try:
        if others:
            report: dict[str, Any] = check_jobs(files, trusted, given.get("--installation"), signers, now)
        elif files[0][:1] == b"{":
            report = check_call(files[0], trusted or {})
        else:
            report = check_bundle(files[0], trusted, given.get("--installation"), signers, now)
    except Bad as error:
        report = {"ok": False, "violations": [finding(error.args[0])]}
    except NotBeside as error:
        print(f"--with: {error}", file=sys.stderr)
        return 2
    if trusted is None and not self_signed:
        if not report["violations"]:
            print("unchanged since sealed by whoever holds these keys", file=sys.stderr)
        report |= {"ok": False, "violations": [*report["violations"], finding("no_public_key")]}
    if "redacted" in report and not redacted:
        report |= {"ok": False, "violations": [*report["violations"], finding("redacted")]}
    print(json.dumps(report, indent=1))
    return 0 if report["ok"] else 1


def read_file(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(MAX_BYTES + 1024)  # what is longer is no bundle


if __name__ == "__main__":
    gc.disable()  # there are no circles here, and it would walk all records ever again
    sys.exit(main(sys.argv[1:]))
