"""The rendered local overlay, really started as pods: a job runs through them, and survives their kills."""

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from aetheris.cli.embedded.ports import Ports
from tests.deploy.containers import (
    BASE,
    SHELL_LESS,
    Engine,
    Pods,
    build_images,
    engine,
    engine_needed,
    local_overlay,
    play,
)
from tests.deploy.manifests import SERVICES, kubectl_needed
from tests.testkit import external_tools
from tests.testkit.attempts import fresh
from tests.testkit.external_server import running_outside
from tests.testkit.rig import Rig
from tests.testkit.services import valkey_on_a_port
from tests.testkit.system import System

pytestmark = [pytest.mark.full, pytest.mark.real, pytest.mark.timeout(1800), kubectl_needed, engine_needed]

MOST_BYTES = 200_000_000
"""What an image may have on top of its base."""

TOKEN = "local-development-on-your-own-machine"  # noqa: S105 - of deploy/overlays/local/tokens.toml


@dataclass(frozen=True)
class PodsRig(Rig):
    """Its services are `pods`."""

    pods: Pods

    def wait_completed(self, job: str) -> None:
        """Return once the job has; show the services' words where it hasn't."""
        try:
            self.system.wait_status(job, "completed", 180)
        except TimeoutError:
            body = {service: self.pods.logs(service)[-1000:] for service in SERVICES}
            raise AssertionError(f"{self.system.job(job)}\n{body}") from None


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Generator[Engine]:
    folder = tmp_path_factory.mktemp("containers")
    with engine(folder / "engine") as found:
        build_images(found, Path(external_tools.__file__))
        yield found


@pytest.fixture(scope="module")
def rig(images: Engine, kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Generator[PodsRig]:
    folder = tmp_path_factory.mktemp("pods")
    free = Ports(folder)
    with running_outside(folder / "outside") as external, valkey_on_a_port(folder, free.get("valkey")) as redis:
        ports = {
            service: {f"AETHERIS_{kind}_PORT": free.get(f"{service}-{kind}") for kind in ("HEALTH", "HTTP")}
            for service in SERVICES
        }
        settings = external.env | {
            "AETHERIS_KAFKA": kafka,
            "AETHERIS_LISTEN": "127.0.0.1",
            "AETHERIS_VERIFIER_URL": f"http://127.0.0.1:{ports['verifier']['AETHERIS_HTTP_PORT']}",
        }
        pods = play(images, local_overlay(folder, settings, redis, ports), ports)
        pods.wait_ready()
        url = f"http://127.0.0.1:{ports['gateway']['AETHERIS_HTTP_PORT']}/api"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with httpx.Client(base_url=url, headers=headers, timeout=20, trust_env=False) as api:
            yield PodsRig(System(folder, api), external, pods)


def poke(node: str, tag: str, *after: str, tool: str = "poke_probeable", **args: Any) -> dict[str, Any]:
    return {"id": node, "tool": tool, "args": {"tag": f"{tag}-{node}", **args}, "depends_on": list(after)}


def test_an_image_is_small_has_no_root_and_no_shell(images: Engine) -> None:
    base = images.inspect(BASE, ".Size")
    assert images.inspect(SHELL_LESS, ".Size") < base
    for service in SERVICES:
        image = f"localhost/aetheris/{service}"
        assert images.inspect(image, ".Size") - base < MOST_BYTES
        assert images.inspect(image, ".Config.User") == "10001:10001"
        with pytest.raises(AssertionError, match=r"no such file|not found"):
            images.podman("run", "--rm", "--network", "none", "--entrypoint", "/bin/sh", image, "-c", "true")


def test_a_pod_is_restricted(rig: PodsRig) -> None:
    for service in SERVICES:
        container, pid = rig.pods.container(service), rig.pods.pid(service)
        assert rig.pods.engine.inspect(container, ".HostConfig.ReadonlyRootfs") is True
        status = dict(
            line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
        )
        assert status["Uid"].split() == ["10001"] * 4
        assert (int(status["CapEff"], 16), status["NoNewPrivs"], status["Seccomp"]) == (0, "1", "2")
    assert sorted(rig.pods.alive()) == sorted(SERVICES)


def test_a_job_goes_through_pods_that_are_killed_in_the_middle(rig: PodsRig) -> None:
    tag = fresh("pods")
    held = rig.external.hold(f"{tag}-middle")
    job = rig.system.submit(
        poke("before", tag),
        poke("middle", tag, "before", hold=held.name),
        poke("after", tag, "middle", tool="poke_idempotent"),
    )
    rig.external.wait_for(1, f"{tag}-middle", 60)
    rig.pods.kill("tool-executor")
    held.unlink()
    rig.wait_completed(job)
    types = rig.system.types(job)
    assert {"worker_ended", "invocation_probed"} <= set(types), (
        "its successor says that it ended, the external system is asked"
    )

    held = rig.external.hold(f"{tag}-second")
    other = rig.system.submit(
        poke("first", tag), poke("second", tag, "first", hold=held.name), poke("third", tag, "second")
    )
    rig.external.wait_for(1, f"{tag}-second", 60)
    for service in ("planner", "ledger", "prober", "verifier", "gateway"):
        rig.pods.kill(service)
    held.unlink()
    rig.pods.wait_ready()
    rig.wait_completed(other)

    for node in ("before", "middle", "after", "first", "second", "third"):
        assert rig.external.count(f"{tag}-{node}") == 1, node
    for one in (job, other):
        rig.system.verified(one)


def test_a_pod_ends_within_its_grace(rig: PodsRig) -> None:
    assert rig.pods.stop() == dict.fromkeys(SERVICES, 0)
