"""The executor's core, fed by hand."""

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import ToolGrant
from aetheris.protocol.plan.graph import EffectKind
from aetheris.protocol.planning.invocation import Invocation
from aetheris.tool_executor.core.grants import ReceivedGrant
from aetheris.tool_executor.core.partition import Drop, LoadResults, Partition
from aetheris.tool_executor.core.tries import CallRefusal, DeclaredInvocation, Worker
from aetheris.tool_executor.core.unread_tries import UnreadTries
from tests.testkit.histories import JOB, created, graph, key_of, planned
from tests.testkit.tries import secret_of


@dataclass
class CoreBench:
    """A partition, fed by hand."""

    refusal: CallRefusal | None = None
    core: Partition = field(init=False)
    unread: UnreadTries = field(default_factory=UnreadTries)
    offset: int = -1
    graph_hash: str = ""
    _tries: Any = field(default_factory=count)

    def __post_init__(self) -> None:
        self.core = Partition(Worker("w-1", "i-1"), self._refuses, lambda _: EffectKind.TOOL, self.unread)

    def _refuses(self, _call: Invocation) -> CallRefusal | None:
        return self.refusal

    def log(self, *events: ev.Event) -> Any:
        """Fold events; what the last came to."""
        reported = None
        for event in events:
            self.offset += 1
            reported = self.core.evolve(event, self.offset)
            if isinstance(event, ev.PlanGenerated):
                self.graph_hash = event.plan_hash
        return reported

    def grant(self, *nodes: str, key: str | None = None, **fields: Any) -> ReceivedGrant:
        base: dict[str, Any] = {
            "job_id": JOB,
            "birth": 0,
            "as_of": self.offset,
            "revision": 0,
            "plan_hash": self.graph_hash,
            "nodes": nodes,
            "idempotency_key": key or key_of(nodes[0]),
        } | {"token": 1, "lease_id": "l", "deadline_s": 30.0}
        return ReceivedGrant(ToolGrant.model_validate(base | fields), "cause-1", 7)

    def judge(self, *nodes: str, **fields: Any) -> DeclaredInvocation | LoadResults | Drop:
        return self.core.judge(self.grant(*nodes, **fields), secret_of(f"n{next(self._tries)}"))

    def declared(self, *nodes: str, **fields: Any) -> DeclaredInvocation:
        verdict = self.judge(*nodes, **fields)
        assert isinstance(verdict, DeclaredInvocation), verdict
        return verdict


def bench(*nodes: dict[str, Any], **tools: dict[str, Any]) -> CoreBench:
    made = CoreBench()
    made.log(created(), planned(graph(*(nodes or ({"id": "a"},)), **tools)))
    return made
