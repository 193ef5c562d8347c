"""Images and pods without a daemon: buildah and podman as root, with a storage of their own in the user's cache.

A registry is not needed: the base is made by debootstrap, once for a user. `podman kube play` knows Pods, so a
StatefulSet's or a Deployment's template becomes one; what podman 4 has no notion of (probes, claims of a template,
an emptyDir for each pod) is translated here, and nothing else is.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from base64 import b64decode
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from aetheris.cli.embedded.processes import exclusive
from tests.deploy.manifests import CACHE, DEPLOY, IMAGES, REPOSITORY, SERVICES, Manifest, name, render
from tests.testkit.external_server import until

STORAGE = CACHE / "aetheris" / "containers"
BASE = "localhost/debian-python"
SHELL_LESS = "localhost/debian-python-without-a-shell"
TRUST = "etc/ssl/certs/ca-certificates.crt"
SHELLS = ("sh", "bash", "dash", "rbash")
NEEDED = ("podman", "buildah", "runc", "catatonit", "debootstrap")

engine_needed = pytest.mark.skipif(
    os.geteuid() != 0 or any(shutil.which(tool) is None for tool in NEEDED),
    reason="pods need root and what `make system-deps-deploy` installs",
)

_CONF = """\
[containers]
default_ulimits=["nofile=20000:20000","nproc=4096:4096"]
[engine]
cgroup_manager="cgroupfs"
runtime="runc"
events_logger="file"
"""
_RUN = "/run/aetheris-containers"  # 50 characters at most
_STORED = ("--root", str(STORAGE), "--runroot", _RUN)
_BUILD = ("--layers", "--isolation", "oci", "--runtime", "runc", "--network", "host", "--ulimit", "nofile=20000:20000")
_READY_WITHIN_S = 120.0


@dataclass(frozen=True)
class Engine:
    """Podman and buildah on one storage; the folder is for what is handed to them."""

    folder: Path

    def podman(self, *argv: str, stdin: bytes = b"") -> str:
        """What a podman command prints."""
        return self._run(["podman", *_STORED, "--tmpdir", f"{_RUN}/state", *argv], stdin)

    def build(self, image: str, context: Path, **arguments: str) -> None:
        """An image from the context's Dockerfile."""
        given = [part for key, value in arguments.items() for part in ("--build-arg", f"{key}={value}")]
        self._run(["buildah", *_STORED, "build", *_BUILD, *given, "-t", image, str(context)])

    def inspect(self, what: str, field: str) -> Any:
        """A field of a container or an image, by its Go path."""
        return json.loads(self.podman("inspect", "--format", f"{{{{json {field}}}}}", what))

    def clear(self) -> None:
        """End and forget what ran."""
        self.podman("pod", "rm", "--all", "--force", "--time", "0")
        self.podman("volume", "rm", "--all", "--force")
        self.podman("secret", "rm", "--all")

    def _run(self, argv: list[str], stdin: bytes = b"") -> str:
        conf = self.folder / "containers.conf"
        conf.write_text(_CONF)
        env = {**os.environ, "CONTAINERS_CONF": str(conf)}
        done = subprocess.run(argv, input=stdin, capture_output=True, check=False, timeout=900, env=env)
        assert done.returncode == 0, f"{argv}: {done.stderr.decode()[-2000:]}"
        return (done.stderr if "logs" in argv else done.stdout).decode()


@contextmanager
def engine(folder: Path) -> Generator[Engine]:
    """An engine, one at a time on this machine; no pod, volume or secret is left, but layers are, for the next."""
    STORAGE.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True)
    with exclusive(STORAGE / "used.lock"):
        found = Engine(folder)
        found.clear()
        try:
            yield found
        finally:
            found.clear()


def build_images(found: Engine, tools: Path) -> None:
    """Every service's image on a base that has no shell; executor and prober with a module of tools on top."""
    for image, without in ((BASE, ()), (SHELL_LESS, SHELLS)):
        if not found.podman("images", "--quiet", image):
            _import_base(found, image, without)
    for service in SERVICES:
        module = IMAGES.get(service, service).replace("-", "_")
        found.build(f"localhost/aetheris/{service}", REPOSITORY, BASE=BASE, RUNTIME=SHELL_LESS, SERVICE=module)
    for service in ("tool-executor", "prober"):
        context = found.folder / f"{service}-tools"
        context.mkdir()
        shutil.copy(tools, context)
        (context / "Dockerfile").write_text(
            f"FROM localhost/aetheris/{service}\n"
            f"COPY {tools.name} /tools/{tools.name}\n"
            f"ENV PYTHONPATH=/tools AETHERIS_TOOLS={tools.stem}\n"
        )
        found.build(f"localhost/shop/{service}", context)


def _import_base(found: Engine, image: str, without: Iterable[str]) -> None:
    folder = found.folder / "base"
    folder.mkdir()
    subprocess.run(["tar", "-C", str(folder), "-xf", str(_base())], check=True)
    shutil.copy(f"/{TRUST}", folder / TRUST)  # whom this machine trusts, the build does
    for shell in without:
        (folder / "usr" / "bin" / shell).unlink(missing_ok=True)
    packed = found.folder / "base.tar"
    subprocess.run(["tar", "-C", str(folder), "-cf", str(packed), "."], check=True)
    changes = [f"ENV {variable}=/{TRUST}" for variable in ("SSL_CERT_FILE", "PIP_CERT")]
    found.podman("import", *(part for change in changes for part in ("--change", change)), str(packed), image)
    shutil.rmtree(folder)
    packed.unlink()


def _base() -> Path:
    """A Debian with Python, as a tar; made once for a user."""
    packed = CACHE / "aetheris" / "debian-python-bookworm.tar"
    if not packed.exists():
        folder, staged = packed.with_suffix(".folder"), packed.with_suffix(".new")
        shutil.rmtree(folder, ignore_errors=True)
        packed.parent.mkdir(parents=True, exist_ok=True)
        argv = ["debootstrap", "--variant=minbase", "--include=python3-minimal,python3-venv,ca-certificates"]
        subprocess.run([*argv, "bookworm", str(folder)], check=True, timeout=900, stdout=subprocess.DEVNULL)
        subprocess.run(["tar", "-C", str(folder), "-cf", str(staged), "."], check=True)
        staged.replace(packed)
        shutil.rmtree(folder)
    return packed


@dataclass(frozen=True)
class Pods:
    """Services as pods on this machine's loopback; each has the ports that its settings say."""

    engine: Engine
    health: Mapping[str, int]
    probes: Mapping[str, Mapping[str, str]]
    """Service → probe → path, as the manifests say."""

    def container(self, service: str) -> str:
        """What podman calls its container."""
        return f"{service}-0-service"

    def pid(self, service: str) -> int:
        """Its process, as this machine sees it; 0 while there is none."""
        return int(self.engine.inspect(self.container(service), ".State.Pid"))

    def kill(self, service: str) -> None:
        """kill -9, and return once there is a successor: a pod restarts its container, as kubelet does."""
        old = self.pid(service)
        os.kill(old, signal.SIGKILL)
        until(lambda: self.pid(service) not in (0, old), 30)

    def wait_ready(self) -> None:
        """Return once every pod answers its readiness probe, as kubelet asks it."""
        for service in self.health:
            self._wait_ready(service)

    def alive(self) -> list[str]:
        """Who answers its liveness probe."""
        return [service for service in self.health if self._answers(service, "livenessProbe")]

    def logs(self, service: str) -> str:
        """What it said."""
        return self.engine.podman("logs", self.container(service))

    def stop(self) -> dict[str, int]:
        """SIGTERM to all; their exit codes."""
        for service in self.health:
            self.engine.podman("pod", "stop", "--time", "40", f"{service}-0")
        return {service: self.engine.inspect(self.container(service), ".State.ExitCode") for service in self.health}

    def _wait_ready(self, service: str) -> None:
        try:
            until(lambda: self._answers(service, "readinessProbe"), _READY_WITHIN_S)
        except TimeoutError:
            raise AssertionError(f"{service}: {self.logs(service)[-2000:]}") from None

    def _answers(self, service: str, probe: str) -> bool:
        return _ok(self.health[service], self.probes[service][probe])


def play(found: Engine, rendered: Iterable[Manifest], ports: Mapping[str, Mapping[str, int]]) -> Pods:
    """Start the services' pods."""
    manifests = list(rendered)
    for secret in (one for one in manifests if one["kind"] == "Secret"):
        found.podman("secret", "create", name(secret), "-", stdin=_as_podman_reads(secret))
    translated = [part for one in manifests for part in _translated(one)]
    found.podman("kube", "play", "-", stdin=yaml.safe_dump_all(translated).encode())
    containers = {
        name(one): one["spec"]["template"]["spec"]["containers"][0]
        for one in manifests
        if one["kind"] in ("Deployment", "StatefulSet") and name(one) in SERVICES
    }
    probes = {
        service: {probe: container[probe]["httpGet"]["path"] for probe in ("readinessProbe", "livenessProbe")}
        for service, container in containers.items()
    }
    return Pods(found, {service: ports[service]["AETHERIS_HEALTH_PORT"] for service in containers}, probes)


def local_overlay(
    folder: Path, settings: Mapping[str, str], redis: str, ports: Mapping[str, Mapping[str, int]]
) -> tuple[Manifest, ...]:
    """deploy/overlays/local with other settings and images, and nothing else changed."""
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "aetheris",
        "resources": [os.path.relpath(DEPLOY / "overlays" / "local", folder)],
        "configMapGenerator": [
            {"name": "aetheris", "behavior": "merge", "literals": [f"{key}={value}" for key, value in settings.items()]}
        ],
        "secretGenerator": [{"name": "aetheris-redis", "behavior": "replace", "literals": [f"url={redis}"]}],
        "images": [
            {
                "name": f"aetheris/{service}",
                "newName": f"localhost/{'shop' if service in ('tool-executor', 'prober') else 'aetheris'}/{service}",
                "newTag": "latest",
            }
            for service in SERVICES
        ],
        "patches": [
            {
                "target": {"kind": "Deployment|StatefulSet", "name": service},
                "patch": yaml.safe_dump(
                    [
                        {
                            "op": "add",
                            "path": "/spec/template/spec/containers/0/env/-",
                            "value": {"name": key, "value": str(port)},
                        }
                        for key, port in own.items()
                    ]
                ),
            }
            for service, own in ports.items()
        ],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    return render(folder)


def _as_podman_reads(secret: Manifest) -> bytes:
    """Podman 4 reads a variable's secret as JSON in base64, and a volume's as YAML that is not decoded."""
    data: dict[str, str] = secret["data"]
    if "url" in data:
        return json.dumps(data).encode()
    return yaml.safe_dump({"data": {key: b64decode(value).decode() for key, value in data.items()}}).encode()


def _translated(manifest: Manifest) -> list[Manifest]:
    one = deepcopy(manifest)
    one["metadata"].pop("namespace", None)
    match one["kind"]:
        case "ConfigMap" | "PersistentVolumeClaim":
            return [one]
        case "Deployment" | "StatefulSet" if name(one) in SERVICES:
            return _pod(one)
        case _:
            return []


def _pod(workload: Manifest) -> list[Manifest]:
    """The first pod of a workload, with the claims of its own."""
    pod = f"{name(workload)}-0"
    spec = workload["spec"]["template"]["spec"]
    claims: list[Manifest] = []
    for template in workload["spec"].get("volumeClaimTemplates", []):
        claim = f"{template['metadata']['name']}-{pod}"
        meta = {"name": claim}
        claims.append({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": template["spec"]})
        spec["volumes"].append({"name": template["metadata"]["name"], "persistentVolumeClaim": {"claimName": claim}})
    [container] = spec["containers"]
    for volume in spec["volumes"]:
        if "emptyDir" in volume:  # podman 4 makes it a volume of that name: for all pods the same
            own = f"{volume['name']}-{pod}"
            for mount in container["volumeMounts"]:
                mount["name"] = own if mount["name"] == volume["name"] else mount["name"]
            volume["name"] = own
        if "secret" in volume:
            volume["secret"]["optional"] = False  # podman 4 fails on what is not said
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        del container[probe]  # podman would run curl in the container
    del container["ports"]
    spec["hostNetwork"] = True
    meta = {"name": pod, "labels": workload["spec"]["template"]["metadata"]["labels"]}
    return [*claims, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}]


def _ok(port: int, path: str) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=3, trust_env=False).status_code == 200
    except httpx.TransportError:
        time.sleep(0.1)
        return False
