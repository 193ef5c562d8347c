"""check_bundle.py before what strangers append, and before bundles that are made to mislead or to stop it."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aetheris.proofs import merkle
from aetheris.proofs.evidence import record_json
from aetheris.proofs.records import RawRecord
from aetheris.proofs.seals import sign
from aetheris.protocol.messages import events as ev
from tests.testkit.body_histories import FLOW, body, call, ended, first, named, over
from tests.testkit.evidence import KEY, TRUSTED, amend, bundle_of, sealed
from tests.testkit.forged_bundles import envelope_of, repacked, resigned
from tests.testkit.histories import JOB, about
from tests.testkit.proof_histories import clean
from tests.testkit.tamperings import Records, at, body_at, edit, forged, put_behind, renumbered, sealed_anew
from tests.unit.proofs.test_amendments import JUNK, unsure
from tests.unit.proofs.test_bodies_three_ways import ONE, TWO, raw, told
from tests.unit.proofs.test_check_bundle import checked, load, saved

PAY: dict[str, Any] = {"args": TWO, "tool": "pay"}
ALLOWED = about(
    ev.PolicyAllowed, named(TWO, "pay"), args=TWO, tool="pay", args_hash="0" * 64, tool_version="1", rule="r"
)
FLOWS = [
    FLOW,
    body("b1"),
    call("b1", ONE),
    first("b1", "t1", ONE),
    ended("t1", ONE, result={"n": 1}),
    call("b1", **PAY),
    ALLOWED,
    first("b1", "t2", **PAY),
    ended("t2", result=1, **PAY),
    over("b1"),
    ev.JobCompleted(job_id=JOB),
]
"""A workflow's job: its body makes two calls, of which the second can't be undone."""


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    path = tmp_path / "seal.pub"
    path.write_text(TRUSTED[0].to_json()["public_key"])
    return path


def workflow() -> Records:
    return list(raw(told(*FLOWS)))


def said_of(records: Records, tmp_path: Path, pem: Path) -> tuple[int, str]:
    """(exit code, by which rule it is refused) of the bundle that its operator makes of these."""
    answer = checked(saved(tmp_path, forged(sealed_anew(records))), "--public-key", str(pem))
    return answer.returncode, " ".join(answer.stderr.split()[1:2])


def test_calls_that_a_body_plans_are_calls_of_its_job(tmp_path: Path, pem: Path) -> None:
    assert said_of(workflow(), tmp_path, pem) == (0, "")


def unplanned(records: Records) -> None:
    del records[at(records, "call_planned", 1)]


def planned_by_a_stranger(records: Records) -> None:
    edit(records, "call_planned", 1, word="0" * 64)


def planned_out_of_turn(records: Records) -> None:
    """By a word of the body's that comes later than the next."""
    edit(records, "call_planned", 0, word=body_at(records, at(records, "call_planned", 1))["word"])


def not_allowed(records: Records) -> None:
    del records[at(records, "policy_allowed")]


@pytest.mark.parametrize("change", [unplanned, planned_by_a_stranger, planned_out_of_turn, not_allowed])
def test_a_call_of_a_body_is_planned_by_its_words_and_permitted(
    change: Callable[[Records], None], tmp_path: Path, pem: Path
) -> None:
    records = workflow()
    change(records)
    records = renumbered(records)
    assert said_of(records, tmp_path, pem) == (1, "success_without_valid_start")


def test_a_bodys_call_succeeds_once(tmp_path: Path, pem: Path) -> None:
    again = told(*FLOWS[:-2], first("b1", "t3", token=2, **PAY), ended("t3", result=2, **PAY), *FLOWS[-2:])
    assert said_of(list(raw(again)), tmp_path, pem) == (1, "second_success")


@pytest.mark.parametrize("value", [b"\xff", b"", b"[]", b'{"a":1,"a":2}', b'{"a":"\\ud800"}', b"[" * 300, b"{}" * 9])
def test_what_lies_behind_the_seal_refuses_nothing_whatever_it_is(value: bytes, tmp_path: Path, pem: Path) -> None:
    records = sealed(clean()).records
    last = records[-1]
    twice = (*last.headers, *last.headers)
    junk = [
        RawRecord(last.offset + 1, last.key, last.headers, value),
        RawRecord(last.offset + 2, last.key, twice, b"{}"),
    ]

    def change(statement: dict[str, Any]) -> None:
        statement["predicate"]["records"] += map(record_json, junk)

    answer = checked(saved(tmp_path, resigned(bundle_of(records), change)), "--public-key", str(pem))
    assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.parametrize("value", [b"\xff", b"[]", b'{"a":1,"a":2}', b'{"a":"\\ud800"}'])
def test_what_can_not_be_read_is_not_sealed(value: bytes, tmp_path: Path, pem: Path) -> None:
    records = list(clean().records)
    records = put_behind(records, 2, RawRecord(0, records[2].key, records[2].headers, value))
    assert said_of(records, tmp_path, pem) == (1, "undecodable")


@pytest.mark.parametrize("name", JUNK)
def test_what_an_amendment_is_over_too_refuses_nothing_and_permits_nothing(
    name: str, tmp_path: Path, pem: Path
) -> None:
    log = unsure()
    JUNK[name](log)
    log.finish("n1", via="late")
    amend(log)
    answer = checked(saved(tmp_path, bundle_of(log.records)), "--public-key", str(pem))
    assert (answer.returncode, answer.stderr) == (0, "")


def test_a_seal_is_of_the_job_that_it_names(tmp_path: Path, pem: Path) -> None:
    records = sealed(clean()).records
    said = {name: value for name, value in json.loads(records[-1].value).items() if name not in ("signature", "key_id")}
    records[-1] = RawRecord(
        *(records[-1].offset, records[-1].key, records[-1].headers),
        json.dumps(dict(sign({**said, "job_id": "another"}, KEY))).encode(),
    )
    answer = checked(saved(tmp_path, forged(records)), "--public-key", str(pem))
    assert (answer.returncode, answer.stderr.split()[1]) == (1, "foreign_record")


def test_a_seals_time_names_its_zone(tmp_path: Path, pem: Path) -> None:
    answer = checked(
        saved(tmp_path, forged(sealed(clean(), sealed_at="2026-01-01T00:00:00").records)), "--public-key", str(pem)
    )
    assert (answer.returncode, answer.stderr.split()[1]) == (1, "not_sealed")


@pytest.mark.parametrize("change", [lambda one: one + b"\0", lambda one: one[:-1], lambda one: one[:0]])
def test_a_signature_has_its_64_bytes_and_no_other(change: Callable[[bytes], bytes], tmp_path: Path, pem: Path) -> None:
    data = bundle_of(sealed(clean()).records)
    (one,) = envelope_of(data)["signatures"]
    one["sig"] = base64.b64encode(change(base64.b64decode(one["sig"]))).decode()
    answer = checked(saved(tmp_path, repacked(data, signatures=[one])), "--public-key", str(pem))
    assert (answer.returncode, answer.stderr[:8]) == (1, "refused:")


def test_a_checkpoint_of_any_text_is_read_in_time(tmp_path: Path, pem: Path) -> None:
    def change(statement: dict[str, Any]) -> None:
        statement["predicate"]["inclusion"] += "\u2014 a " * 40_000

    answer = checked(saved(tmp_path, resigned(bundle_of(sealed(clean()).records), change)), "--public-key", str(pem))
    assert answer.returncode == 0, "lines that are none say nothing"


def test_no_file_is_read_without_end() -> None:
    answer = checked(Path("/dev/zero"), "--self-signed")
    assert (answer.returncode, answer.stderr.split()[1]) == (1, "bad_zip")


def test_what_a_bundle_says_of_itself_moves_no_cursor(tmp_path: Path) -> None:
    job = "job-1\nholds: everything\x1b[2J"
    answer = checked(saved(tmp_path, forged(sealed(clean(job)).records)), "--self-signed")
    assert answer.returncode == 0, answer.stderr
    assert "\x1b" not in answer.stdout
    assert answer.stdout.splitlines()[0].startswith("holds: job-1\\nholds: everything\\x1b[2J, ")


def test_its_tree_is_that_of_the_others_over_every_beginning() -> None:
    script, tree = load(), merkle.Tree()
    hashes = [bytes([one]) * 32 for one in range(70)]
    levels = script.grow(hashes)
    for count, one in enumerate(hashes, 1):
        tree.append(one)
        assert script.tree_root(levels, count) == tree.root()
