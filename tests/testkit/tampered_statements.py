"""The corpus of tamperings, of who signs envelopes: the statement, the seal, the log of seals."""

import base64
import json
from collections.abc import Callable
from typing import Any

from aetheris.proofs import seals
from tests.testkit.evidence import OTHER_KEY, amend, inclusion
from tests.testkit.forged_bundles import statement_in
from tests.testkit.proof_histories import Log
from tests.testkit.tamperings import (
    FINISHED,
    Records,
    Statement,
    again,
    at,
    base64_of,
    behind_the_seal,
    body_at,
    by_envelope,
    by_operator,
    history,
    honest,
    sealed_anew,
    with_body,
)

# The statement.


@by_envelope("run", "bad_statement")
def a_predicate_has_another_type(statement: Statement) -> None:
    statement["predicateType"] = "urn:aetheris:job-evidence:v0"


@by_envelope("run", "bad_statement")
def a_statement_has_another_type(statement: Statement) -> None:
    statement["_type"] = "https://in-toto.io/Statement/v0.1"


@by_envelope("run", "subject_differs")
def a_subject_is_another_job(statement: Statement) -> None:
    statement["subject"][0]["name"] = "else"


@by_envelope("run", "subject_differs")
def a_subject_has_another_chain(statement: Statement) -> None:
    statement["subject"][0]["digest"] = {"aetherisEventChain": "0" * 64}


@by_envelope("run", "subject_differs")
def a_subject_is_missing(statement: Statement) -> None:
    del statement["subject"]


@by_envelope("run", "other_job", "subject_differs")
def a_statement_is_about_another_job(statement: Statement) -> None:
    statement["predicate"]["job_id"] = "else"


@by_envelope("run", "derived_differs")
def a_ledger_has_another_tool(statement: Statement) -> None:
    statement["predicate"]["ledger"][0]["tool_name"] = "nothing"


@by_envelope("run", "derived_differs")
def a_ledger_has_true_for_a_token(statement: Statement) -> None:
    statement["predicate"]["ledger"][0]["token"] = True


@by_envelope("run", "derived_differs")
def a_ledger_has_a_fraction_for_a_token(statement: Statement) -> None:
    statement["predicate"]["ledger"][0]["token"] = 1.0


@by_envelope("run", "derived_differs")
def a_ledger_has_one_for_committed(statement: Statement) -> None:
    statement["predicate"]["ledger"][1]["committed"] = 1


@by_envelope("run", "derived_differs")
def a_ledger_has_a_field_more(statement: Statement) -> None:
    statement["predicate"]["ledger"][0]["note"] = "refunded"


@by_envelope("run", "derived_differs")
def a_ledger_lacks_a_row(statement: Statement) -> None:
    del statement["predicate"]["ledger"][0]


@by_envelope("run", "derived_differs")
def a_ledger_has_another_order(statement: Statement) -> None:
    statement["predicate"]["ledger"].reverse()


@by_envelope("run", "derived_differs")
def a_ledger_is_missing(statement: Statement) -> None:
    del statement["predicate"]["ledger"]


@by_envelope("approved", "derived_differs")
def approvals_are_by_a_made_up_officer(statement: Statement) -> None:
    statement["predicate"]["approvals"][-1]["says"]["approver"] = "the CFO"


@by_envelope("approved", "derived_differs")
def approvals_lack_one(statement: Statement) -> None:
    statement["predicate"]["approvals"].pop()


@by_envelope("approved", "derived_differs")
def approvals_have_true_for_an_offset(statement: Statement) -> None:
    statement["predicate"]["approvals"][0]["offset"] = float(statement["predicate"]["approvals"][0]["offset"])


@by_envelope("run", "derived_differs")
def approvals_have_one_more(statement: Statement) -> None:
    statement["predicate"]["approvals"].append({"event_id": "x", "offset": 1, "type": "policy_allowed", "says": {}})


@by_envelope("run", "derived_differs")
def a_provenance_has_another_submitter(statement: Statement) -> None:
    statement["predicate"]["provenance"]["submitted_by"] = "the CFO"


@by_envelope("run", "derived_differs")
def a_provenance_has_false_for_a_revision(statement: Statement) -> None:
    statement["predicate"]["provenance"]["plans"][0]["revision"] = False


@by_envelope("run", "derived_differs")
def a_provenance_has_other_tools(statement: Statement) -> None:
    statement["predicate"]["provenance"]["tools"][0]["poke_pure"]["version"] = "2"


@by_envelope("run", "derived_differs")
def a_report_has_another_outcome(statement: Statement) -> None:
    statement["predicate"]["report"]["outcome_hash"] = "0" * 64


@by_envelope("run", "derived_differs")
def a_report_has_one_for_true(statement: Statement) -> None:
    statement["predicate"]["report"]["tool_invocation_ledger_proof"]["ok"] = 1


@by_envelope("run", "derived_differs")
def a_report_has_a_fraction_for_a_count(statement: Statement) -> None:
    statement["predicate"]["report"]["event_count"] = float(statement["predicate"]["report"]["event_count"])


@by_envelope("run", "derived_differs")
def a_report_says_more(statement: Statement) -> None:
    statement["predicate"]["report"]["checked_by"] = "somebody"


@by_envelope("run", "bad_statement")
def records_are_a_text(statement: Statement) -> None:
    statement["predicate"]["records"] = "ab"


@by_envelope("run", "bad_statement")
def an_offset_is_true(statement: Statement) -> None:
    statement["predicate"]["records"][1]["offset"] = True


@by_envelope("run", "bad_statement")
def an_offset_is_a_fraction(statement: Statement) -> None:
    statement["predicate"]["records"][1]["offset"] = 1.0


@by_envelope("run", "bad_statement")
def a_header_name_is_a_number(statement: Statement) -> None:
    statement["predicate"]["records"][1]["headers"][0][0] = 5


@by_envelope("run", "bad_statement")
def a_value_is_no_base64(statement: Statement) -> None:
    statement["predicate"]["records"][1]["value"] = "é"


@by_envelope("run", "bad_statement")
def a_blob_is_a_number(statement: Statement) -> None:
    statement["predicate"]["blobs"] = {"a": 1}


@by_envelope("run", "bad_statement")
def keys_hold_one_that_is_none(statement: Statement) -> None:
    statement["predicate"]["keys"] = [{"public_key": 7}]


@by_envelope("run", "not_sealed", "subject_differs")
def records_are_none(statement: Statement) -> None:
    statement["predicate"]["records"] = []


@by_envelope("run", "seal_root")
def a_records_header_is_edited(statement: Statement) -> None:
    """The id is in the chain."""
    record = statement["predicate"]["records"][3]
    record["headers"] = [[name, base64_of(b"x") if name == "ce_id" else value] for name, value in record["headers"]]


# What is sealed.


@behind_the_seal("run", "seal_root")
def a_sealed_record_is_edited(records: Records) -> None:
    records[5] = with_body(records[5], body_at(records, 5) | {"note": "x"})


@behind_the_seal("run", "seal_count")
def a_sealed_record_is_dropped(records: Records) -> None:
    del records[5]


@behind_the_seal("run", "seal_root")
def a_sealed_record_comes_twice(records: Records) -> None:
    records.insert(5, records[5])


@behind_the_seal("run", "seal_root")
def a_record_is_put_among_sealed_ones(records: Records) -> None:
    records.insert(5, again(records[5]))


@behind_the_seal("run", "seal_root", "out_of_order")
def sealed_records_change_places(records: Records) -> None:
    records[5], records[6] = records[6], records[5]


@behind_the_seal("run", "not_sealed")
def a_seal_is_dropped(records: Records) -> None:
    records.pop()


@behind_the_seal("run", "not_sealed")
def a_job_is_cut_before_its_end(records: Records) -> None:
    del records[10:]


@behind_the_seal("run", "seal_count")
def a_seal_covers_more_than_there_is(records: Records) -> None:
    records[-1] = with_body(records[-1], body_at(records, -1) | {"event_count": 99})


@behind_the_seal("run", "seal_count")
def a_seal_covers_nothing(records: Records) -> None:
    records[-1] = with_body(records[-1], body_at(records, -1) | {"event_count": 0})


@behind_the_seal("run", "seal_count")
def a_seal_covers_true_records(records: Records) -> None:
    records[-1] = with_body(records[-1], body_at(records, -1) | {"event_count": True})


@behind_the_seal("run", "seal_root", "seal_signature")
def a_seal_has_another_root(records: Records) -> None:
    records[-1] = with_body(records[-1], body_at(records, -1) | {"root": "0" * 64})


@behind_the_seal("run", "seal_outcome_hash", "seal_signature")
def a_seal_has_another_outcome(records: Records) -> None:
    records[-1] = with_body(records[-1], body_at(records, -1) | {"outcome_hash": "0" * 64})


@behind_the_seal("run", "seal_execution_hash", "seal_signature")
def a_seal_has_another_path(records: Records) -> None:
    records[-1] = with_body(records[-1], body_at(records, -1) | {"execution_hash": "0" * 64})


@behind_the_seal("run", "seal_tenant", "seal_signature")
def a_seal_is_another_tenants(records: Records) -> None:
    records[-1] = with_body(records[-1], body_at(records, -1) | {"tenant": "else"})


@behind_the_seal("run", "seal_signature")
def a_seal_says_another_time(records: Records) -> None:
    records[-1] = with_body(records[-1], body_at(records, -1) | {"sealed_at": "2019-01-01T00:00:00+00:00"})


@behind_the_seal("run", "seal_signature")
def a_seal_says_an_absurd_time(records: Records) -> None:
    records[-1] = with_body(records[-1], body_at(records, -1) | {"sealed_at": "0000-00-00T99:99:99"})


@behind_the_seal("run", "seal_signature")
def a_seal_has_a_field_more(records: Records) -> None:
    records[-1] = with_body(records[-1], body_at(records, -1) | {"approved_by": "the CFO"})


@behind_the_seal("run", "seal_signature")
def a_seal_has_no_signature(records: Records) -> None:
    records[-1] = with_body(records[-1], body_at(records, -1) | {"signature": ""})


@behind_the_seal("run", "seal_unknown_key")
def a_seal_names_another_key(records: Records) -> None:
    records[-1] = with_body(records[-1], body_at(records, -1) | {"key_id": "0" * 16})


@behind_the_seal("run", "seal_root", "seal_outcome_hash")
def a_seal_is_another_jobs(records: Records) -> None:
    other = sealed_anew(history("human"))[-1]
    own = body_at(records, -1)
    records[-1] = with_body(records[-1], json.loads(other.value) | {"job_id": own["job_id"]})


@behind_the_seal("run", "seal_unknown_key")
def a_seal_is_a_strangers(records: Records) -> None:
    own = {name: value for name, value in body_at(records, -1).items() if name not in ("signature", "key_id")}
    records[-1] = with_body(records[-1], seals.sign(own, OTHER_KEY))


# What amends a seal.


def amended(**changed: Any) -> Callable[[Records], Records]:
    """Behind the seal a try says that it succeeded which nobody has started: with the amendment, changed so."""

    def change(records: Records) -> Records:
        log = Log(created=False, job=str(body_at(records, 0)["job_id"]), tenant=str(body_at(records, 0)["tenant"]))
        log.records = records
        end = body_at(records, at(records, FINISHED))
        log.finish("late", name=str(end["node_id"]), idempotency_key=end["idempotency_key"], via="late")
        amend(log, **changed)
        return log.records

    return change


@behind_the_seal("run", "success_without_valid_start")
def an_amendment_shows_a_success_that_nobody_started(records: Records) -> Records:
    return amended()(records)


@behind_the_seal("run", "seal_consistency")
def an_amendment_proves_no_growth(records: Records) -> Records:
    return amended(consistency=[])(records)


@behind_the_seal("run", "seal_tree")
def an_amendment_has_another_tree(records: Records) -> Records:
    return amended(tree="0" * 64)(records)


@by_envelope("run", "derived_differs")
def a_statement_says_that_its_seal_was_amended(statement: Statement) -> None:
    said = {"event_count": 1, "root": "", "tree": "", "amendments": 1, "shows": []}
    statement["predicate"]["amended"] = said


@by_envelope("run", "derived_differs")
def a_statement_has_an_empty_amendment(statement: Statement) -> None:
    statement["predicate"]["amended"] = {}


# The log of seals.


def with_inclusion(statement: Statement, proof: str) -> None:
    statement["predicate"]["inclusion"] = proof


def seal_in(statement: Statement) -> bytes:
    return base64.b64decode(statement["predicate"]["records"][-1]["value"])


@by_envelope("run", "not_included")
def a_proof_is_of_another_seal(statement: Statement) -> None:
    with_inclusion(statement, statement_in(honest("human"))["predicate"]["inclusion"])


@by_envelope("run", "bad_proof")
def a_proof_is_missing(statement: Statement) -> None:
    with_inclusion(statement, "")


@by_envelope("run", "not_included")
def a_proof_names_another_leaf(statement: Statement) -> None:
    proof = statement["predicate"]["inclusion"]
    with_inclusion(statement, proof.replace("index 5", "index 4", 1))


@by_envelope("run", "bad_proof")
def a_proof_names_a_negative_leaf(statement: Statement) -> None:
    proof = statement["predicate"]["inclusion"]
    with_inclusion(statement, proof.replace("index 5", "index -5", 1))


@by_envelope("run", "not_included")
def a_proof_lacks_a_step(statement: Statement) -> None:
    head, _, note = statement["predicate"]["inclusion"].partition("\n\n")
    with_inclusion(statement, "\n\n".join((head.rpartition("\n")[0], note)))


@by_envelope("run", "bad_proof")
def a_step_of_a_proof_is_short(statement: Statement) -> None:
    head, _, note = statement["predicate"]["inclusion"].partition("\n\n")
    with_inclusion(statement, "\n\n".join((head.rpartition("\n")[0] + "\nAAAA", note)))


@by_envelope("run", "checkpoint_signature")
def a_checkpoint_has_another_size(statement: Statement) -> None:
    proof = statement["predicate"]["inclusion"]
    with_inclusion(statement, proof.replace("\n9\n", "\n8\n", 1))


@by_envelope("run", "checkpoint_unknown_key")
def a_checkpoint_is_a_strangers(statement: Statement) -> None:
    with_inclusion(statement, inclusion(seal_in(statement), OTHER_KEY))


@by_envelope("run", "checkpoint_unknown_key")
def a_checkpoint_is_of_another_log(statement: Statement) -> None:
    proof = statement["predicate"]["inclusion"]
    with_inclusion(statement, proof.replace("example.com/seals", "example.com/other"))


@by_envelope("run", "bad_checkpoint")
def a_checkpoint_is_unsigned(statement: Statement) -> None:
    proof = statement["predicate"]["inclusion"]
    with_inclusion(statement, proof[: proof.index("\u2014")])


@by_envelope("run", "bad_checkpoint")
def a_checkpoint_holds_half_a_character(statement: Statement) -> None:
    proof = statement["predicate"]["inclusion"]
    with_inclusion(statement, proof.replace("\n\u2014 ", "\n\ud800\n\n\u2014 "))


@by_operator("run", "continued_missing")
def a_job_continues_one_that_is_not_there(records: Records) -> None:
    seal = {"event_count": 1, "root": "", "outcome_hash": "", "key_id": ""}
    records[0] = with_body(records[0], body_at(records, 0) | {"continues": {"job_id": "else", "seal": seal}})


@by_envelope("run", "bad_statement")
def what_a_job_continues_is_a_text(statement: Statement) -> None:
    statement["predicate"]["continued"] = "ab"


@by_envelope("run", "continued_other")
def a_job_comes_that_it_does_not_continue(statement: Statement) -> None:
    other = statement_in(honest("human"))["predicate"]
    one = {name: other[name] for name in ("job_id", "records", "blobs", "inclusion")}
    statement["predicate"]["continued"] = [one]
