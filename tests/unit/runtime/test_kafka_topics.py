"""What brokers tell of a topic, judged."""

import pytest

from aetheris.protocol.base.topics import Topic
from aetheris.runtime.kafka.clock_skew import leaders_time_ms, refused_skew
from aetheris.runtime.kafka.topics import Assured, Described, TopicSpec, faults, risks, topic_specs

SPEC: TopicSpec = next(spec for spec in topic_specs(4) if spec.name == Topic.JOBS_EVENTS)
SAFE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}


def described(copies: int = 3, partitions: int = 4, **changed: str | None) -> Described:
    told = {**SPEC.configs, **SAFE} | {name.replace("_", "."): value for name, value in changed.items()}
    configs = {name: value for name, value in told.items() if value is not None}
    return Described({SPEC.name: partitions}, {SPEC.name: copies}, {SPEC.name: configs})


def test_what_is_as_it_must_be_has_no_fault() -> None:
    assert [*faults(SPEC, described()), *risks(SPEC, described())] == []


@pytest.mark.parametrize(
    ("told", "assured", "words"),
    [
        ({"retention_ms": "604800000"}, Assured(), "must be -1, and it is 604800000"),
        ({"retention_ms": None}, Assured(), "must be -1, and the brokers don't tell it"),
        ({"retention_ms": "604800000"}, Assured(retention_days=8), "must be 691200000 or more"),
        ({"retention_ms": "a week"}, Assured(retention_days=7), "must be 604800000 or more"),
        ({"retention_bytes": None}, Assured(), "retention.bytes must be -1, and the brokers don't tell it"),
        ({"retention_bytes": "9"}, Assured(retention_days=7), "retention.bytes must be -1"),
        ({"cleanup_policy": "compact"}, Assured(retention_days=7), "cleanup.policy must be delete"),
        ({"partitions": 3}, Assured(), "3 partitions, must be 4 or more"),
    ],
)
def test_faults_are_named(told: dict[str, str | None], assured: Assured, words: str) -> None:
    (fault,) = faults(SPEC, described(**told), assured)  # pyright: ignore[reportArgumentType]
    assert words in fault


def test_what_the_operator_assures_is_enough() -> None:
    week = described(retention_ms="604800000", retention_bytes=None)
    assert list(faults(SPEC, week, Assured(retention_days=7))) == []
    assert list(faults(SPEC, described(retention_ms=None), Assured(retention_days=7))) == []
    assert list(risks(SPEC, described(min_insync_replicas=None), Assured(in_sync=2))) == []


@pytest.mark.parametrize(
    ("found", "assured", "words"),
    [
        (described(min_insync_replicas=None), Assured(), "the brokers don't tell min.insync.replicas"),
        (described(min_insync_replicas=None), Assured(in_sync=1), "min.insync.replicas must be at least 2"),
        (described(min_insync_replicas="1"), Assured(in_sync=3), "min.insync.replicas must be at least 2"),
        (described(unclean_leader_election_enable="true"), Assured(), "unclean.leader.election.enable must be false"),
        (described(copies=1), Assured(in_sync=2), "must have at least 2 replicas"),
    ],
)
def test_risks_are_named(found: Described, assured: Assured, words: str) -> None:
    (risk,) = risks(SPEC, found, assured)
    assert words in risk


def test_a_skew_is_refused_in_words_and_nothing_is_read_into_strange_answers() -> None:
    assert refused_skew(None) is refused_skew(300.0) is refused_skew(-300.0) is None
    assert "301 s ahead of this machine's" in str(refused_skew(301.0))
    assert "3600 s behind this machine's" in str(refused_skew(-3600.0))
    for answer in (b"", b"\0", b"\0\0\0", b"\0\0\x1f" + b"\0" * 80, b"\0\0\0\x02\x09", b"\0" * 200, b"\xff" * 200):
        assert leaders_time_ms(answer) is None


def test_what_jobs_lie_in_may_have_more_partitions_and_a_table_may_not() -> None:
    """A table's lines lie where their keys' hash points."""
    assert list(faults(SPEC, described(partitions=7))) == []
    index = next(spec for spec in topic_specs(4) if spec.name == Topic.JOBS_INDEX)
    (fault,) = faults(index, Described({index.name: 7}, {index.name: 3}, {index.name: dict(index.configs)}))
    assert fault == f"{index.name}: 7 partitions, must be 4 (AETHERIS_PARTITIONS)"
    by_name = {spec.name: spec for spec in topic_specs(4)}
    assert [spec.grows for name, spec in by_name.items() if not name.endswith(".dlq")] == [
        by_name[f"{name}.dlq"].grows for name in by_name if not name.endswith(".dlq")
    ]
