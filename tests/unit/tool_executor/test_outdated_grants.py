"""A call whose grants are dropped again and again for their activation is counted, until it begins."""

import pytest
from structlog.testing import capture_logs

from aetheris.protocol.messages.commands import ToolGrant
from aetheris.runtime.telemetry.metrics import Metric, Metrics
from aetheris.tool_executor import outdated_grants
from aetheris.tool_executor.core.partition import EARLIER_POLICY, Drop
from aetheris.tool_executor.core.tries import DeclaredInvocation
from aetheris.tool_executor.outdated_grants import OutdatedGrants

DROPPED = Drop(EARLIER_POLICY)


class CountedMetrics(Metrics):
    """What was counted."""

    def __init__(self) -> None:
        super().__init__("tool_executor")
        self.counted: list[Metric] = []

    def count(self, metric: Metric, amount: int = 1, *, traceparent: bytes | None = None, **attributes: str) -> None:
        del amount, traceparent, attributes
        self.counted.append(metric)


def grant(key: str) -> ToolGrant:
    return ToolGrant.model_construct(job_id="job-1", idempotency_key=key, activation=1)


def test_the_first_is_to_be_expected_and_from_the_second_on_it_is_told() -> None:
    metrics = CountedMetrics()
    outdated = OutdatedGrants(metrics)
    with capture_logs() as logged:
        outdated.judged(grant("a"), DROPPED)
        outdated.judged(grant("b"), DROPPED)
        assert (metrics.counted, outdated.reported(), logged) == ([], 0, [])
        outdated.judged(grant("a"), DROPPED)
        outdated.judged(grant("a"), DROPPED)
    assert metrics.counted == [Metric.GRANTS_DROPPED] * 2
    assert outdated.reported() == 1
    assert [(line["job_id"], line["activation"]) for line in logged] == [("job-1", 1)] * 2
    outdated.judged(grant("a"), Drop("the job is paused"))
    assert outdated.reported() == 1
    outdated.judged(grant("a"), DeclaredInvocation.__new__(DeclaredInvocation))
    outdated.judged(grant("a"), DROPPED)
    assert (len(metrics.counted), outdated.reported()) == (2, 0)


def test_so_many_calls_are_remembered_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outdated_grants, "MOST", 2)
    outdated = OutdatedGrants(CountedMetrics())
    for key in "abcabc":
        outdated.judged(grant(key), DROPPED)
    assert outdated.reported() == 0
    outdated.judged(grant("c"), DROPPED)
    assert outdated.reported() == 1
