"""What several jobs spent, put together: no limit stands beside a sum, since there is none."""

from aetheris.gateway.core.spendings import SpentJob, budgets_of, spendings
from aetheris.protocol.plan.prompts import Limits
from aetheris.protocol.planning.answers import Spent
from aetheris.protocol.planning.policy import parse
from aetheris.views.spending import RuleCharges, Spending

POLICY = parse(
    '[[rules]]\nname = "sums"\ntools = ["pay"]\neffect = "allow"\nbudget = {amount = "amount", most = 100}\n'
    '[[rules]]\nname = "few"\ntools = ["*"]\neffect = "allow"\nbudget = {calls = 3}\n'
)


def job(name: str, agent: str, spent: float, answers: Spent | None = None) -> SpentJob:
    limits = Limits(cost_usd=1) if answers is not None else None
    rules = {"sums": RuleCharges(2, spent), "few": RuleCharges(1, 1)} if spent else {}
    return SpentJob(name, "running", "2026-03-01T09:30:00Z", Spending(agent, rules, answers or Spent(), limits))


def test_sums_have_no_limit_and_jobs_have_that_of_the_policy_in_force() -> None:
    jobs = [job("one", "ann", 60), job("two", "ann", 70), job("three", "bob", 5), job("four", "bob", 0)]
    found = spendings(jobs, "acme", budgets_of(POLICY), 9, is_whole=True)
    assert [one.job_id for one in found.jobs] == ["one", "two", "three"], "who has spent nothing is left out"
    sums = {one.rule: one for one in found.tenant.rules}
    assert (sums["sums"].spent, sums["sums"].calls, sums["sums"].limit, sums["sums"].counts) == (135, 6, None, "amount")
    assert (sums["few"].spent, sums["few"].counts) == (3, "calls")
    assert [(one.name, one.jobs, one.rules[1].spent) for one in found.agents] == [("ann", 2, 130), ("bob", 1, 5)]
    first = {one.rule: one for one in found.jobs[0].rules}
    assert (first["sums"].limit, first["few"].limit) == (100, 3)


def test_a_rule_that_the_policy_has_no_more_is_shown_without_a_limit() -> None:
    (found,) = spendings([job("one", "ann", 60)], "acme", {}, 1, is_whole=False).jobs
    assert [(one.rule, one.limit, one.counts) for one in found.rules] == [("few", None, None), ("sums", None, None)]


def test_one_price_that_is_not_known_makes_the_sum_unknown() -> None:
    jobs = [job("one", "ann", 1, Spent(10, 0.5)), job("two", "ann", 1, Spent(20, None)), job("three", "bob", 1)]
    found = spendings(jobs, "acme", {}, 3, is_whole=True)
    assert found.tenant.answers is not None
    assert (found.tenant.answers.tokens, found.tenant.answers.cost_usd) == (30, None)
    assert found.jobs[0].answers is not None
    assert found.jobs[0].answers.cost_usd_limit == 1
    assert found.agents[1].answers is None
