"""A system of several people: who submits and who decides are not one."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.testkit.policies import ruled_by
from tests.testkit.rig import Rig, running_rig
from tests.testkit.system import System

TENANTS = {"ann": "acme", "bob": "acme", "carol": "acme", "eve": "other"}
TOKENS = "".join(
    f'[[token]]\nvalue = "token-of-{who}"\nname = "{who}"\ntenant = "{tenant}"\n' for who, tenant in TENANTS.items()
)


def headers_of(who: str) -> dict[str, str]:
    """What a request of theirs carries."""
    return {"Authorization": f"Bearer token-of-{who}"}


def respond(system: System, who: str, request: str, action: str = "approve", **more: Any) -> httpx.Response:
    """Their answer to a request for a human's word."""
    body = {"request_id": request, "action": action, **more}
    return system.api.post("/ecs/respond", json=body, headers=headers_of(who))


@contextmanager
def running_approvers(folder: Path, policy: str) -> Generator[Rig]:
    """A rig of Ann, who submits where nobody else is named, Bob and Carol; and Eve, who is of another tenant."""
    (folder / "data").mkdir()
    (folder / "data" / "tokens.toml").write_text(TOKENS)
    with running_rig(folder, ruled_by(folder, policy)) as rig:
        yield rig
