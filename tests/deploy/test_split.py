"""Services that are cut off from Redis or from the broker: nothing is done twice, and they recover without a hand."""

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from aetheris.cli.embedded.kafka import Broker, Tuning, install, running_broker
from aetheris.cli.embedded.ports import Ports
from tests.deploy.namespaces import HUB, Host, namespaces_needed, network
from tests.testkit.attempts import fresh
from tests.testkit.external_server import running_outside, until
from tests.testkit.rig import Rig
from tests.testkit.services import SERVICES, asked, processes, valkey_on_a_port
from tests.testkit.system import System
from tests.testkit.tokens import headers_of, write_tokens

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(600), namespaces_needed]

PATIENCE_S = 180.0
LEASE_S = 3.0


@dataclass(frozen=True)
class SplitRig(Rig):
    """Each service is a host of its own."""

    hosts: dict[str, Host]
    ports: dict[str, int]
    """Of what a host may be split from."""
    health: dict[str, int]

    def unready(self, service: str) -> dict[str, str]:
        """What it says isn't ready."""
        return asked(self.health[service], "/readyz", self.hosts[service].address)[1].get("unready", {"": "silent"})

    def wait_ready(self) -> None:
        """Return once every service is."""
        try:
            until(lambda: not any(map(self.unready, SERVICES)), PATIENCE_S)
        except TimeoutError:
            body = {name: (self.system.data / f"{name}.log").read_text()[-600:] for name in SERVICES}
            raise AssertionError(f"{ {name: self.unready(name) for name in SERVICES} }\n{body}") from None


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[SplitRig]:
    folder = tmp_path_factory.mktemp("split")
    write_tokens(folder, {"n": "default"})
    ports = Ports(folder)
    installation = install(lambda _part, _message: None)
    names = ("kafka", "kafka-hub", "controller", "redis", "verifier-http", "gateway-http")
    at = {name: ports.get(name) for name in names}
    listeners = f"PLAINTEXT://127.0.0.1:{at['kafka']},HUB://{HUB}:{at['kafka-hub']}"
    properties = {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{at['controller']}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,HUB:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    broker = Broker(installation, folder / "broker", at["kafka"], at["controller"], Tuning(properties=properties))
    with (
        network(*SERVICES) as hosts,
        running_broker(broker, folder / "kafka.log"),
        valkey_on_a_port(folder, at["redis"], HUB) as redis,
        running_outside(folder / "outside", HUB) as external,
    ):
        settings = external.env | {
            "AETHERIS_KAFKA": f"{HUB}:{at['kafka-hub']}",
            "AETHERIS_REDIS": redis,
            "AETHERIS_DATA": str(folder),
            "AETHERIS_DEV": "true",
            "AETHERIS_LISTEN": "0.0.0.0",
            "AETHERIS_TOOLS": "tests.testkit.external_tools",
            "AETHERIS_VERIFIER_URL": f"http://{hosts['verifier'].address}:{at['verifier-http']}",
            "AETHERIS_LEASE_TTL_S": str(LEASE_S),
            "AETHERIS_SESSION_TIMEOUT_S": "3",
        }
        within = {name: host.within for name, host in hosts.items()}
        with processes(folder, settings, within=within) as running:
            url = f"http://{hosts['gateway'].address}:{at['gateway-http']}/api"
            headers = headers_of("n")
            with httpx.Client(base_url=url, headers=headers, timeout=20, trust_env=False) as api:
                split = {"redis": at["redis"], "broker": at["kafka-hub"]}
                health = {service: port for service, (_, port) in running.items()}
                yield SplitRig(System(folder, api), external, hosts, split, health)


def poke(node: str, tag: str, *after: str, tool: str = "poke_probeable", **args: Any) -> dict[str, Any]:
    return {"id": node, "tool": tool, "args": {"tag": f"{tag}-{node}", **args}, "depends_on": list(after)}


@pytest.mark.parametrize("how", ["drop", "reset"])
@pytest.mark.parametrize(
    ("who", "what", "missed"),
    [("tool_executor", "redis", "redis"), ("tool_executor", "broker", "log"), ("ledger", "redis", "redis")],
)
def test_a_split_duplicates_nothing_and_heals_by_itself(
    rig: SplitRig, who: str, what: str, missed: str, how: str
) -> None:
    rig.wait_ready()
    host, name = rig.hosts[who], fresh(f"{who}-{what}-{how}")
    held = rig.external.hold(name)
    during = rig.system.submit(poke("a", f"{name}-0", hold=name), poke("b", f"{name}-0", "a"))
    rig.external.wait_for(1, f"{name}-0-a", PATIENCE_S)
    with host.split_from(rig.ports[what], how) as stopped:
        jobs = [
            rig.system.submit(poke("a", f"{name}-{number}"), poke("b", f"{name}-{number}", "a", tool="poke_idempotent"))
            for number in range(1, 9)
        ]
        held.unlink()  # a call comes home to a split
        until(lambda: missed in rig.unready(who), PATIENCE_S)
        assert stopped() > 0
    rig.system.wait_ended([during, *jobs], PATIENCE_S)
    for number, job in enumerate([during, *jobs]):
        assert rig.system.job(job)["status"] == "completed"
        assert [rig.external.count(f"{name}-{number}-{node}") for node in "ab"] == [1, 1]
        rig.system.verified(job)
    rig.wait_ready()


@pytest.mark.parametrize("how", ["drop", "reset"])
@pytest.mark.parametrize("who", ["tool_executor", "ledger"])
def test_a_split_from_redis_that_is_shorter_than_a_lease_is_nobodys_doubt(rig: SplitRig, who: str, how: str) -> None:
    rig.wait_ready()
    name = fresh(f"short-{who}-{how}")
    held = rig.external.hold(name)
    begun_s = time.monotonic()
    during = rig.system.submit(poke("a", f"{name}-0", hold=name), poke("b", f"{name}-0", "a"))
    rig.external.wait_for(1, f"{name}-0-a", PATIENCE_S)
    with rig.hosts[who].split_from(rig.ports["redis"], how) as stopped:
        held.unlink()  # its effect can't be kept, or the next lease not be had
        begun = rig.system.submit(poke("a", f"{name}-1"), poke("b", f"{name}-1", "a"))
        until(lambda: stopped() > 0, PATIENCE_S)
    rig.system.wait_ended([during, begun], PATIENCE_S)
    lasted_s = time.monotonic() - begun_s
    for number, job in enumerate([during, begun]):
        assert rig.system.job(job)["status"] == "completed"
        assert [rig.external.count(f"{name}-{number}-{node}") for node in "ab"] == [1, 1]
        rig.system.verified(job)
        reported = set(rig.system.types(job))
        if lasted_s < LEASE_S:  # on a machine that stalls for longer, a lease may run out without any split
            assert not reported & {"invocation_in_doubt", "invocation_reopened", "invocation_parked"}, reported
