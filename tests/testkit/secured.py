"""A running system as a stranger, a neighbour and a thief find it: https, several people, two tenants, a secret."""

import json
import ssl
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import pytest

from aetheris.cli.embedded.plan import Plan
from aetheris.protocol.base.principals import Role
from tests.testkit.approvers import TENANTS
from tests.testkit.authority import Authority
from tests.testkit.canary import Canary
from tests.testkit.collector import Collector, running_collector
from tests.testkit.external_server import running_outside, until
from tests.testkit.identity import SigningSite, running_provider
from tests.testkit.policies import ALLOW_REST, ruled_by
from tests.testkit.rig import Rig
from tests.testkit.system import REPOSITORY, System, running_system
from tests.testkit.tokens import entry_of, headers_of, write_tokens

PATIENCE_S = 60.0
TOOLS = ("external_tools", "secret_tools", "fetching_tools")
POLICY = f"""
[[rules]]
name = "ask"
tools = ["*"]
irreversible = true
effect = "approval"
{ALLOW_REST}"""


@dataclass(frozen=True)
class SecuredRig(Rig):
    """Ann, Bob and Carol are of one tenant; Eve is of another, and administers nothing.

    Requests carry Ann's token where they don't say.
    """

    folder: Path
    ca: Path
    canary: Canary
    collector: Collector
    provider: SigningSite

    @property
    def url(self) -> str:
        """The gateway's."""
        return self.system.state().gateway

    @property
    def verifier(self) -> str:
        """The verifier's, as the gateway is told it."""
        (gateway,) = (part for part in Plan.load(self.system.data).parts if part.name == "gateway-0")
        return gateway.env["AETHERIS_VERIFIER_URL"]

    @property
    def trusting(self) -> ssl.SSLContext:
        """Of a client who trusts the certificate's CA, and nobody else."""
        return ssl.create_default_context(cafile=self.ca)

    @cached_property
    def stranger(self) -> httpx.Client:
        """A client without a token."""
        return httpx.Client(verify=self.trusting, timeout=PATIENCE_S, trust_env=False)

    def ask(self, who: str, method: str, path: str, **request: Any) -> httpx.Response:
        """One request of theirs."""
        headers = headers_of(who) | request.pop("headers", {})
        return self.stranger.request(method, f"{self.url}{path}", headers=headers, **request)

    def step(self, job: str) -> dict[str, Any]:
        """The only step of a job, once the planner has taken the job up."""
        until(lambda: self.system.job(job).get("steps"), PATIENCE_S)  # pyright: ignore[reportArgumentType]
        (step,) = self.system.job(job)["steps"]
        return step

    def asks(self, job: str) -> str:
        """The open request for a human's word about the job's only step, once there is one."""
        until(lambda: self.step(job).get("request_id") is not None, PATIENCE_S)
        return self.step(job)["request_id"]


@contextmanager
def running_secured(folder: Path) -> Generator[SecuredRig]:
    """Up, and down again."""
    authority, canary = Authority(folder / "ca"), Canary.laid(folder)
    shown = authority.sign("services")
    https = {
        "AETHERIS_HTTP_CERT": str(shown.certificate),
        "AETHERIS_HTTP_KEY": str(shown.key),
        "AETHERIS_CA": str(authority.ca),
    }
    neighbour = entry_of("eve", TENANTS["eve"], roles=[role for role in Role if role is not Role.ADMINISTER])
    write_tokens(folder / "data", {who: tenant for who, tenant in TENANTS.items() if who != "eve"}, neighbour)
    tools = {"AETHERIS_TOOLS": ",".join(f"tests.testkit.{name}" for name in TOOLS)}
    with pytest.MonkeyPatch.context() as environment, running_collector() as collector, running_provider() as provider:
        (folder / "providers.toml").write_text(provider.believed)
        for name, value in (https | {"PYTHONPATH": str(REPOSITORY)}).items():
            environment.setenv(name, value)
        with running_outside(folder / "outside") as external:
            login = {"AETHERIS_OIDC": str(folder / "providers.toml")}
            env = https | login | tools | canary.env | collector.env | external.env | ruled_by(folder, POLICY)
            with running_system(folder / "data", env) as up:
                api = _api_of_ann(up, authority.ca)
                rig = SecuredRig(System(up.data, api), external, folder, authority.ca, canary, collector, provider)
                until(lambda: "fetch" in json.dumps(rig.system.api.get("/tools").json()), PATIENCE_S)
                with closing(rig.stranger), closing(rig.system.api):
                    yield rig


def _api_of_ann(up: System, ca: Path) -> httpx.Client:
    """What the system's own client is not: one who trusts the CA."""
    base, context = f"{up.state().gateway}/api", ssl.create_default_context(cafile=ca)
    return httpx.Client(base_url=base, headers=headers_of("ann"), verify=context, timeout=PATIENCE_S, trust_env=False)
