"""Records are left out of a bundle: the rest is proved as ever, and what is not shown, or not judged, is said."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from aetheris.cli import streamfile
from aetheris.proofs import RawRecord, bundle
from aetheris.proofs.evidence import BadEvidence
from aetheris.proofs.records import EVENT_TYPES, body_of
from aetheris.proofs.redacted_records import (
    ALWAYS_SHOWN,
    CLASSES,
    FOR_AUDITOR,
    UNRULED,
    BadRedaction,
    Redaction,
    is_classed,
)
from aetheris.protocol.messages import events as ev
from tests.testkit.evidence import TRUSTED, amend, bundle_of, redacted_of, seal, sealed
from tests.testkit.forged_bundles import named, opinions, resigned, statement_in
from tests.testkit.golden import FOLDER
from tests.testkit.proof_histories import JOB, Log, clean, node

STREAMS = sorted(path for path in FOLDER.glob("*/*.jsonl") if not path.stem.startswith("simulated"))
"""Which real systems wrote, and sealed: most are signed."""
REDACTIONS: list[tuple[tuple[str, ...], str]] = [
    *(((name,), "") for name in CLASSES),
    (tuple(CLASSES), ""),
    ((), "auditor"),
    (("tool_invocation_finished", "reasons"), "auditor"),
    (("job_created",), ""),
    (tuple(sorted(EVENT_TYPES - ALWAYS_SHOWN)), ""),
]
CANARY = "4242-4242"


def history(of: Path) -> tuple[list[RawRecord], tuple[Any, ...]]:
    stream = streamfile.read(of)
    return list(stream.raw()), (*stream.keys, *TRUSTED)


def shown_in(data: bytes) -> list[bytes]:
    return [base64.b64decode(one["value"]) for one in statement_in(data)["predicate"]["records"] if "value" in one]


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_what_is_shown_of_a_real_job_holds_and_what_is_left_out_is_counted(path: Path) -> None:
    records, keys = history(path)
    try:
        bundle_of(records, keys=keys)
    except BadEvidence:
        pytest.skip("no bundle is made of it")
    for names, audience in REDACTIONS:
        data = redacted_of(records, *names, audience=audience, keys=keys)
        own, other = opinions(data, keys)
        assert (own["violations"], other["violations"]) == ([], []), (names, audience)
        assert (own["ok"], own["unproven"]) == (True, [])
        for name in own.keys() - {"violations", "unproven"}:
            assert own[name] == other[name], name
        redacted, shown = own["redacted"], shown_in(data)
        assert own["event_count"] + 1 == redacted["records"] + len(shown)
        assert sum(redacted["types"].values()) == redacted["records"] == len(redacted["places"])
        assert redacted["rules_checked"] == (set(redacted["types"]) <= UNRULED)
        whole = bundle.judge(bundle_of(records, keys=keys), keys)
        assert own["event_tree_root_hash"] == whole["event_tree_root_hash"]
        assert own["installation"] == whole["installation"]
        for name in CLASSES.keys() & {*names}:
            carried = [body_of(value) or {} for value in shown]
            assert not any(one.get(field) for one in carried for field in CLASSES[name])


def told() -> Log:
    log = Log(node("a", args={"card": CANARY}))
    log.add("decision_snapshot", goal=CANARY, task_graph={}, command_id="a", reasoning_summary=CANARY)
    log.start("n1")
    log.finish("n1", result={"card": CANARY}, external_id="re_1")
    log.add("state_changed", node_id="a", changes=[{"field": "card", "after": CANARY}])
    log.done()
    log.complete()
    return sealed(log)


@pytest.mark.parametrize(("names", "kept"), [(("arguments", "results", "reasons"), 0), (("arguments",), 1)])
def test_nothing_of_what_is_left_out_is_in_it(names: tuple[str, ...], kept: int) -> None:
    shown = b"".join(shown_in(redacted_of(told().records, *names)))
    assert (CANARY.encode() in shown) == bool(kept)


def test_an_auditor_sees_what_rules_look_at_and_they_are_judged() -> None:
    own, other = opinions(redacted_of(told().records, audience="auditor"))
    assert own["redacted"]["types"] == {"decision_snapshot": 1, "state_changed": 1}
    assert own["redacted"]["for"] == "auditor"
    assert (own["redacted"]["rules_checked"], other["redacted"]["rules_checked"]) == (True, True)
    assert "job_failed" not in FOR_AUDITOR | UNRULED


def test_it_is_taken_for_no_whole_one() -> None:
    data = redacted_of(sealed(clean()).records, "results")
    for refuse in (lambda: bundle.judge(data, TRUSTED), lambda: bundle.contents(data), lambda: bundle.judge(data)):
        with pytest.raises(BadEvidence) as refused:
            refuse()
        assert refused.value.rule == "redacted"
    with pytest.raises(BadEvidence, match="lacks a part"):
        bundle.judge(
            resigned(data, lambda statement: statement.update(predicateType="urn:aetheris:job-evidence:v1")), TRUSTED
        )


def test_what_shows_a_violation_can_be_left_out_by_nobody_but_who_seals_and_not_unseen() -> None:
    """Of a history with two successes the verifier makes none. Who holds its key leaves one out, and that shows."""
    log = clean()
    log.start("n9")
    log.finish("n9")
    seal(log)
    with pytest.raises(BadEvidence):
        redacted_of(log.records, "results")

    def change(statement: dict[str, Any]) -> None:
        good = statement_in(redacted_of(sealed(clean()).records, "tool_invocation_finished"))
        statement.update(good)

    own, other = opinions(resigned(bundle_of(sealed(clean()).records), change))
    for said in (own["redacted"], other["redacted"]):
        assert (said["types"], said["rules_checked"]) == ({"tool_invocation_finished": 2}, False)
        assert [one["type"] for one in said["places"]] == ["tool_invocation_finished"] * 2


def late(outcome: str) -> Log:
    """A job that failed with a call of which nobody heard any more, and of which there is late word."""
    log = Log()
    log.start("n1")
    log.permanent("n1", "ledger")
    log.done("a", "permanent_failure")
    log.add("job_failed", error="a")
    sealed(log)
    log.finish("n1", outcome, via="late")
    amend(log)
    return log


@pytest.mark.parametrize(("names", "audience"), [((), "auditor"), (("results",), ""), (("effect_confirmed",), "")])
def test_what_late_word_breaks_is_hidden_by_nothing_that_is_left_out(names: tuple[str, ...], audience: str) -> None:
    """No rule of what came behind a seal is judged of a part: none is made where that breaks one."""
    whole, _ = opinions(bundle_of(late("success").records))
    with pytest.raises(BadEvidence) as refused:
        redacted_of(late("success").records, *names, audience=audience)
    assert refused.value.rule in {one["rule"] for one in whole["violations"]}


def test_what_was_sealed_again_and_holds_is_shown_up_to_the_last_seal() -> None:
    own, other = opinions(redacted_of(late("retryable_failure").records, "reasons"))
    assert (own["violations"], other["violations"]) == ([], [])
    assert own["redacted"]["rules_checked"] is False


@pytest.mark.parametrize(
    ("names", "audience"),
    [((), ""), (("job_sealed",), ""), (("key_revoked",), ""), (("price",), ""), (("results",), "mallory"), (("",), "")],
)
def test_what_can_not_be_left_out_is_refused(names: tuple[str, ...], audience: str) -> None:
    with pytest.raises(BadRedaction):
        Redaction.of(names, audience)


def test_a_field_that_nobody_knows_may_carry_anything() -> None:
    log = clean()
    log.add("retry_scheduled", node_id="a", idempotency_key="k", unheard_of=CANARY)
    seal(log)
    for name in CLASSES:
        assert CANARY.encode() not in b"".join(shown_in(redacted_of(log.records, name)))


def test_a_hidden_value_stays_as_it_stands() -> None:
    log = Log(node("a"))
    log.start("n1")
    log.finish("n1", result={"$hidden": {"c": "0" * 64, "d": "1" * 64, "k": "2" * 32}})
    log.done()
    log.complete()
    own, other = opinions(redacted_of(sealed(log).records, "results"))
    assert (own["hidden_values"], other["hidden_values"]) == (1, 1)
    assert own["redacted"]["records"] == 0


HIDDEN = {"c": "0" * 64, "d": "1" * 64, "k": "2" * 32}
ALIKE: list[Any] = [
    {"$hidden": HIDDEN | {"d": CANARY}},
    {"$hidden": HIDDEN | {"k": {"card": CANARY}}},
    {"$hidden": HIDDEN | {"k": f"{'2' * 32}.{CANARY}"}},
    {"$hidden": HIDDEN | {"c": CANARY}},
    {"$hidden": HIDDEN | {"card": CANARY}},
    {"$hidden": HIDDEN, "card": CANARY},
    {"$hidden": {"$hidden": HIDDEN | {"d": CANARY}}},
    {"$hidden": CANARY},
]
"""What a tool may give, and is no hidden value, though it looks like one."""


@pytest.mark.parametrize("result", ALIKE)
def test_what_only_looks_like_a_hidden_value_is_left_out(result: Any) -> None:
    log = Log(node("a"))
    log.start("n1")
    log.finish("n1", result=result)
    log.done()
    log.complete()
    assert CANARY.encode() not in b"".join(shown_in(redacted_of(sealed(log).records, "results")))


def left_out(statement: dict[str, Any]) -> dict[str, Any]:
    return next(one for one in statement["predicate"]["records"] if "value_sha256" in one)


def a_first_offset_below_all(statement: dict[str, Any]) -> None:
    statement["predicate"]["records"][0]["offset"] = -5


def test_a_record_lies_at_an_offset() -> None:
    own, other = opinions(resigned(redacted_of(told().records, "results"), a_first_offset_below_all))
    assert named(own) == named(other)
    assert "out_of_order" in {one["rule"] for one in own["violations"]}


@pytest.mark.parametrize("more", [(), ("arguments", "results", "reasons")])
def test_a_root_that_is_only_stated_is_borne_out_by_a_seal_that_is_signed_under_it(more: tuple[str, ...]) -> None:
    """Who has the seal's key, and no service's, leaves the creation out, and says whose it was."""

    def change(statement: dict[str, Any]) -> None:
        statement["predicate"]["installation"] = "ab" * 32

    own, other = opinions(resigned(redacted_of(told().records, "job_created", *more), change))
    for said in (own, other):
        assert "not_sealed" in {one["rule"] for one in said["violations"]}


def test_it_is_said_of_each_field_of_each_record_what_it_carries() -> None:
    kinds = [one for one in vars(ev).values() if isinstance(one, type) and getattr(one, "event_type", None)]
    fields = {name for one in kinds for name in one.__struct_fields__}
    assert len(kinds) > 35
    assert sorted(name for name in fields if not is_classed(name)) == []


def test_a_job_id_is_that_of_the_records() -> None:
    own, other = opinions(
        resigned(
            redacted_of(sealed(clean()).records, "results"), lambda statement: statement["predicate"].update(job_id="x")
        )
    )
    for said in (own, other):
        assert {"foreign_record", "other_job", "subject_differs"} <= {one["rule"] for one in said["violations"]}
    assert JOB != "x"
    assert json.dumps(own)
