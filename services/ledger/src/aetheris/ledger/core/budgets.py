"""What a ledger remembers of its jobs' budgets and rates, and when a rate lets the next call begin."""

from datetime import timedelta

from aetheris.ledger.core.decisions import Now
from aetheris.protocol.planning.budgets import Account
from aetheris.protocol.planning.policy import Rule

Accounts = dict[str, Account]
"""By rule name."""


def wait_s(account: Account, rule: Rule, now: Now) -> float:
    """Seconds until the rate lets another call begin; 0 for now."""
    return max(0.0, account.free_at_s(rule, now.wall.timestamp()) - now.wall.timestamp())


def due_after(now: Now, seconds: float | None) -> str | None:
    """The moment so many seconds from now, as text."""
    return (now.wall + timedelta(seconds=seconds)).isoformat() if seconds is not None else None
