"""What the calls of a job have taken of their rules' budgets and rates: folded from the log, in its order.

policy_allowed and approval_requested of a limited rule are the charges. Whether a charge is within its budget follows
from what lies before it in the log, so every ledger says the same, also where two of them charged at a time.
"""

from dataclasses import dataclass, field

from aetheris.protocol.planning.policy import Rule


@dataclass(frozen=True, slots=True)
class Charge:
    """What a call takes; `at_s` is when its event was appended, in seconds since 1970."""

    cost: float
    at_s: float
    is_within: bool


@dataclass(slots=True)
class Account:
    """The charges of one rule in one job; `asked` holds those that this process has appended and not yet folded."""

    taken: dict[str, Charge] = field(default_factory=dict)
    spent: float = 0.0
    coming: dict[str, Charge] = field(default_factory=dict)

    def take(self, rule: Rule | None, key: str, cost: float, at_s: float) -> None:
        """Fold a charge; the first of a key counts. Without a rule nothing limits it."""
        self.coming.pop(key, None)
        if key in self.taken:
            return
        is_within = rule is None or rule.budget is None or self.spent + cost <= rule.budget.limit
        self.taken[key] = Charge(cost, at_s, is_within)
        if is_within:
            self.spent += cost

    def give_back(self, key: str) -> None:
        """The call certainly has no effect, and never will have."""
        self.coming.pop(key, None)
        charge = self.taken.pop(key, None)
        if charge is not None and charge.is_within:
            self.spent -= charge.cost

    def allows(self, rule: Rule, key: str, cost: float, instead_of: str | None = None) -> bool:
        """Whether a call would stay within the budget; `instead_of` names the key that it replaces."""
        if rule.budget is None:
            return True
        replaced = self.taken.get(instead_of or "")
        given_back = replaced.cost if replaced is not None and replaced.is_within else 0.0
        coming = sum(charge.cost for other, charge in self.coming.items() if other != key)
        return self.spent - given_back + coming + cost <= rule.budget.limit

    def free_at_s(self, rule: Rule, now_s: float) -> float:
        """When a new call may begin by the rate, in seconds since 1970."""
        if rule.rate is None:
            return now_s
        since = now_s - rule.rate.per_s
        recent = sorted(
            charge.at_s for held in (self.taken, self.coming) for charge in held.values() if charge.at_s > since
        )
        if len(recent) < rule.rate.calls:
            return now_s
        return recent[-rule.rate.calls] + rule.rate.per_s

    def ask(self, key: str, cost: float, now_s: float) -> None:
        """Remember a charge that is about to be appended, at so many seconds since 1970."""
        self.coming[key] = Charge(cost, now_s, is_within=True)
