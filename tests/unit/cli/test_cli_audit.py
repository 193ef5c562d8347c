"""`aetheris audit`: what is shown, and that changed records are told."""

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from aetheris.cli.app import app
from aetheris.cli.commands import audit
from aetheris.protocol.messages.accesses import NO_HEAD, chained, of_chain

BODIES: Sequence[dict[str, Any]] = (
    {"action": "started", "at": "2026-01-01T00:00:00Z"},
    {
        "action": "read",
        "at": "2026-01-01T00:00:01Z",
        "tenant": "acme",
        "principal": {"id": "ann", "kind": "person", "roles": ["read_payloads"]},
        "route": "GET /api/jobs/{job_id}",
        "subject": "job-1",
        "status": 200,
    },
    {"action": "lost", "at": "2026-01-01T00:00:02Z", "count": 7},
)


def chain() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number, body in enumerate(BODIES, 1):
        previous = found[-1]["head"] if found else NO_HEAD
        found.append(chained(body, "gw", number, previous).model_dump(mode="json", exclude_none=True))
    return found


class Pages:
    """A client whose gateway has these records, one a page."""

    def __init__(self, records: Sequence[dict[str, Any]]) -> None:
        self.records = records

    def audit(self, *, since: str | None, cursor: str | None) -> dict[str, Any]:
        place = int(cursor or 0)
        following = str(place + 1) if place + 1 < len(self.records) else None
        return {"records": [self.records[place]], "cursor": following, "whole": since is None}


def call(monkeypatch: pytest.MonkeyPatch, records: Sequence[dict[str, Any]], *argv: str) -> Result:
    @contextmanager
    def connected(_data: Path, _who: str | None) -> Generator[Pages]:
        yield Pages(records)

    monkeypatch.setattr(audit, "connected", connected)
    return CliRunner().invoke(app, ["audit", *argv])


def test_who_did_what_is_listed_and_the_chain_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = call(monkeypatch, chain())
    assert shown.exit_code == 0, shown.output
    assert all(word in shown.output for word in ("ann", "job-1", "7 times", "3 records of 1 gateways: 0 faults"))
    wanted = json.loads(call(monkeypatch, chain(), "--principal", "ann", "--json").stdout)
    assert [one["subject"] for one in wanted["records"]] == ["job-1"]
    assert json.loads(call(monkeypatch, chain(), "--tenant", "other", "--json").stdout)["records"] == []


def test_records_that_were_changed_or_taken_out_end_it_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = chain()
    changed = call(monkeypatch, [first, second | {"subject": "job-2"}, third])
    assert (changed.exit_code, "record 2: is not as it was written" in changed.output) == (1, True)
    assert call(monkeypatch, [first, third]).exit_code == 1
    assert call(monkeypatch, [first, of_chain(second), third]).exit_code == 0
    assert call(monkeypatch, [second, third]).exit_code == 1
    assert call(monkeypatch, [second, third], "--since", "2h").exit_code == 0


@pytest.mark.parametrize("since", ["soon", "2026-01-01", "0h", "2026-01-01T00:00:00"])
def test_a_time_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch, since: str) -> None:
    shown = call(monkeypatch, chain(), "--since", since)
    assert (shown.exit_code, "--since" in shown.output) == (2, True)
