"""Submissions of values of persons that come at once: who finds no room gives nobody a key, since keys stay."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from aetheris.gateway import hidden_submissions
from aetheris.gateway.core import personal_arguments, quotas
from aetheris.gateway.core.problems import TooMany
from aetheris.gateway.hidden_submissions import HiddenSubmissions
from aetheris.gateway.intake import Intake
from aetheris.gateway.limiter import Limiter
from tests.unit.gateway.test_personal_arguments import REGISTRY, SEND, raw

AT_ONCE = 20
CALLER: Any = SimpleNamespace(id="ann", tenant="acme", roles=(), recorded=None)


class CrowdedTenant:
    """Room for one job, and what came of those who asked for it."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.taken: list[str] = []

    async def enrolled(self, _tenant: str, subjects: Iterable[str]) -> dict[str, Any]:
        found = list(subjects)
        self.keys += found
        await asyncio.sleep(0)
        return {name: SimpleNamespace(k="2" * 32, key=b"k" * 32) for name in found}

    async def open_jobs(self, _tenant: str) -> dict[str, int]:
        return {"running": 0}

    async def listed(self, _job_id: str) -> None:
        """None is."""

    def newest(self) -> dict[str, Any]:
        return REGISTRY

    def models(self) -> dict[str, Any]:
        return {}

    def count(self, *_what: Any, **_where: Any) -> None:
        """Nobody looks at the metrics."""

    def monotonic(self) -> float:
        return 100.0

    @asynccontextmanager
    async def deadline(self) -> AsyncGenerator[None]:
        yield

    def intake(self) -> Intake:
        part: Any = self
        limiter = Limiter(quotas.parsed("[tenant]\nopen_jobs = 1"), part, part, part, part)
        stores: Any = SimpleNamespace(keys=part)
        names = (
            "reads",
            "reader",
            "writer",
            "waits",
            "feed",
            "index",
            "views",
            "rows",
            "registry",
            "deadlines",
            "clock",
        )
        parts: dict[str, Any] = dict.fromkeys((*names, "clock"), part)
        return Intake(**parts, limits=limiter, hidden=HiddenSubmissions(stores))


async def test_of_those_who_come_at_once_only_who_finds_room_makes_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    tenant = CrowdedTenant()

    async def taken(_self: Intake, command: Any, *_of: Any, **_as: Any) -> Any:
        tenant.taken.append(command.job_id)
        return SimpleNamespace(answer=lambda: command.job_id)

    async def none_stands(_self: Intake, _command: Any) -> None:
        """No job has this name."""

    monkeypatch.setattr(Intake, "_take", taken)
    monkeypatch.setattr(Intake, "_standing", none_stands)
    monkeypatch.setattr(personal_arguments, "hidden_submission", lambda command, *_of: command)
    monkeypatch.setattr(hidden_submissions, "sealed", lambda *_of: SimpleNamespace(value=None))
    bodies = [raw({**SEND, "args": {"who": f"p{number}", "to": "a@x"}}) for number in range(AT_ONCE)]
    intake = tenant.intake()
    asking = (intake.submit(CALLER, body, None) for body in bodies)
    found = await asyncio.gather(*asking, return_exceptions=True)
    assert sum(isinstance(one, TooMany) for one in found) == AT_ONCE - 1, found
    assert (len(tenant.taken), len(set(tenant.keys))) == (1, 1)
