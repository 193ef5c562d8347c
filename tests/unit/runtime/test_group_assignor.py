"""A group is shared out by what all its topics have, and anew where they have more, whoever leads it."""

import json
from typing import Any, cast

from aiokafka.cluster import ClusterMetadata

from aetheris.runtime.kafka.assignor import GroupAssignor

TOPICS = ("a", "b")


class FakeCluster:
    def __init__(self, **counts: int) -> None:
        self.counts = counts

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self.counts[topic])) if topic in self.counts else None


def cluster(**counts: int) -> ClusterMetadata:
    return cast("ClusterMetadata", FakeCluster(**counts))


def share_out(leader: GroupAssignor, around: ClusterMetadata, *members: GroupAssignor) -> list[dict[str, list[int]]]:
    joined = {f"m-{at}": one.metadata(TOPICS) for at, one in enumerate(members)}
    made = leader.assign(around, joined)
    for at, one in enumerate(members):
        one.on_assignment(made[f"m-{at}"])
    return [dict(cast("Any", made[name].assignment)) for name in joined]


def test_all_topics_have_the_same_numbers_while_some_have_grown() -> None:
    one, other = GroupAssignor(), GroupAssignor()
    found = share_out(one, cluster(a=7, b=4), one, other)
    assert found == [{"a": [0, 1], "b": [0, 1]}, {"a": [2, 3], "b": [2, 3]}]


def test_a_topic_that_nobody_knows_yet_gives_nothing() -> None:
    one = GroupAssignor()
    assert share_out(one, cluster(a=7), one) == [{}]
    assert not one.has_grown(cluster(a=7), TOPICS)


def test_who_was_started_again_has_it_shared_out_anew_and_says_so_once() -> None:
    """What he says is another thing than before: a broker that finds it the same shares nothing out."""
    leader = GroupAssignor()
    made = leader.assign(cluster(a=4, b=4), {"m": leader.metadata(TOPICS)})["m"]
    again = GroupAssignor()
    first = again.metadata(TOPICS)
    again.on_assignment(made)
    assert not again.has_grown(cluster(a=7, b=4), TOPICS)
    assert again.has_grown(cluster(a=7, b=7), TOPICS)
    second = again.metadata(TOPICS)
    assert second.user_data != first.user_data
    assert not again.has_grown(cluster(a=7, b=7), TOPICS)
    assert share_out(again, cluster(a=7, b=7), again) == [{"a": [*range(7)], "b": [*range(7)]}]
    assert not again.has_grown(cluster(a=7, b=7), TOPICS)
    assert again.has_grown(cluster(a=9, b=9), TOPICS)


def test_an_assignment_that_says_nothing_has_nobody_join_again() -> None:
    one = GroupAssignor()
    made = one.assign(cluster(a=4, b=4), {"m": one.metadata(TOPICS)})["m"]
    for said in (b"", b"no json", b"[]", json.dumps({"partitions": "4"}).encode()):
        made.user_data = said
        one.on_assignment(made)
        assert not one.has_grown(cluster(a=7, b=7), TOPICS)
