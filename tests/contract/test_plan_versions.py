"""A plan with bodies is a record of version 2, for services and proofs alike, and no other plan is."""

import pytest

from aetheris.proofs.records import RawRecord, read
from aetheris.protocol.base.records import Record
from aetheris.protocol.messages.envelope import Envelope, NeedsUpgrade, Undecodable, decode_event, draft
from tests.testkit.body_histories import FLOW
from tests.testkit.histories import JOB, graph, planned
from tests.testkit.standalone import verify

PLAIN = planned(graph({"id": "a"}))


def written(*, bodies: bool, version: bytes) -> tuple[Record, tuple[tuple[str, bytes], ...]]:
    made = draft("t", FLOW if bodies else PLAIN, key=JOB, id="1", source="test", time="")
    headers = tuple(
        (name, value if name != "ce_type" else b"io.aetheris.plan_generated." + version) for name, value in made.headers
    )
    return Record("t", 0, 0, 0, made.key, headers, made.value), headers


def test_a_plan_is_written_in_the_version_of_what_it_has() -> None:
    for plan, version in ((PLAIN, b"v1"), (FLOW, b"v2")):
        made = draft("t", plan, key=JOB, id="1", source="test", time="")
        assert dict(made.headers)["ce_type"] == b"io.aetheris.plan_generated." + version
        assert isinstance(decode_event(Record("t", 0, 0, 0, made.key, made.headers, made.value)), Envelope)


@pytest.mark.parametrize("bodies", [False, True])
@pytest.mark.parametrize("version", [b"v1", b"v2", b"v3", b"v02"])
def test_services_proofs_and_the_script_read_the_same_plans(version: bytes, *, bodies: bool) -> None:
    record, headers = written(bodies=bodies, version=version)
    try:
        found = decode_event(record)
    except Undecodable:
        found = None
    counts = isinstance(found, Envelope)
    assert counts == ((version, bodies) in ((b"v1", False), (b"v2", True)))
    assert isinstance(found, NeedsUpgrade) == (version not in (b"v1", b"v2"))
    fact, _ = read(RawRecord(0, record.key, headers, record.value), 0)
    assert (fact.type == "plan_generated") == counts
    script = verify.Record(0, 0, record.key, list(headers), record.value)
    assert (script.type == "plan_generated") == counts
