"""The services as processes, each with a user of its own at Redis."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import httpx

from aetheris.cli import token_files
from aetheris.cli.embedded.ports import Ports
from aetheris.runtime.kafka.admin import ensure_topics
from tests.testkit.external_server import running_outside, until
from tests.testkit.guarded_valkey import USERS
from tests.testkit.rig import Rig
from tests.testkit.services import SERVICES, asked, processes
from tests.testkit.system import System
from tests.testkit.tokens import headers_of, write_tokens

PATIENCE_S = 120.0


@contextmanager
def services_by_user(folder: Path, kafka: str, url_of: Callable[[str], str]) -> Generator[Rig]:
    """Ready; `url_of`: where Redis is for the user of a name."""
    asyncio.run(ensure_topics(kafka, 4))
    write_tokens(folder, {"n": "default", token_files.APPROVER: "default"})
    ports = Ports(folder)
    with running_outside(folder / "outside") as external:
        settings = external.env | {
            "AETHERIS_KAFKA": kafka,
            "AETHERIS_DATA": str(folder),
            "AETHERIS_DEV": "1",
            "AETHERIS_TOOLS": "tests.testkit.external_tools",
            "AETHERIS_VERIFIER_URL": f"http://127.0.0.1:{ports.get('verifier-http')}",
            "AETHERIS_LEASE_TTL_S": "2",
        }
        named = {service: service.replace("_", "-") for service in SERVICES}
        own = {service: {"AETHERIS_REDIS": url_of(user)} for service, user in named.items() if user in USERS["RULES"]}
        with processes(folder, settings, own) as running:
            until(lambda: all(asked(port, "/readyz")[0] == 200 for _, port in running.values()), PATIENCE_S)
            url = f"http://127.0.0.1:{Ports(folder).get('gateway-http')}/api"
            with httpx.Client(base_url=url, headers=headers_of("n"), timeout=20, trust_env=False) as api:
                yield Rig(System(folder, api), external)
