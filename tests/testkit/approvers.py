"""A system of several people: who submits and who decides are not one."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.testkit.policies import ruled_by
from tests.testkit.rig import Rig, running_rig
from tests.testkit.system import System
from tests.testkit.tokens import headers_of, write_tokens

TENANTS = {"ann": "acme", "bob": "acme", "carol": "acme", "eve": "other"}


def respond(system: System, who: str, request: str, action: str = "approve", **more: Any) -> httpx.Response:
    """Their answer to a request for a human's word."""
    body = {"request_id": request, "action": action, **more}
    return system.api.post("/ecs/respond", json=body, headers=headers_of(who))


@contextmanager
def running_approvers(folder: Path, policy: str) -> Generator[Rig]:
    """A rig of Ann, who submits where nobody else is named, Bob and Carol; and Eve, who is of another tenant."""
    write_tokens(folder / "data", TENANTS)
    with running_rig(folder, ruled_by(folder, policy)) as rig:
        yield rig
