"""The corpus of tamperings, of who signs envelopes and leaves records out: what is left out, and what is shown."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

from aetheris.proofs import RawRecord
from aetheris.proofs.evidence import judge
from aetheris.proofs.records import COVERED
from aetheris.proofs.redacted_records import Redaction
from tests.testkit.evidence import TRUSTED, evidence_of, inclusion, redacted_of
from tests.testkit.forged_bundles import resigned, statement_in
from tests.testkit.refused import record_json
from tests.testkit.tamperings import (
    FINISHED,
    STARTED,
    Records,
    Statement,
    again,
    at,
    base64_of,
    by_envelope,
    drop,
    history,
    put_behind,
    sealed_anew,
    tampered,
)

Shown = dict[str, Any]


def by_redactor(base: str, names: str, *rules: str) -> Callable[[Callable[[Statement], object]], object]:
    """Changes the statement of a redacted bundle, and signs it again."""

    def take(change: Callable[[Statement], object]) -> Callable[[Statement], object]:
        def make() -> bytes:
            return resigned(redacted_of(sealed_anew(history(base)), *names.split()), change)

        tampered(change.__name__, "redactor", base, rules, make)
        return change

    return take


def by_operator_for_auditor(base: str, *rules: str) -> Callable[[Callable[[Records], Records | None]], object]:
    """Changes the records, seals them anew, and makes of them what the verifier would not make."""

    def take(change: Callable[[Records], Records | None]) -> Callable[[Records], Records | None]:
        def make() -> bytes:
            changed = history(base)
            records = sealed_anew(change(changed) or changed)
            return resigned(redacted_of(sealed_anew(history(base)), audience="auditor"), lambda one: _put(one, records))

        tampered(change.__name__, "operator", base, rules, make)
        return change

    return take


def _put(statement: Statement, records: Records) -> None:
    """What would be shown of these records to an auditor."""
    redaction, report = Redaction.of((), "auditor"), judge(records, TRUSTED, {}.__getitem__).report
    shown = [_stub(one) if redaction.leaves_out(one) else record_json(one) for one in records]
    statement["predicate"] |= {"records": shown, "inclusion": evidence_of(records).inclusion, "creation": 0}
    digest = {
        "aetherisEventChain": report.event_chain_root_hash,
        "aetherisEventTree": report.event_tree_root_hash,
    }
    statement["subject"] = [{"name": statement["predicate"]["job_id"], "digest": digest}]


def _stub(record: RawRecord) -> Shown:
    headers = [[name, base64_of(value)] for name, value in record.headers if name in COVERED]
    value_hash = hashlib.sha256(record.value).hexdigest()
    return {"offset": record.offset, "headers": headers, "value_sha256": value_hash}


def records_of(statement: Statement) -> list[Shown]:
    return statement["predicate"]["records"]


def left_out(statement: Statement, number: int = 0) -> Shown:
    return [one for one in records_of(statement) if "value_sha256" in one][number]


def set_header(one: Shown, name: str, value: str) -> None:
    one["headers"] = [[key, base64_of(value.encode()) if key == name else old] for key, old in one["headers"]]


# It is said to be another bundle.


@by_redactor("run", "results", "bad_statement")
def a_redacted_bundle_is_called_whole(statement: Statement) -> None:
    statement["predicateType"] = "urn:aetheris:job-evidence:v1"


@by_redactor("run", "results", "bad_statement")
def a_redacted_bundle_is_called_whole_and_says_nothing_of_what_is_left_out(statement: Statement) -> None:
    statement["predicateType"] = "urn:aetheris:job-evidence:v1"
    for name in ("redaction", "creation", "installation"):
        del statement["predicate"][name]
    statement["predicate"]["blobs"] = {}


@by_envelope("run", "bad_statement")
def a_record_of_a_whole_bundle_is_there_by_its_hash(statement: Statement) -> None:
    records = records_of(statement)
    one = records[3]
    headers = [pair for pair in one["headers"] if pair[0] in ("ce_id", "ce_type", "ce_time", "ce_source")]
    records[3] = {"offset": one["offset"], "headers": headers, "value_sha256": "00" * 32}


@by_redactor("run", "results", "bad_statement")
def it_is_not_said_what_was_to_be_left_out(statement: Statement) -> None:
    del statement["predicate"]["redaction"]


@by_redactor("run", "results", "bad_statement")
def what_was_to_be_left_out_is_a_number(statement: Statement) -> None:
    statement["predicate"]["redaction"]["names"] = [7]


@by_redactor("run", "results", "bad_statement")
def something_is_said_beside_what_was_to_be_left_out(statement: Statement) -> None:
    statement["predicate"]["redaction"]["records"] = 0


# What is left out.


@by_redactor("run", "results", "seal_count")
def a_record_that_is_left_out_is_taken_away(statement: Statement) -> None:
    records_of(statement).remove(left_out(statement))


@by_redactor("run", "results", "seal_count")
def one_more_record_is_left_out(statement: Statement) -> None:
    records = records_of(statement)
    records.insert(-1, left_out(statement) | {"offset": records[-1]["offset"]})
    records[-1] = records[-1] | {"offset": records[-1]["offset"] + 1}


@by_redactor("run", "results", "seal_tree")
def a_record_that_is_left_out_has_another_hash(statement: Statement) -> None:
    left_out(statement)["value_sha256"] = "5a" * 32


@by_redactor("run", "results", "seal_tree")
def a_record_that_is_left_out_has_another_type(statement: Statement) -> None:
    set_header(left_out(statement), "ce_type", "io.aetheris.decision_snapshot.v1")


@by_redactor("run", "results", "seal_tree")
def a_record_that_is_left_out_has_another_time(statement: Statement) -> None:
    set_header(left_out(statement), "ce_time", "2019-01-01T00:00:00Z")


@by_redactor("run", "results", "seal_tree")
def a_record_that_is_left_out_is_anothers(statement: Statement) -> None:
    set_header(left_out(statement), "ce_source", "the CFO")


@by_redactor("run", "results", "seal_tree", "out_of_order")
def two_records_that_are_left_out_change_places(statement: Statement) -> None:
    records = records_of(statement)
    one, other = (records.index(left_out(statement, number)) for number in (0, 1))
    records[one], records[other] = records[other], records[one]


@by_redactor("run", "results", "out_of_order")
def a_record_that_is_left_out_lies_elsewhere(statement: Statement) -> None:
    left_out(statement)["offset"] = -1


@by_redactor("run", "results", "out_of_order")
def a_record_that_is_shown_lies_behind_others(statement: Statement) -> None:
    records_of(statement)[0]["offset"] = 5


@by_redactor("run", "results", "bad_statement")
def a_record_that_is_left_out_has_a_subject(statement: Statement) -> None:
    left_out(statement)["headers"].append(["ce_subject", base64_of(b"a")])


@by_redactor("run", "results", "bad_statement")
def a_record_that_is_left_out_has_a_header_twice(statement: Statement) -> None:
    headers = left_out(statement)["headers"]
    headers.append(headers[0])


@by_redactor("run", "results", "bad_statement")
def a_record_that_is_left_out_has_half_a_hash(statement: Statement) -> None:
    left_out(statement)["value_sha256"] = "5a" * 16


@by_redactor("run", "results", "bad_statement")
def a_record_that_is_left_out_has_its_hash_in_capitals(statement: Statement) -> None:
    left_out(statement)["value_sha256"] = left_out(statement)["value_sha256"].upper()


@by_redactor("run", "results", "bad_statement")
def a_record_that_is_left_out_has_its_hash_in_pairs(statement: Statement) -> None:
    left_out(statement)["value_sha256"] = bytes.fromhex(left_out(statement)["value_sha256"]).hex(" ")


@by_redactor("run", "results", "bad_statement")
def a_record_is_shown_and_left_out(statement: Statement) -> None:
    left_out(statement)["value"] = base64_of(b"{}")


@by_redactor("run", "results", "not_sealed")
def the_seal_is_left_out(statement: Statement) -> None:
    records, whole = records_of(statement), sealed_anew(history("run"))
    records[-1] = _stub(whole[-1])


@by_redactor("run", "arguments", "not_born")
def the_creation_is_said_to_lie_elsewhere(statement: Statement) -> None:
    statement["predicate"]["creation"] = 1


@by_redactor("run", "arguments", "not_born")
def the_creation_is_said_to_lie_nowhere(statement: Statement) -> None:
    statement["predicate"]["creation"] = -1


# What is shown.


@by_redactor("run", "results", "seal_tree")
def what_is_shown_beside_gaps_has_changed(statement: Statement) -> None:
    records = records_of(statement)
    place = at(history("run"), STARTED)
    one = json.loads(history("run")[place].value) | {"worker_id": "nobody"}
    records[place]["value"] = base64_of(json.dumps(one).encode())


@by_redactor("run", "results", "other_job", "subject_differs")
def a_redacted_job_is_another(statement: Statement) -> None:
    statement["predicate"]["job_id"] = "else"


@by_redactor("run", "results", "subject_differs")
def a_redacted_subject_has_another_tree(statement: Statement) -> None:
    statement["subject"][0]["digest"]["aetherisEventTree"] = "00" * 32


@by_redactor("run", "results", "not_included")
def a_redacted_jobs_seal_is_not_in_the_log(statement: Statement) -> None:
    statement["predicate"]["inclusion"] = inclusion(b"another seal")


@by_redactor("run", "results", "seal_tree")
def gaps_are_of_another_job(statement: Statement) -> None:
    other = statement_in(redacted_of(sealed_anew(history("crash")), "results"))
    records = records_of(statement)
    place = records.index(left_out(statement))
    records[place] = left_out(other) | {"offset": records[place]["offset"]}


# What rules say of all that they look at, where that is shown.


@by_operator_for_auditor("run", "success_without_valid_start")
def an_auditor_is_shown_a_success_behind_another(records: Records) -> Records:
    place = at(records, FINISHED, outcome="success")
    start = records[at(records, STARTED, node_id=json.loads(records[place].value)["node_id"])]
    word, made_up = bytes.fromhex("17" * 32), bytes.fromhex("17" * 32)
    for _ in range(3):
        made_up = hashlib.sha256(b"nonce1\0" + made_up).digest()
    begun = again(start, "again", invocation_id=made_up.hex())
    ended = again(records[place], "twice", invocation_id=made_up.hex(), word=word.hex())
    return put_behind(records, place, begun, ended)


@by_operator_for_auditor("run", "success_without_valid_start")
def an_auditor_is_shown_a_success_that_never_started(records: Records) -> None:
    drop(records, STARTED)


@by_operator_for_auditor("run", "not_committed")
def an_auditor_is_shown_a_success_that_was_not_committed(records: Records) -> None:
    drop(records, "command_committed")
