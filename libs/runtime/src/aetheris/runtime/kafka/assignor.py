"""How a group's topics are shared out: ranges, of the partitions that all of them have, and anew where they have more.

aiokafka has only who leads a group look for more partitions, and only if he shared them out himself. A member with a
stable name that was started again finds them shared out, and nobody looks. So here an assignment says for how many it
was made, and each member that knows of more joins again, and says so: by that the broker knows to have it done anew.
"""

import json
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any, cast

from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from aetheris.protocol.messages import event_base


class _SharedPartitions:
    """Of a cluster those numbers of partitions that all of some topics have: what is growing may have no more yet."""

    def __init__(self, cluster: ClusterMetadata, topics: Iterable[str]) -> None:
        known = [cluster.partitions_for_topic(topic) or set[int]() for topic in set(topics)]
        self.numbers = set[int].intersection(*known) if known else set[int]()

    def partitions_for_topic(self, _topic: str) -> set[int] | None:
        """The same of each topic."""
        return self.numbers or None


class GroupAssignor:
    """Of one member, as aiokafka asks it; who joins says which version he is, and which rules he knows."""

    name = RangePartitionAssignor.name

    def __init__(self) -> None:
        self._known = 0
        """Partitions that this member has seen all topics have."""
        self._assigned = 0
        """For how many the group was shared out last; 0: it did not say."""
        self._told: tuple[int, int] | None = None

    def assign(
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """The same numbers of every topic, also while some have been given more partitions and others not yet."""
        shared = _SharedPartitions(cluster, (topic for said in members.values() for topic in said.subscription))
        made = RangePartitionAssignor.assign(cast("ClusterMetadata", shared), members)
        said = json.dumps({"partitions": len(shared.numbers)}).encode()
        return {name: ConsumerProtocolMemberAssignment(one.version, one.assignment, said) for name, one in made.items()}

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """What a member says when it joins."""
        self._told = (self._assigned, self._known)
        knows: dict[str, Any] = {
            "rules": sorted(event_base.KNOWN_RULES),
            "version": version("aetheris-runtime"),
            "partitions": self._told,
        }
        return ConsumerProtocolMemberMetadata(RangePartitionAssignor.version, list(topics), json.dumps(knows).encode())

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Note for how many it was made."""
        try:
            said: Any = json.loads(assignment.user_data or b"{}")
            count: Any = said.get("partitions", 0)
        except (ValueError, AttributeError):
            count = 0
        self._assigned = count if type(count) is int else 0

    def has_grown(self, cluster: ClusterMetadata, topics: Iterable[str]) -> bool:
        """Whether the group is to be shared out anew, and this member has not said so yet."""
        self._known = len(_SharedPartitions(cluster, topics).numbers)
        is_behind = 0 < self._assigned < self._known
        return is_behind and self._told != (self._assigned, self._known)
