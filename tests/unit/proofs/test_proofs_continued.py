"""A job that continues another, and whatever may be forged between the two: both verifiers name it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from aetheris.proofs import RawRecord, bundle
from aetheris.proofs.continued import MAX_CONTINUED
from aetheris.proofs.evidence import BadEvidence, Evidence, judge, statement
from aetheris.proofs.records import read
from tests.testkit import standalone
from tests.testkit.evidence import KEY, OTHER_KEY, TRUSTED, evidence_of, sealed, signer
from tests.testkit.proof_histories import A, Log, digest, node, tool
from tests.testkit.tries import try_of

Body = dict[str, Any]
TOOLS = {"refund": tool(), "pay": tool(irreversible=True), "look": tool("pure")}
BEFORE, AFTER = "job-1", "job-2"


def failed(end: str = "job_failed", tenant: str = "acme", **ended: Any) -> Log:
    """A job in which a paid, w waited, u was undone, and b surely failed."""
    nodes = [node("a", "pay"), node("w", kind="timer", tool=None), node("u", compensate_with={"tool": "refund"})]
    log = Log(*nodes, node("b"), tools=TOOLS, tenant=tenant)
    log.about("policy_allowed", tool_version="1", args_hash=A.args_hash, rule="r")
    log.start("n1", "a", tool_name="pay")
    log.finish("n1", name="a", result={"x": [7]}, external_id="ext-1")
    log.done("a")
    log.about("job_waiting", name="w", wait_type="timer")
    log.about("wait_completed", name="w", wait_type="timer", payload={}, output_hash=digest({}))
    log.done("w", "success", output_hash=digest({}))
    log.step("n2", "u")
    log.start("n3", "b")
    log.permanent("n3", "executor", "b")
    log.done("b", "permanent_failure")
    log.add("job_stopping", reason="failed", up_to_revision=0)
    log.revise(1, node("u.undo", compensates="u"))
    log.start("n4", "u.undo", revision=1)
    log.finish("n4", name="u.undo")
    log.done("u.undo")
    log.add("step_compensated", node_id="u.undo", compensates="u")
    log.done("u", "compensated")
    log.add(end, compensated=["u"], **ended)
    return sealed(log)


def said(log: Log) -> Body:
    """What a continuation of a log's job says of it, as its gateway would."""
    facts = [read(record, at)[0] for at, record in enumerate(log.records)]
    seal = next(fact.body for fact in facts if fact.type == "job_sealed")
    named = {name: seal[name] for name in ("event_count", "root", "outcome_hash", "key_id")}
    created = facts[0].body.get("continues") or {"adopted": []}
    own = [_adopted(log, "a", "n1", "pay", content_key=log.call("a").content_key, external_id="ext-1"), _waited(log)]
    return {"job_id": log.job, "seal": named, "adopted": [*created["adopted"], *own] if log.job == BEFORE else []}


def _adopted(log: Log, name: str, invocation_id: str, tool_name: str, **more: Any) -> Body:
    call = log.call(name)
    key = {"idempotency_key": call.key, "invocation_id": try_of(invocation_id), "args_hash": call.args_hash}
    return {
        "job_id": log.job,
        "node_id": name,
        "tool_name": tool_name,
        "result_hash": log.hashes[name],
        **key,
        **more,
    }


def _waited(log: Log) -> Body:
    hashed = {"result_hash": digest({}), "occurrence": 1}
    return {"job_id": log.job, "node_id": "w", "tool_name": "timer", "idempotency_key": log.key("w"), **hashed}


def going_on(says: Body, *nodes: Body, job: str = AFTER, **more: Any) -> Log:
    """The job that continues it: b is done, with what a gave."""
    planned = nodes or (node("b", args={"n": 7}), node("u"))
    log = Log(*planned, tools=TOOLS, job=job, continues=says, **more)
    for one in planned:
        log.start(f"m-{one['id']}", one["id"], tool_name=one["tool"])
        log.finish(f"m-{one['id']}", name=one["id"])
        log.done(one["id"])
    log.complete()
    return sealed(log)


def whole() -> tuple[Log, Log]:
    before = failed()
    says = said(before) | {"uses": [{"node_id": "b", "at": "/args/n", "ref": "a#/x/0"}]}
    return going_on(says), before


def evidence(*logs: Log) -> Evidence:
    first, *earlier = (evidence_of(log.records) for log in logs)
    return replace(first, continued=tuple(earlier))


def opinions(given: Evidence) -> tuple[Body, Body]:
    """Both implementations' reports, which name the same."""
    own, other = reports(given)
    assert named(own) == named(other)
    assert (own["ok"], own["continued"]) == (other["ok"], other["continued"])
    return own, other


def reports(given: Evidence) -> tuple[Body, Body]:
    """Both implementations' reports on a bundle of it, which whoever holds the key signed without a look."""
    judged = [judge(one.records, TRUSTED, one.blobs.__getitem__) for one in given.chain]
    try:
        data = bundle.build(given, judged, signer(KEY))
    except BadEvidence:
        data = unchecked(given, judged)
    script = standalone.verify
    other = script.check_bundle(data, {key.key_id: script.Key(key.to_json()) for key in TRUSTED})
    return bundle.judge(data, TRUSTED), other


def unchecked(given: Evidence, judged: Sequence[Any]) -> bytes:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("aetheris.proofs.evidence.spanned", lambda _chain: [])
        patched.setattr("aetheris.proofs.evidence.check_exportable", lambda _report: None)
        return bundle.build(given, judged, signer(KEY))


def named(report: Body) -> set[tuple[str, str, str]]:
    return {(one["rule"], one["event_id"], one.get("job_id", "")) for one in report["violations"]}


def rules(report: Body) -> set[str]:
    return {one["rule"] for one in report["violations"]}


def test_a_job_and_the_one_that_it_continues_hold_together() -> None:
    own, other = opinions(evidence(*whole()))
    assert own["violations"] == other["violations"] == []
    assert own["ok"]
    assert [one["job_id"] for one in own["continued"]] == [BEFORE]
    assert {**own, "notes": None} == {**other, "notes": None}


def adopted(says: Body, **changed: Any) -> Body:
    first, *rest = says["adopted"]
    return says | {"adopted": [first | changed, *rest]}


FORGED: dict[str, tuple[str, Callable[[Body], Body]]] = {
    "another seal": ("continued_seal", lambda says: says | {"seal": says["seal"] | {"root": "00"}}),
    "a seal over less": ("continued_seal", lambda says: says | {"seal": says["seal"] | {"event_count": 3}}),
    "another key's seal": ("continued_seal", lambda says: says | {"seal": says["seal"] | {"key_id": "k"}}),
    "no seal": ("continued_seal", lambda says: {name: says[name] for name in ("job_id", "adopted")}),
    "another result": ("adopted_differs", lambda says: adopted(says, result_hash=digest({"x": [8]}))),
    "another tool": ("adopted_differs", lambda says: adopted(says, tool_name="refund")),
    "other arguments": ("adopted_differs", lambda says: adopted(says, args_hash="args-z")),
    "another key": ("adopted_differs", lambda says: adopted(says, idempotency_key="k-z")),
    "another try": ("adopted_differs", lambda says: adopted(says, invocation_id=try_of("n2"))),
    "a place of its result": ("adopted_differs", lambda says: adopted(says, result_ref={"sha256": "0", "size": 1})),
    "another id outside": ("adopted_differs", lambda says: adopted(says, external_id="ext-2")),
    "another meaning": ("adopted_differs", lambda says: adopted(says, content_key=None)),
    "another occurrence": ("adopted_differs", lambda says: adopted(says, occurrence=2)),
    "another wait": ("adopted_differs", lambda says: adopted(says, node_id="w")),
    "a step that failed": ("adopted_unsettled", lambda says: adopted(says, node_id="b")),
    "a step that there is not": ("adopted_unsettled", lambda says: adopted(says, node_id="z")),
    "a compensation": ("adopted_unsettled", lambda says: adopted(says, node_id="u.undo")),
    "an undone step": ("adopted_undone", lambda says: adopted(says, node_id="u")),
    "a step of a job before": ("adopted_unfounded", lambda says: adopted(says, job_id="job-0")),
    "a payment that is left out": ("adopted_missing", lambda says: says | {"adopted": says["adopted"][1:]}),
    "another value": (
        "adopted_value",
        lambda says: says | {"uses": [{"node_id": "b", "at": "/args/n", "ref": "a#/x"}]},
    ),
    "another result for references": (
        "adopted_value",
        lambda says: says | {"given": [{"name": "job-1/a", "result": {"x": [8]}}]},
    ),
    "a result of nothing": ("adopted_value", lambda says: says | {"given": [{"name": "job-1/z"}]}),
    "a value of nowhere": (
        "adopted_value",
        lambda says: says | {"uses": [{"node_id": "b", "at": "/args/m", "ref": "a#/x/1"}]},
    ),
}


@pytest.mark.parametrize("forged", FORGED)
def test_what_a_continuation_forges_is_named(forged: str) -> None:
    rule, change = FORGED[forged]
    before = failed()
    own, _ = opinions(evidence(going_on(change(said(before))), before))
    assert rule in rules(own)
    assert not own["ok"]


REFERS = node("b", args={"n": {"$ref": "job-1/a#/x/0"}})


def test_a_plan_refers_to_what_is_adopted_and_to_nothing_else() -> None:
    """A plan that refers to what was not adopted is none: nothing of it may run."""
    before = failed()
    given = {"given": [{"name": "job-1/a", "result": {"x": [7]}}]}
    own, _ = opinions(evidence(going_on(said(before) | given, REFERS), before))
    assert own["ok"], own["violations"]
    for stranger in (
        node("b", args={"n": {"$ref": "job-1/b#"}}),
        node("b", args={"n": {"$ref": "job-0/a#"}}),
        node("b", depends_on=["job-1/a"]),
    ):
        for report in reports(evidence(going_on(said(before), stranger), before)):
            assert "unknown_node" in rules(report)


def test_an_adopted_step_is_not_done_again() -> None:
    before = failed()
    for again in (node("a", "pay"), node("z", "pay")):
        log = Log(again, tools=TOOLS, job=AFTER, continues=said(before))
        log.about(
            "policy_allowed", name=again["id"], tool_version="1", args_hash=log.call(again["id"]).args_hash, rule="r"
        )
        log.start("m", again["id"], tool_name="pay")
        log.finish("m", name=again["id"])
        log.done(again["id"])
        log.complete()
        own, _ = opinions(evidence(sealed(log), before))
        assert "adopted_again" in rules(own)


def lost(**human: Any) -> Log:
    """A job in which nobody knows what became of a, but for a human's word."""
    log = Log(node("a"), node("b"), tools=TOOLS)
    log.start("n1")
    log.about("invocation_parked", "n1")
    log.permanent("n1", "human", **human)
    log.done("a", "permanent_failure")
    log.add("job_failed")
    return sealed(log)


def bare(before: Log, *adoptions: Body) -> Body:
    return said_seal(before) | {"adopted": list(adoptions)}


def said_seal(before: Log) -> Body:
    facts = [read(record, at)[0] for at, record in enumerate(before.records)]
    seal = next(fact.body for fact in facts if fact.type == "job_sealed")
    named_ = {name: seal[name] for name in ("event_count", "root", "outcome_hash", "key_id")}
    return {"job_id": before.job, "seal": named_}


def test_an_unsure_step_is_neither_adopted_nor_passed_over_but_by_a_humans_word() -> None:
    denied, unsure = lost(by="ann"), lost(error="cancelled")
    own, _ = opinions(evidence(going_on(bare(denied)), denied))
    assert own["ok"], own["violations"]
    own, _ = opinions(evidence(going_on(bare(unsure)), unsure))
    assert rules(own) == {"continued_unsure"}
    taken = {
        "job_id": BEFORE,
        "node_id": "a",
        "idempotency_key": A.key,
        "invocation_id": try_of("n1"),
        "tool_name": "refund",
    }
    own, _ = opinions(evidence(going_on(bare(unsure, taken)), unsure))
    assert rules(own) == {"adopted_unsure"}


def word(verdict: str = "happened", **more: Any) -> Body:
    named_ = {"node_id": "a", "idempotency_key": A.key, "invocation_id": try_of("n1")}
    return named_ | {"verdict": verdict, "evidence": "asked the bank", "result": {"x": 1}} | more


def settled(before: Log, said_: Body, *adoptions: Body, by: str = "ann") -> Evidence:
    log = Log(node("b"), tools=TOOLS, job=AFTER, continues=bare(before, *adoptions) | {"settled": [said_]})
    body = log.records[0].value.replace(b'"submitted_by": "me"', b'"submitted_by": "%b"' % by.encode())
    log.records[0] = replace(log.records[0], value=body)
    log.start("m", "b")
    log.finish("m", name="b")
    log.done("b")
    log.complete()
    return evidence(sealed(log), before)


def test_an_unsure_step_is_settled_by_the_word_of_who_continues_and_shown_as_that() -> None:
    unsure = lost(error="cancelled")
    key = {"idempotency_key": A.key, "invocation_id": try_of("n1"), "args_hash": A.args_hash}
    taken = {"job_id": BEFORE, "node_id": "a", "tool_name": "refund", "result_hash": digest({"x": 1}), **key}
    own, other = opinions(settled(unsure, word(), taken))
    assert own["ok"], own["violations"]
    shown = {"job_id": AFTER, "of": BEFORE, "by": "ann", "node_id": "a", "verdict": "happened"}
    assert own["settled_by_hand"] == other["settled_by_hand"] == [shown | {"evidence": "asked the bank"}]
    own, _ = opinions(settled(unsure, word("not_executed")))
    assert own["ok"], own["violations"]
    for forged, adoptions, rule in (
        (word(), (), "continued_unsure"),
        (word(), (taken | {"result_hash": "0"},), "adopted_differs"),
        (word("not_executed"), (taken,), "adopted_unsure"),
        (word("perhaps"), (), "unknown_version"),
        (word("not_executed", invocation_id=try_of("n2")), (), "continued_word"),
        (word("not_executed", node_id="b"), (), "continued_word"),
    ):
        assert rule in rules(opinions(settled(unsure, forged, *adoptions))[0]), forged
    assert rules(opinions(settled(lost(by="ann"), word("not_executed")))[0]) == {"continued_word"}
    assert rules(opinions(settled(unsure, word("not_executed"), by="me"))[0]) == {"self_approval"}


def test_a_step_that_was_done_in_part_is_unsure() -> None:
    log = Log(node("a"), tools=TOOLS)
    log.start("n1")
    log.finish("n1", "compensatable_failure")
    log.done("a", "compensatable_failure")
    log.add("job_failed")
    own, _ = opinions(evidence(going_on(bare(sealed(log))), log))
    assert rules(own) == {"continued_unsure"}


def renamed(log: Log, job: str) -> Evidence:
    return replace(evidence_of(log.records), job_id=job)


def test_a_predecessor_that_is_missing_swapped_or_not_asked_for_is_named() -> None:
    after, before = whole()
    assert "continued_missing" in rules(opinions(evidence(after))[0])
    swapped = failed(error="another")
    assert "continued_seal" in rules(opinions(evidence(after, swapped))[0])
    stranger = going_on(said_seal(before) | {"adopted": []}, job="job-9")
    assert "continued_other" in rules(opinions(evidence(after, stranger))[0])
    assert "continued_other" in rules(opinions(evidence(before, after))[0])
    dressed = replace(evidence(after), continued=(renamed(stranger, BEFORE),))
    assert "other_job" in rules(opinions(dressed)[0])


@pytest.mark.parametrize(
    ("rule", "before"),
    [
        ("continued_tenant", failed(tenant="umbrella")),
        ("continued_not_failed", failed("job_completed")),
    ],
)
def test_only_a_failed_job_of_the_same_tenant_is_continued(rule: str, before: Log) -> None:
    assert rule in rules(opinions(evidence(going_on(said(before)), before))[0])


def test_a_predecessor_without_a_seal_that_holds_is_named() -> None:
    before = failed()
    unsealed = before.records[:-1]
    given = replace(evidence_of(unsealed), inclusion=evidence_of(before.records).inclusion)
    found = opinions(replace(evidence(going_on(said(before))), continued=(given,)))[0]
    assert {"continued_not_sealed", "not_sealed"} <= rules(found)
    forged = failed()
    del forged.records[-1]
    sealed(forged, OTHER_KEY)
    assert {"continued_not_sealed", "seal_unknown_key"} <= rules(opinions(evidence(going_on(said(forged)), forged))[0])


def tampered(records: Sequence[RawRecord], old: bytes, new: bytes) -> list[RawRecord]:
    return [replace(record, value=record.value.replace(old, new)) for record in records]


def test_a_predecessor_that_was_tampered_with_is_named_with_its_job() -> None:
    after, before = whole()
    altered = replace(evidence_of(before.records), records=tampered(before.records, b"[7]", b"[8]"))
    own, _ = opinions(replace(evidence(after), continued=(altered,)))
    assert ("output_hash_mismatch", BEFORE) in {(one["rule"], one.get("job_id")) for one in own["violations"]}
    assert {"seal_root", "adopted_value"} <= rules(own)


def test_a_chain_is_followed_to_its_end_and_has_a_bound() -> None:
    first = failed()
    second = Log(node("b"), tools=TOOLS, job="job-1a", continues=said(first))
    second.start("m1", "b")
    second.permanent("m1", "executor", "b")
    second.done("b", "permanent_failure")
    second.add("job_failed")
    sealed(second)
    carried = said_seal(second) | {"adopted": said(first)["adopted"]}
    own, _ = opinions(evidence(going_on(carried), second, first))
    assert own["ok"], own["violations"]
    dropped = said_seal(second) | {"adopted": said(first)["adopted"][1:]}
    assert rules(opinions(evidence(going_on(dropped), second, first))[0]) == {"adopted_missing"}
    invented = carried | {"adopted": [carried["adopted"][0] | {"result_hash": "0"}, *carried["adopted"][1:]]}
    own, _ = opinions(evidence(going_on(invented), second, first))
    assert {"adopted_unfounded", "adopted_missing"} <= rules(own)
    assert "continued_missing" in rules(opinions(evidence(going_on(carried), second))[0])


def test_a_chain_longer_than_its_bound_does_not_hold() -> None:
    logs = [lost(by="ann")]
    for place in range(MAX_CONTINUED + 1):
        log = Log(node("b"), tools=TOOLS, job=f"job-x{place}", continues=bare(logs[0]))
        log.start("m1", "b")
        log.permanent("m1", "executor", "b")
        log.done("b", "permanent_failure")
        log.add("job_failed")
        logs.insert(0, sealed(log))
    assert rules(opinions(evidence(*logs))[0]) == {"continued_too_long"}
    assert opinions(evidence(*logs[1:]))[0]["ok"]


def test_what_does_not_hold_together_is_no_evidence() -> None:
    before = failed()
    given = evidence(going_on(FORGED["another result"][1](said(before))), before)
    judged = [judge(one.records, TRUSTED, one.blobs.__getitem__) for one in given.chain]
    with pytest.raises(BadEvidence) as refused:
        statement(given, judged)
    assert refused.value.rule == "adopted_differs"
