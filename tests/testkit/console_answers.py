"""What a stand-in for the gateway says of schedules, budgets, tenants, leases: with texts that no page may believe."""

from typing import Any

from tests.testkit.consoles import JOB, TIME, StandInGateway

HOSTILE = "<b>x</b>\u202e"
"""Markup, and a mark that turns the order of letters: pages show both as they are."""


def _start(kind: str, name: str, when: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "name": name, "when": when, **more}


_LAST = {"job_id": JOB, "at": TIME, "occasion": "due 2026-03-01T09:30:00+00:00", "status": "completed"}
SCHEDULES: dict[str, Any] = {
    "schedulers": [
        {
            "scheduler": "scheduler-0",
            "by": "scheduler",
            "at": TIME,
            "is_heard": True,
            "fault": None,
            "left_out": 0,
            "starts": [
                _start(
                    "schedule",
                    "nightly",
                    "30 2 * * 1-5 (Europe/Vienna); the last that was missed in 3600 s",
                    next_at="2026-03-02T01:30:00Z",
                    last=_LAST,
                ),
                _start(
                    "topic",
                    "orders",
                    "each message of shop.orders",
                    last={**_LAST, "job_id": "job-2", "status": "running", "occasion": "partition 3, offset 4711"},
                    refused={"code": "occasion", "at": TIME, "occasion": "partition 1, offset 17"},
                ),
                _start("webhook", "shop", "each signed delivery", waits="unavailable"),
            ],
        },
        {
            "scheduler": "scheduler-1",
            "by": "scheduler",
            "at": TIME,
            "is_heard": False,
            "fault": f"starts.toml:3: schedule 'x': cron: five fields {HOSTILE}",
            "left_out": 3,
            "starts": [],
        },
        {"scheduler": "old-scheduler", "by": "scheduler", "at": TIME, "is_heard": False, "starts": []},
    ]
}


def _spent(calls: int, spent: float, limit: float | None = None) -> dict[str, Any]:
    return {"rule": "small-payouts", "calls": calls, "spent": spent, "limit": limit, "counts": "amount"}


_CALLS = {"rule": "mails", "calls": 2, "spent": 2, "limit": 3, "counts": "calls"}
_ANSWERS = {"tokens": 48_211, "cost_usd": 0.3127, "tokens_limit": 1_000_000, "cost_usd_limit": 0.5}
BUDGETS: dict[str, Any] = {
    "tenant": {
        "name": "default",
        "jobs": 3,
        "rules": [_spent(7, 1710.5)],
        "answers": {"tokens": 48_211, "cost_usd": 0.3127},
    },
    "agents": [
        {"name": "agent-7", "jobs": 2, "rules": [_spent(6, 1460.5)]},
        {"name": HOSTILE, "jobs": 1, "rules": [_spent(1, 250)]},
    ],
    "jobs": [
        {
            "job_id": "job-4711",
            "status": "running",
            "created_at": TIME,
            "agent": "agent-7",
            "rules": [_spent(4, 960.5, 1000), _CALLS],
            "answers": _ANSWERS,
        },
        {"job_id": JOB, "status": "completed", "created_at": TIME, "agent": HOSTILE, "rules": [_spent(1, 250, 1000)]},
    ],
    "looked_at": 48,
    "is_whole": False,
}
QUOTAS: dict[str, Any] = {
    "tenants": [
        {
            "tenant": "default",
            "open_jobs": {"running": 2, "waiting": 1, "paused": 0},
            "limits": [
                {"name": "tenant.requests_per_s", "limit": 100, "left": 498},
                {"name": "token.requests_per_s", "limit": 20, "left": None},
                {"name": "tenant.open_jobs", "limit": 3, "left": 0},
            ],
        },
        {"tenant": HOSTILE, "open_jobs": {}, "limits": [{"name": "tenant.open_jobs", "limit": None, "left": None}]},
    ],
    "left_out": 4,
}
_LEASED = {"job_id": JOB, "node_id": "pay", "tool": "bank.payout", "worker_id": "executor-0", "token": 1}
LEASES: dict[str, Any] = {
    "leases": [
        {**_LEASED, "in_doubt": False, "ends_in_s": 8.6},
        {**_LEASED, "node_id": HOSTILE, "token": 2, "in_doubt": True, "ends_in_s": None},
    ],
    "is_whole": False,
}


def say_all(gateway: StandInGateway) -> None:
    """Beside what `say_operations`, or `say_policies`, says."""
    gateway.say("/schedules", SCHEDULES)
    gateway.say("/budgets", BUDGETS)
    gateway.say("/quotas", QUOTAS)
    gateway.say("/leases", LEASES)
    gateway.say(f"/jobs/{JOB}/leases", LEASES)
