"""Who comes by an OpenID provider that nobody here wrote, npm's oidc-provider: its keys, their rotation, its end."""

import json
import subprocess
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from shutil import which
from typing import Any

import httpx
import pytest
from joserfc.jwk import RSAKey

from aetheris.cli.embedded.ports import Ports
from aetheris.gateway.app import gateway
from aetheris.gateway.settings import GatewaySettings
from aetheris.protocol.messages.commands import Submit
from tests.testkit.gateways import PLAN, eventually, running, settings_of
from tests.testkit.system import REPOSITORY
from tests.testkit.tokens import token_of, write_tokens

pytestmark = [
    pytest.mark.full,
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.skipif(which("npm") is None, reason="npm is not installed"),
]

VERSION = "9.13.3"
SCRIPT = REPOSITORY / "tests" / "testkit" / "openid_provider.mjs"
PROVIDERS = """
[[provider]]
issuer = "{issuer}"
audience = ["aetheris"]

[provider.claims]
tenant = "org"
kind = "kind"
roles = "groups"

[provider.kind_names]
bot = "agent"
human = "person"

[provider.role_names]
submitters = ["submit"]
payouts = ["approve", "read"]
"""


@dataclass
class NodeProvider:
    """The provider's process, and the keys that it signs with, the first of them."""

    folder: Path
    port: int
    keys: list[RSAKey] = field(default_factory=list[RSAKey])

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def up(self, *keys: RSAKey) -> Generator[None]:
        named = self.folder / "keys.json"
        named.write_text(json.dumps({"keys": [key.as_dict(private=True) for key in keys]}))
        argv = ["node", str(SCRIPT), str(self.port), str(named)]
        with (
            (self.folder / "provider.log").open("w") as log,
            subprocess.Popen(argv, cwd=self.folder, stdout=subprocess.PIPE, stderr=log, text=True) as process,
        ):
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "listening\n", (self.folder / "provider.log").read_text()
                yield
            finally:
                process.terminate()

    def token(self, who: str, audience: str = "urn:aetheris") -> str:
        """What the provider gives a client, by its own word."""
        asked = {"grant_type": "client_credentials", "resource": audience, "scope": "use"}
        answer = httpx.post(f"{self.issuer}/token", auth=(who, f"secret-of-{who}"), data=asked)
        assert answer.status_code == 200, answer.text
        return answer.json()["access_token"]


def signing_key(name: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": name, "use": "sig", "alg": "RS256"})


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> NodeProvider:
    folder = tmp_path_factory.mktemp("provider")
    install = ["npm", "install", "--no-audit", "--no-fund", f"oidc-provider@{VERSION}"]
    subprocess.run(install, cwd=folder, check=True, capture_output=True)
    return NodeProvider(folder, Ports(folder).get("provider"))


@pytest.fixture
def settings(kafka: str, valkey_url: str, tmp_path: Path, provider: NodeProvider) -> GatewaySettings:
    (tmp_path / "oidc.toml").write_text(PROVIDERS.format(issuer=provider.issuer))
    return settings_of(kafka, valkey_url, tmp_path, oidc=tmp_path / "oidc.toml")


async def asked(url: str, token: str, path: str, plan: Any = None) -> tuple[int, Any]:
    """(the status of an answer, the code of what it refuses or else all of it); with a plan, that is submitted."""
    async with httpx.AsyncClient(base_url=f"{url}/api", timeout=30) as http:
        body = None if plan is None else {"plan": plan}
        headers = {"authorization": f"Bearer {token}"}
        answer = await http.request("GET" if plan is None else "POST", path, headers=headers, json=body)
        said = answer.json()
        return answer.status_code, said["error"]["code"] if "error" in said else said


async def test_a_providers_clients_may_do_what_their_claims_say(
    settings: GatewaySettings, provider: NodeProvider
) -> None:
    one, two = signing_key("one"), signing_key("two")
    async with AsyncExitStack() as system:
        with provider.up(one):
            world = await system.enter_async_context(running(settings))
            ask = partial(asked, world.url)
            robot, clerk, lost = (provider.token(who) for who in ("robot", "clerk", "lost"))
            elsewhere = provider.token("robot", "urn:billing")
            status, taken = await ask(robot, "/jobs", PLAN)
            assert status == 202, taken
            submitted = (await world.command(taken["job_id"], Submit)).body
            assert isinstance(submitted, Submit)
            assert (submitted.by, submitted.tenant) == ("robot", "acme")
            assert await ask(robot, "/jobs") == (403, "missing_role")
            assert (await ask(clerk, "/approvals"))[0] == 200
            assert await ask(clerk, "/jobs", PLAN) == (403, "missing_role")
            for refused in (lost, elsewhere, f"{robot[:-6]}AAAAAA"):
                assert await ask(refused, "/tools") == (401, "unauthorized")
        with provider.up(two, one):
            rotated = provider.token("clerk")

            async def is_known() -> bool:
                return (await ask(rotated, "/approvals"))[0] == 200

            await eventually(is_known)
            assert (await ask(clerk, "/approvals"))[0] == 200
        assert (await ask(rotated, "/approvals"))[0] == 200  # known, while the provider is away


async def test_a_gateway_starts_without_its_provider_and_says_that_it_cannot_tell(
    settings: GatewaySettings, provider: NodeProvider
) -> None:
    with provider.up(signing_key("one")):
        clerk = provider.token("clerk")
    write_tokens(settings.data, {"ann": "acme"})
    async with gateway(settings) as http:
        ask = partial(asked, f"http://127.0.0.1:{http.port}")
        assert await ask(clerk, "/tools") == (503, "provider_unreachable")
        assert (await ask(token_of("ann"), "/tools"))[0] == 200
