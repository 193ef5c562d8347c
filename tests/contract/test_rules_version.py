"""A job names the rules that it is judged by, for its life: who doesn't know them judges nothing of it, all alike."""

import json
from pathlib import Path

import pytest

from aetheris.cli import streamfile
from aetheris.planner.core.creations import creation_group
from aetheris.proofs import RawRecord, records, verify
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.job_log import Sequence, fold_into
from aetheris.protocol.messages import envelope, event_base
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Submit
from aetheris.protocol.messages.envelope import Envelope, NeedsUpgrade, decode_event
from aetheris.verifier.core.partition import Partition as Verifier
from tests.testkit import standalone
from tests.testkit.golden import FOLDER
from tests.testkit.histories import JOB, created, graph, planned, started

STREAM: Path = next(path for path in FOLDER.glob("*/a-run.jsonl"))
NAMED = {
    "none": (None, True),
    "these": ("1", True),
    "later": ("2", False),
    "none there is": ("0", False),
    "negative": ("-1", False),
    "huge": (str(10**40), False),
    "a fraction": ("1.0", False),
    "a power": ("1e0", False),
    "true": ("true", False),
    "a text": ('"1"', False),
    "null": ("null", False),
    "a list": ("[1]", False),
    "an object": ("{}", False),
}


def born_under(said: str | None) -> list[RawRecord]:
    """A job's records, whose creation says that."""
    creation, *others = streamfile.read(STREAM).raw()
    body = json.loads(creation.value)
    body.pop("rules", None)
    value = json.dumps(body).encode()
    if said is not None:
        value = value[:-1] + b',"rules":' + said.encode() + b"}"
    return [RawRecord(creation.offset, creation.key, creation.headers, value), *others]


def logged(raw: RawRecord) -> Record:
    return Record(Topic.JOBS_EVENTS, 0, raw.offset, 0, raw.key, raw.headers, raw.value)


@pytest.mark.parametrize("case", NAMED)
def test_services_proofs_and_script_know_the_same_rules(case: str) -> None:
    said, is_known = NAMED[case]
    creation = born_under(said)[0]
    found = decode_event(logged(creation))
    assert isinstance(found, Envelope if is_known else NeedsUpgrade)
    fact, broken = records.read(creation, 0)
    assert (fact.type, [one.rule for one in broken]) == (("job_created", []) if is_known else ("", ["unknown_version"]))
    script = standalone.verify.Record(0, creation.offset, creation.key, list(creation.headers), creation.value)
    assert (script.type, script.outdated) == (("job_created", False) if is_known else ("", True))


def test_a_job_under_other_rules_is_proved_by_nobody_and_shown_by_nobody() -> None:
    history = born_under("2")
    report = verify(history)
    standalone.assert_agrees(report, history)
    assert not report.ok
    assert "unknown_version" in [one.rule for one in report.violations]
    state, numbers = None, Sequence()
    for one in history:
        state = fold_into(state, logged(one), numbers)
    assert state is None


@pytest.mark.parametrize(("rules", "judged"), [(1, True), (2, False)])
def test_the_verifier_neither_seals_it_nor_says_what_it_breaks(rules: int, judged: bool) -> None:
    core = Verifier()
    plan = planned(graph({"id": "a"}))
    said = (created().model_copy(update={"rules": rules}), plan, started("a", "n"), ev.JobCompleted(job_id=JOB))
    for at, event in enumerate(said):
        made = envelope.draft(Topic.JOBS_EVENTS, event, key=JOB, id=f"e-{at}", source="s", time="t")
        core.evolve(Record(made.topic, 0, at, 0, made.key, made.headers, made.value), event.event_type)
    assert (list(core.jobs), bool(core.to_seal()), bool(core.moved)) == ([JOB], judged, judged)


def test_who_knows_later_rules_reads_it_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_base, "KNOWN_RULES", frozenset({2}))
    assert isinstance(decode_event(logged(born_under("2")[0])), Envelope)
    assert isinstance(decode_event(logged(born_under("1")[0])), NeedsUpgrade), "one that has forgotten these"


def test_the_planner_says_by_which_rules_it_creates() -> None:
    submitted = Submit(job_id="job-1", tenant="t", by="ann", request_hash="h", plan=graph({"id": "a", "args": {}}))
    created = creation_group(submitted, "c").facts[0].event
    value = envelope.draft(Topic.JOBS_EVENTS, created, key="job-1", id="1", source="s", time="t").value
    assert json.loads(value)["rules"] == 1
