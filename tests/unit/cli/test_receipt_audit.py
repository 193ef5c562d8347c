"""What `seals audit --receipts` believes: nothing that is not signed, and not in the log; each lie has its name."""

import base64
import json
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.cli.commands import seals
from aetheris.cli.receipt_audit import ReceiptAudit
from aetheris.cli.receipts import keep
from aetheris.proofs.chain import EventChain
from aetheris.proofs.claims import line_leaf
from aetheris.proofs.log_lines import answers_payload, interim_payload, receipt_hash, sign_line
from aetheris.proofs.merkle import Tree
from aetheris.proofs.notes import ConsistencyProof, InclusionProof, sign_checkpoint
from aetheris.proofs.records import RawRecord
from aetheris.proofs.trust import LOG, SEAL, TrustedKey, write_keys
from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.submission_numbers import Receipt, SubmissionNumber
from aetheris.runtime.keys.records import RecordKeys
from aetheris.sdk.client import ApiError, ResourceNotFound, Submitted, Unreachable
from tests.testkit.histories import created
from tests.unit.gateway.test_message_signer import keys_of

SEALS, CHECKPOINTS, STRANGER = (Ed25519PrivateKey.generate() for _ in range(3))
KEYS = [TrustedKey(SEALS.public_key(), use=SEAL), TrustedKey(CHECKPOINTS.public_key(), use=LOG)]
GIVEN = datetime(2026, 1, 1, tzinfo=UTC)
NUMBER = SubmissionNumber(gateway="a" * 32, partition=0, number=1, at=GIVEN.isoformat(), salt="b" * 32)


def line_of(payload: Mapping[str, Any], key: Ed25519PrivateKey = SEALS) -> bytes:
    return json.dumps(sign_line(payload, key), separators=(",", ":")).encode()


@dataclass
class ScriptedLog:
    """A gateway's answers, made of lines that may lie in the log, or not."""

    lines: list[bytes] = field(default_factory=list[bytes])
    shown: list[bytes] = field(default_factory=list[bytes])
    interim: list[bytes] = field(default_factory=list[bytes])
    records: list[RawRecord] | None = None
    tenant: str = "t"
    down: set[str] = field(default_factory=set[str])
    """Jobs of whose streams nothing is told."""
    asked: int = 0

    def limits(self) -> dict[str, Any]:
        return {"tenant": self.tenant}

    @property
    def tree(self) -> Tree:
        tree = Tree()
        for line in self.lines:
            tree.append(line_leaf(line))
        return tree

    def checkpoint(self) -> str:
        return sign_checkpoint("a.example/seals", len(self.lines), self.tree.root(), CHECKPOINTS)

    def consistency(self, old: int) -> str:
        if old > len(self.lines):
            raise ResourceNotFound("not_logged", "no such size")
        return ConsistencyProof(old, tuple(self.tree.consistency(old, len(self.lines))), self.checkpoint()).dumps()

    def _proved(self, lines: list[bytes]) -> list[dict[str, str]]:
        found: list[dict[str, str]] = []
        for line in lines:
            at = self.lines.index(line) if line in self.lines else 0
            proof = InclusionProof(at, tuple(self.tree.inclusion(at, len(self.lines))), self.checkpoint())
            found.append({"line": line.decode(), "proof": proof.dumps()})
        return found

    def answers(self, _receipt: str) -> list[dict[str, str]]:
        return self._proved(self.shown)

    def interim_seals(self, _job_id: str) -> list[dict[str, str]]:
        return self._proved(self.interim)

    def raw_stream(self, job_id: str) -> dict[str, Any]:
        self.asked += 1
        if job_id in self.down:
            raise Unreachable("redis_unavailable", "Redis does not answer")
        if self.records is None or self.tenant != "t":
            raise ResourceNotFound("unknown_job", "no job")
        return {"job_id": job_id, "keys": [], "records": list(map(_json, self.records))}


def _json(record: RawRecord) -> dict[str, Any]:
    def text(data: bytes) -> str:
        return base64.b64encode(data).decode()

    headers = [[name, text(value)] for name, value in record.headers]
    return {"offset": record.offset, "key": text(record.key or b""), "headers": headers, "value": text(record.value)}


@dataclass
class Case:
    folder: Path
    keys: RecordKeys
    log: ScriptedLog

    def audit(self, after: timedelta = timedelta(minutes=1)) -> dict[str, Any]:
        now = GIVEN + after
        return ReceiptAudit(cast("Any", self.log), self.folder, KEYS, self.keys.roots, now).run()

    def rules(self, after: timedelta = timedelta(minutes=1)) -> list[str]:
        return [one["rule"] for one in self.audit(after)["violations"]]


def receipt_of(keys: RecordKeys, job_id: str = "job-1", request_hash: str = "r") -> str:
    body = Receipt(job_id=job_id, by="ann", tenant="t", request_hash=request_hash, receipt=NUMBER)
    value = body.model_dump_json(exclude_none=True).encode()
    said = Draft(Topic.JOBS_COMMANDS, job_id.encode(), value, (("ce_type", b"io.aetheris.receipt.v1"),))
    return keys.message(said).value.decode()


def answer(
    said: str = "born", *, key: Ed25519PrivateKey = SEALS, receipt: str | None = None, job_id: str = "job-1"
) -> bytes:
    named = receipt or receipt_hash(job_id, "t", "r", NUMBER.model_dump())
    at = (GIVEN + timedelta(seconds=5)).isoformat()
    return line_of(answers_payload(partition=0, up_to=9, answers=[(named, said)], at=at, salt="s"), key)


def birth(**other: Any) -> RawRecord:
    named = {"job_id": "job-1", "tenant": "t", "request_hash": "r", "receipt": NUMBER, **other}
    made = draft(Topic.JOBS_EVENTS, created().model_copy(update=named), key="job-1", id="e", source="s", time="t")
    return RawRecord(0, made.key, made.headers, made.value)


def interim_of(records: list[RawRecord], *, after: timedelta = timedelta(), tree: str | None = None) -> bytes:
    chain = EventChain()
    for record in records:
        chain.add(record)
    said = [("job-1", len(records), tree or chain.tree(len(records)))]
    return line_of(interim_payload(tenant="t", partition=0, jobs=said, at=(GIVEN + after).isoformat(), salt="s"))


@pytest.fixture
def case(tmp_path: Path) -> Case:
    keys, folder = keys_of(tmp_path), tmp_path / "receipts"
    keep(Submitted(job_id="job-1", status="submitted", receipt=receipt_of(keys)), folder)
    line = answer()
    return Case(folder, keys, ScriptedLog([b"another", line], [line], [], [birth()]))


def test_an_open_job_is_open_until_nothing_is_said_of_it_for_too_long(case: Case) -> None:
    assert case.audit() == {"ok": True, "receipts": 1, "open": 1, "not_asked": [], "violations": []}
    assert case.rules(timedelta(hours=3)) == ["never_ended"]
    line = interim_of([birth()], after=timedelta(hours=2))
    case.log.lines.append(line)
    case.log.interim.append(line)
    assert case.rules(timedelta(hours=3)) == []


def test_what_no_line_answers_is_pending_and_then_left_out(case: Case) -> None:
    case.log.shown.clear()
    assert case.audit()["pending"] == 1
    assert case.rules(timedelta(minutes=11)) == ["left_out"]


@pytest.mark.parametrize("lie", ["stranger", "not logged", "other receipt"])
def test_a_line_that_is_not_signed_or_logged_or_is_of_another_answers_nothing(case: Case, lie: str) -> None:
    lied = {
        "stranger": answer(key=STRANGER),
        "not logged": answer("same_as"),
        "other receipt": answer(receipt="c" * 64),
    }[lie]
    case.log.shown[:] = [lied]
    if lie != "not logged":
        case.log.lines.append(lied)
    assert case.rules(timedelta(minutes=11)) == ["left_out"]


def test_who_reads_it_is_told_which_job_and_by_which_receipt(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seals, "connected", lambda _data: nullcontext(case.log))
    keys, roots = case.folder / "seal.pub", [part for root in case.keys.roots for part in ("--installation", root)]
    keys.write_text(write_keys(KEYS))
    done = CliRunner().invoke(
        app, ["seals", "audit", "--receipts", str(case.folder), "--public-key", str(keys), *roots]
    )
    (receipt,) = case.folder.glob("*.receipt.json")
    assert done.exit_code == 1
    assert f"never_ended: job job-1, by {receipt.name}: " in done.output


def test_a_job_that_is_said_to_be_created_and_is_not_there_is_left_out(case: Case) -> None:
    case.log.records = None
    assert case.rules() == ["left_out"]


def test_a_receipt_that_was_given_for_a_void_number_is_left_out(case: Case) -> None:
    line = answer("void")
    case.log.lines[1], case.log.shown[0] = line, line
    assert case.rules() == ["left_out"]


@pytest.mark.parametrize(
    ("said", "rules", "after"),
    [
        (["waits"], [], timedelta(minutes=1)),
        (["waits"], ["left_out"], timedelta(days=1)),
        (["void", "waits"], ["left_out"], timedelta(minutes=1)),
        (["refused"], ["refused"], timedelta(minutes=1)),
    ],
)
def test_a_word_that_makes_no_job_is_no_end_of_it(
    case: Case, said: list[str], rules: list[str], after: timedelta
) -> None:
    case.log.shown[:] = map(answer, said)
    case.log.lines += case.log.shown
    assert case.rules(after) == rules


def test_what_is_dated_ahead_keeps_no_job_open(case: Case) -> None:
    line = interim_of([birth()], after=timedelta(days=100))
    case.log.lines.append(line)
    case.log.interim.append(line)
    assert case.rules(timedelta(hours=3)) == ["never_ended"]
    assert case.rules(-timedelta(hours=1)) == ["bad_receipt"], "nor a receipt itself"


def test_a_proof_from_another_tree_of_the_same_key_is_none(case: Case) -> None:
    """The log is honest where it is looked at, and what was left out is said to be refused elsewhere."""
    lied = answer("same_as")
    side = ScriptedLog([lied], [lied])
    shown = side.answers("")
    case.log.answers = lambda _receipt: shown  # type: ignore[method-assign]
    assert case.rules(timedelta(minutes=11)) == ["left_out"]


@pytest.mark.parametrize("other", [{"request_hash": "x"}, {"tenant": "u"}, {"receipt": None}])
def test_a_job_that_begins_otherwise_is_rewritten(case: Case, other: dict[str, Any]) -> None:
    case.log.records = [birth(**other)]
    assert case.rules() == ["rewritten"]


def test_what_was_seen_once_is_held_against_what_is_shown_later(case: Case) -> None:
    records = [birth(), birth()]
    line = interim_of(records)
    case.log.records = records
    case.log.lines.append(line)
    case.log.interim.append(line)
    assert case.rules() == []
    case.log.interim.clear()  # nobody shows it any more
    case.log.records = records[:1]
    assert case.rules() == ["rewritten"]
    headers = tuple((name, b"2020" if name == "ce_time" else value) for name, value in records[1].headers)
    case.log.records = [records[0], RawRecord(0, records[1].key, headers, records[1].value)]
    assert case.rules() == ["rewritten"]


def test_what_was_kept_is_forgotten_by_no_lie_about_the_log(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [birth(), birth()]
    line = interim_of(records)
    case.log.records = records
    case.log.lines.append(line)
    case.log.interim.append(line)
    assert case.rules() == []
    kept = (case.folder / "job-1.seen.json").read_text()
    case.log.interim.clear()
    case.log.records = records[:1]
    case.log.lines.append(b"more")
    honest, asked = case.log.consistency, list[int]()

    def lies(old: int) -> str:
        """But for the first question, which is about the checkpoint that was kept."""
        asked.append(old)
        return honest(old) if len(asked) == 1 else f"old {old}\n\nrubbish"

    with monkeypatch.context() as patched:
        patched.setattr(case.log, "consistency", lies)
        assert case.rules() == ["log_rewritten", "rewritten"]
    assert (case.folder / "job-1.seen.json").read_text() == kept
    assert case.rules() == ["rewritten"]


@pytest.mark.parametrize("part", ["line", "proof"])
@pytest.mark.parametrize("lie", ["{}\ud800", '{{"a":"\ud800"}}', "\ud800"])
def test_a_line_that_is_no_text_answers_nothing_and_ends_nothing(case: Case, part: str, lie: str) -> None:
    (good,) = case.log.answers("")
    case.log.answers = lambda _receipt: [good | {part: lie.format(good[part])}]  # type: ignore[method-assign]
    assert case.rules(timedelta(minutes=11)) == ["left_out"]


def test_a_log_that_lost_what_it_had_is_rewritten(case: Case) -> None:
    assert case.rules() == []
    case.log.lines[0] = b"something else"
    assert case.rules() == ["log_rewritten"]
    del case.log.lines[0]
    assert "log_rewritten" in case.rules()


def test_a_receipt_that_no_gateway_signed_is_none(case: Case) -> None:
    (path,) = case.folder.glob("*.receipt.json")
    honest = path.read_text()
    others = ('"number":1', '"number":2'), ('"request_hash":"r"', '"request_hash":"x"')
    for forged in ("{}", "no JSON", *(honest.replace(*other) for other in others)):
        path.write_text(forged)
        assert case.rules() == ["bad_receipt"]


def test_by_another_tenants_token_it_is_said_that_nothing_is_told_and_not_that_it_is_left_out(case: Case) -> None:
    case.log.tenant = "u"
    found = case.audit()
    assert (found["ok"], found["not_told"], found["violations"]) == (False, 1, [])
    assert [(one["job_id"], one["code"]) for one in found["not_asked"]] == [("job-1", "other_tenant")]
    assert "tenant t" in found["not_asked"][0]["message"]
    assert "tenant u" in found["not_asked"][0]["message"]


def test_who_lies_about_the_tokens_tenant_hides_nothing_as_if_it_were_well(case: Case) -> None:
    case.log.records = None
    case.log.limits = lambda: {"tenant": "u"}  # type: ignore[method-assign]
    assert not case.audit()["ok"]


def several(case: Case, *jobs: str) -> None:
    """Further receipts of jobs that are there, each answered."""
    for job_id in jobs:
        keep(Submitted(job_id=job_id, status="submitted", receipt=receipt_of(case.keys, job_id)), case.folder)
        line = answer(job_id=job_id)
        case.log.lines.append(line)
        case.log.shown.append(line)


def test_what_is_not_told_of_one_keeps_nothing_of_the_others_back(case: Case) -> None:
    several(case, "job-0", "job-2")
    case.log.down = {"job-0"}
    case.log.records = [birth()]
    found = case.audit()
    assert (found["ok"], found["receipts"], found["open"], found["not_told"]) == (False, 3, 1, 1)
    assert [(one["job_id"], one["code"]) for one in found["not_asked"]] == [("job-0", "redis_unavailable")]
    assert [(one["rule"], one["job_id"]) for one in found["violations"]] == [("rewritten", "job-2")]


def test_where_nobody_answers_any_more_nobody_is_asked_without_end(case: Case) -> None:
    jobs = [f"job-{number}" for number in range(2, 9)]
    several(case, *jobs)
    case.log.down = {"job-1", *jobs}
    found = case.audit()
    assert (found["ok"], found["receipts"], found["not_told"]) == (False, 8, 8)
    assert [one["job_id"] for one in found["not_asked"]] == ["job-1", *jobs]
    assert case.log.asked == 3


@pytest.mark.parametrize("what", ["answers", "interim_seals", "raw_stream"])
@pytest.mark.parametrize("answered", [None, [], {}, {"records": [1], "keys": [], "job_id": "job-1"}, [1]])
def test_an_answer_that_is_none_is_named_and_ends_nothing(case: Case, what: str, answered: Any) -> None:
    several(case, "job-2")
    setattr(case.log, what, lambda *_: answered)
    found = case.audit(timedelta(minutes=11))
    assert (found["receipts"], found["ok"]) == (2, False)


@pytest.mark.parametrize("what", ["checkpoint", "answers", "interim_seals", "raw_stream"])
def test_a_question_that_is_refused_is_named_and_ends_nothing(case: Case, what: str) -> None:
    def refused(*_: Any) -> Any:
        raise ApiError("missing_role", "this needs the role audit")

    setattr(case.log, what, refused)
    found = case.audit()
    assert (found["receipts"], found["ok"]) == (1, False)
    assert {one["code"] for one in found["not_asked"]} == {"missing_role"}
    assert found["violations"] == []


@pytest.mark.parametrize("content", [b"", b"[{", b"\xff", b"{}", b"[1]", b'[{"line":1,"proof":2}]', b"[{}]", None])
def test_what_was_seen_before_and_cannot_be_read_is_named_each_time_and_ends_nothing(
    case: Case, content: bytes | None
) -> None:
    several(case, "job-2")
    case.log.records = [birth()]
    torn = case.folder / "job-1.seen.json"
    if content is None:
        torn.mkdir()
    else:
        torn.write_bytes(content)
    for _ in range(2):
        found = case.audit()
        named = [(one["rule"], one["job_id"], one["receipt"]) for one in found["violations"]]
        assert ("unreadable", "job-1", "job-1.seen.json") in named
        assert (found["open"], found["ok"]) == (1, False), "the job itself is judged by what is shown of it now"
        assert found["rewritten"] == 1, "and so are the others"


@pytest.mark.parametrize("content", [b"", b"\xff", b"a.example/seals\n1\n", None])
def test_a_checkpoint_that_cannot_be_read_is_named_each_time_and_is_no_rewritten_log(
    case: Case, content: bytes | None
) -> None:
    kept = case.folder / "checkpoint"
    if content is None:
        kept.mkdir()
    else:
        kept.write_bytes(content)
    for _ in range(2):
        found = case.audit()
        assert [one["rule"] for one in found["violations"]] == ["unreadable"]
        assert found["open"] == 1


def test_what_lies_among_the_receipts_and_is_none_is_named_and_ends_nothing(case: Case) -> None:
    (case.folder / "a.receipt.json").mkdir()
    (case.folder / "b.receipt.json").write_bytes(b"\xff\xfe")
    (case.folder / "c.receipt.json").symlink_to(case.folder / "c.receipt.json")
    with (case.folder / "d.receipt.json").open("wb") as file:
        file.truncate(17 * 1024 * 1024)
    (case.folder / "notes.txt").write_text("mine")
    found = case.audit()
    assert (found["open"], found["bad_receipt"], found["ok"]) == (1, 4, False)
    assert [one["receipt"] for one in found["violations"]] == [f"{name}.receipt.json" for name in "abcd"]


SENT: dict[str, Any] = {
    "plan": {"nodes": [{"id": "a", "tool": "pay", "args": {"to": "ann", "amount": 5.0}, "depends_on": []}]},
    "options": {},
}


def recorded(**node: Any) -> dict[str, Any]:
    """The plan as a gateway pins it, with a default in the arguments."""
    args = {"to": "ann", "amount": 5, "currency": "EUR"}
    return {"tools": {}, "nodes": [{"id": "a", "kind": "tool", "tool": "pay", "args": args, **node}]}


def sent(tmp_path: Path, created_as: Mapping[str, Any], of: Mapping[str, Any] = SENT, **other: Any) -> list[str]:
    """The rules that are broken, where SENT was kept beside its receipt."""
    keys, folder, named = keys_of(tmp_path), tmp_path / "receipts", digest(dict(of))
    value = receipt_of(keys, request_hash=named)
    keep(Submitted(job_id="job-1", status="submitted", receipt=value), folder, json.dumps(SENT).encode())
    line = answer(receipt=receipt_hash("job-1", "t", named, NUMBER.model_dump()))
    log = ScriptedLog([line], [line], [], [birth(plan=created_as, request_hash=named, **other)])
    return Case(folder, keys, log).rules()


@pytest.mark.parametrize(
    ("made", "rules"),
    [
        (recorded(), []),
        (recorded(tool="refund"), ["not_as_sent"]),
        (recorded(args={"to": "ann", "amount": 6}), ["not_as_sent"]),
        (recorded(args={"to": "ann"}), ["not_as_sent"]),
        (recorded(irreversible=True), ["not_as_sent"]),
        ({"tools": {}, "nodes": [*recorded()["nodes"], *recorded(id="b")["nodes"]]}, ["not_as_sent"]),
        ({"nodes": 1}, ["not_as_sent"]),
    ],
)
def test_a_job_whose_plan_is_not_the_one_that_was_sent_is_named(
    tmp_path: Path, made: dict[str, Any], rules: list[str]
) -> None:
    assert sent(tmp_path, made) == rules


def test_a_receipt_of_another_request_is_named(tmp_path: Path) -> None:
    assert sent(tmp_path, recorded(), {**SENT, "session": "s"}) == ["not_as_sent"]


def test_so_is_a_job_for_another_agent(tmp_path: Path) -> None:
    assert sent(tmp_path, recorded(), agent="mallory") == ["not_as_sent"]


def test_what_is_hidden_is_not_compared(tmp_path: Path) -> None:
    hidden = recorded(args={"to": {"$hidden": {"c": "0", "d": "1", "k": "2"}}, "amount": 5})
    assert sent(tmp_path, hidden, {"of": "the hidden form"}) == []
    hidden["nodes"][0]["args"]["amount"] = 6
    assert sent(tmp_path, hidden, {"of": "the hidden form"}) == ["not_as_sent"]
