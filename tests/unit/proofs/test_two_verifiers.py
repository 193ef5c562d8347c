"""Two verifiers, the proofs and verify.py, on histories that somebody has altered anyhow: they agree.

They share no code, and state the rules differently: predicates over positions in the one, a fold in the other.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from aetheris.cli import streamfile
from aetheris.proofs import RawRecord, verify
from tests.testkit import standalone
from tests.testkit.evidence import TRUSTED, sealed
from tests.testkit.proof_histories import Log, clean, gone_on, node
from tests.testkit.refused import FOLDER, Blobs

HISTORIES = 300
TEXTS = (
    "a b n1 n2 k-a k-b success retryable_failure permanent_failure compensatable_failure compensated "
    "approve edit executor ledger human probe late catch_up timer signal pure idempotent "
)
VALUES: list[Any] = [None, True, False, 0, 1, 2, 3, 2**60, 1.5, "", "\ud800", [], {}, [1], *TEXTS.split()]
FIELDS = (
    "compensates compensate_with volatile effect_class irreversible depends_on kind tool id "
    "number scope tenant agent up_to_revision next_token compensated after result_ref via token approvers outcome "
    "activation policy_hash "
)
TYPES = [
    b"job_completed.v1",
    b"tool_invocation_finished.v2",
    b"wait_completed.v1",
    b"invocation_reopened.v1",
    b"state_checkpointed.v1",
    b"odd.v7",
]


def grounds() -> list[list[RawRecord]]:
    """What is altered: whole jobs, and everything that is refused anyway."""
    waits = Log(node("a"), node("b", kind="wait", tool=None))
    waits.step("n1")
    waits.about("job_waiting", name="b", wait_type="timer")
    waits.about("wait_completed", name="b", wait_type="timer", payload={}, output_hash="x")
    waits.done("b", "success", output_hash="x")
    waits.complete()
    waits.about("invocation_rejected", name="b", reason="cancelled")
    paused = Log(node("a"), node("b", depends_on=["a"]))
    paused.add("job_paused", number=1, by="me")
    paused.start("n0")
    paused.add("job_resumed", number=1, by="me")
    paused.step("n1")
    paused.add("job_paused", number=2, by="me")
    paused.add("cancel_requested", by="me")
    paused.add("job_stopping", by="me", reason="r", up_to_revision=0)
    paused.add("job_cancelled", by="me")
    frozen = Log(node("a"), node("b", depends_on=["a"]))
    who = {"by": "me", "at": ""}
    frozen.add("job_frozen", scope={"tool": "nobody's"}, number=1, **who)
    frozen.step("n0")
    frozen.add("job_frozen", scope={"tenant": frozen.tenant}, number=3, **who)
    frozen.start("n1", "b")
    frozen.add("job_unfrozen", scope={"tenant": frozen.tenant}, number=1, **who)
    frozen.add("job_unfrozen", scope={"tenant": frozen.tenant}, number=3, **who)
    for number, ordered in ((9, 3), (4, 4), (4, 3), (4, None)):
        frozen.add("job_frozen", scope={"tenant": frozen.tenant}, number=number, **who)
        frozen.start(f"n{number}-{ordered}", "b")
        frozen.add("job_unfrozen", scope={"tenant": frozen.tenant}, number=number, ordered=ordered, **who)
    frozen.add("job_stopping", by="me", reason="r", up_to_revision=0)
    frozen.add("job_failed", error="r")
    judged = Log(node("a"), node("b"))
    for number in (0, 2, 1, 2):
        judged.about("policy_allowed", tool_version="1", activation=number, policy_hash=f"h{number}")
    judged.about("invocation_rejected", name="b", reason="policy", activation=2, policy_hash="h2")
    judged.step("n0")
    judged.add("job_failed", error="r")
    streams = [list(streamfile.read(path).raw()) for path in sorted(FOLDER.glob("*.jsonl"))]
    whole = [sealed(log).records for log in (clean(), waits, gone_on(), paused, frozen, judged)]
    return [*whole, *(stream for stream in streams if stream)]


def altered(random: Random, all_of_them: Sequence[Sequence[RawRecord]]) -> list[RawRecord]:
    """A history with up to four things done to it."""
    records = list(random.choice(all_of_them))
    for _ in range(random.randint(1, 4)):
        if not records:
            break
        place, other = random.randrange(len(records)), random.randrange(len(records))
        match random.randrange(8):
            case 0:
                del records[place]
            case 1:
                records.insert(other, records[place])
            case 2:
                records.insert(other, records.pop(place))
            case 3:
                records.insert(other, random.choice(random.choice(all_of_them)))
            case 4:
                headers = dict(records[place].headers) | {"ce_type": b"io.aetheris." + random.choice(TYPES)}
                records[place] = replace(records[place], headers=tuple(headers.items()))
            case _:
                records[place] = replace(records[place], value=changed(random, records[place].value))
    in_order = random.random() < 0.7
    return [replace(record, offset=10 * at) for at, record in enumerate(records)] if in_order else records


def changed(random: Random, value: bytes) -> bytes:
    """One field somewhere in it says something else."""
    try:
        body = json.loads(value)
    except ValueError:
        return value
    place = body
    while isinstance(place, (dict, list)) and place:
        name: Any = random.choice(list(place) if isinstance(place, dict) else range(len(place)))
        if random.random() < 0.3 or not place[name] or not isinstance(place[name], (dict, list)):
            name = random.choice(FIELDS.split()) if isinstance(place, dict) and random.random() < 0.2 else name
            place[name] = random.choice(VALUES)
            break
        place = place[name]
    return json.dumps(body).encode()


def test_they_agree_on_whatever_was_done_to_a_history() -> None:
    seed = int(os.environ.get("AETHERIS_TEST_SEED", "1"))
    print(f"seed {seed}; AETHERIS_TEST_SEED sets another")  # noqa: T201  whoever sees it fail needs it
    all_of_them, blobs, found = grounds(), Blobs(), set[str]()
    for number in range(int(os.environ.get("AETHERIS_TEST_HISTORIES", HISTORIES))):
        records = altered(Random(seed + number), all_of_them)  # noqa: S311  a test's choice
        report = verify(records, keys=TRUSTED, load_blob=blobs.__getitem__)
        standalone.assert_agrees(report, records, TRUSTED, blobs)
        found |= {broken.rule for broken in report.violations}
    assert len(found) > HISTORIES // 10, "hardly anything was broken"
