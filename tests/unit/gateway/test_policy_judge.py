"""A policy is judged in a process of its own: it says what the trial says, and what takes too long is ended."""

import json
from collections.abc import Mapping
from typing import Any, cast

from aetheris.gateway.job_histories import StoredResults
from aetheris.gateway.policy_judge import wired
from aetheris.gateway.policy_trials import PolicyJudge
from aetheris.protocol.api_operations import PolicyTrialBody
from aetheris.protocol.planning.policy import parse
from aetheris.views.policy_trial import Trial
from tests.testkit.job_histories import records
from tests.unit.views.test_policy_trial import ALLOW, LITTLE, allowed, paid

NOTHING = cast("StoredResults", {})
PATIENCE_S = 120.0
"""A busy machine must not show as a process that does not start."""


def slow() -> str:
    """Each rule costs a part of a second, whatever the call: a list in a list, looked through."""
    numbers = ", ".join(str(n) for n in range(190))
    condition = f"[{numbers}].exists(x, x in [{numbers}] && x > 500)"
    rule = "[[rules]]\nname = 'r{}'\ntools = ['*']\nwhen = '{}'\neffect = 'deny'\n"
    return "".join(rule.format(at, condition) for at in range(140)) + ALLOW


def told(trial: Trial) -> dict[str, Any]:
    """As the process says it."""
    counts = {"calls": trial.calls, "unjudged": trial.unjudged, "differ": len(trial.differences)}
    return {**counts, "differences": [one.to_json() for one in trial.differences]}


async def judged(policy: str, *logs: Any, within_s: float = PATIENCE_S) -> list[Mapping[str, Any] | None]:
    async with PolicyJudge.of(PolicyTrialBody(policy=policy), PATIENCE_S) as judge:
        return [await judge.judged(records(*log), within_s, NOTHING) for log in logs]


async def test_it_says_what_the_trial_says_of_job_after_job() -> None:
    logs = (paid(), allowed())
    for policy in (ALLOW, LITTLE):
        expected: list[dict[str, Any]] = []
        for log in logs:
            trial = Trial(parse(policy))
            trial.judge(records(*log), {})
            expected.append(told(trial))
        assert await judged(policy, *logs) == expected
    assert any(one["differ"] for one in expected)


async def test_bytes_come_through_whatever_they_are() -> None:
    (first, *_) = records(*allowed())
    first.value = bytes(range(256))
    assert json.loads(json.dumps(wired([first])))[0][4].encode("latin-1") == bytes(range(256))


async def test_one_that_takes_too_long_is_ended() -> None:
    async with PolicyJudge.of(PolicyTrialBody(policy=slow()), PATIENCE_S) as judge:
        assert await judge.judged(records(*allowed()), 0.01, NOTHING) is None
        assert judge.process.returncode is None
    assert judge.process.returncode is not None


async def test_what_asks_for_a_result_that_is_gone_judges_the_rest() -> None:
    class Gone(dict[str, Any]):
        def __missing__(self, sha256: str) -> Any:
            raise KeyError(sha256)

    async with PolicyJudge.of(PolicyTrialBody(policy=LITTLE), PATIENCE_S) as judge:
        found = await judge.judged(records(*paid()), PATIENCE_S, cast("StoredResults", Gone()))
    assert found is not None
    assert found["calls"] == 1
