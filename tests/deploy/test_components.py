"""What the components add, where they are asked for: files, keys, the relay, a witness."""

import re
import tomllib

import pytest
import yaml
from typer.testing import CliRunner

from aetheris.archiver.settings import ArchiverSettings
from aetheris.cli.app import app
from aetheris.cli.given import SETTINGS
from aetheris.notifier.settings import NotifierSettings
from aetheris.scheduler.settings import SchedulerSettings
from tests.deploy.manifests import (
    DEPLOY,
    REPOSITORY,
    WHOLE,
    env,
    kubectl_needed,
    name,
    of_kind,
    ours,
    settings_of,
    workloads,
)

pytestmark = kubectl_needed


GIVEN = {
    "openid": ("AETHERIS_OIDC", "oidc.toml", {"gateway"}),
    "policy": ("AETHERIS_POLICY", "policy.toml", {"gateway", "ledger"}),
    "signers": ("AETHERIS_SIGNERS", "allowed_signers", {"gateway", "ledger"}),
    "limits": ("AETHERIS_LIMITS", "limits.toml", {"gateway"}),
}
"""Component → variable, file, and whom it is for: every service that has such a setting."""


@pytest.mark.parametrize("component", GIVEN)
def test_who_goes_by_a_file_is_given_it_where_that_is_asked_for(component: str) -> None:
    variable, file, services = GIVEN[component]
    field = variable.removeprefix("AETHERIS_").lower()
    assert services == {service for service, kind in SETTINGS.items() if field in kind.model_fields}
    for service, pod, _ in ours(WHOLE):
        if service not in services:
            assert variable not in env(pod), service
            continue
        [volume] = [one for one in pod["volumes"] if one["name"] == component]
        [mount] = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == component]
        assert (volume["configMap"], mount["readOnly"]) == ({"name": f"aetheris-{component}"}, True)
        assert env(pod)[variable]["value"] == f"{mount['mountPath']}/{file}"
    assert all(variable not in env(pod) for _, pod, _ in ours("production"))


def test_gateway_and_verifier_speak_https_by_keys_of_their_own_and_who_calls_them_knows_the_ca() -> None:
    pods = {service: pod for service, pod, _ in workloads(WHOLE)}
    mounts = {
        service: {one["name"]: one["mountPath"] for one in pod["containers"][0].get("volumeMounts", [])}
        for service, pod in pods.items()
    }
    speaking = {service for service, pod in pods.items() if "AETHERIS_HTTP_KEY" in env(pod)}
    assert speaking == {"gateway", "verifier"}
    for service in speaking:
        files = [env(pods[service])[name]["value"] for name in ("AETHERIS_HTTP_CERT", "AETHERIS_HTTP_KEY")]
        assert files == [f"{mounts[service]['https']}/{file}" for file in ("tls.crt", "tls.key")]
    for service, pod in pods.items():
        held = [one["secret"] for one in pod.get("volumes", []) if one["name"] == "https"]
        own = {"secretName": f"aetheris-https-{service}", "defaultMode": 0o440}
        assert held == ([own] if service in speaking else [])
    for service in ("gateway", "relay", "console"):
        [volume] = [one for one in pods[service]["volumes"] if one["name"] == "ca"]
        assert volume["configMap"] == {"name": "aetheris-ca"}
        assert env(pods[service])["AETHERIS_CA"]["value"] == f"{mounts[service]['ca']}/ca.crt"
    assert settings_of(WHOLE)["data"]["AETHERIS_VERIFIER_URL"] == "https://verifier:8080"
    assert env(pods["relay"])["AETHERIS_URL"]["value"] == "https://gateway:8080"
    assert env(pods["console"])["AETHERIS_GATEWAY_URL"]["value"] == "https://gateway:8080"


def test_the_verifier_reads_what_the_relay_writes_by_one_policy() -> None:
    pods = {service: pod for service, pod, _ in workloads(WHOLE)}
    mounts = {
        service: {one["name"]: one for one in pods[service]["containers"][0]["volumeMounts"]}
        for service in ("relay", "verifier")
    }
    written, read = mounts["relay"]["witnessed"], mounts["verifier"]["witnessed"]
    assert (written.get("readOnly", False), read["readOnly"], read["mountPath"]) == (False, True, "/data/witnessed")
    args = pods["relay"]["containers"][0]["args"]
    assert args[args.index("--to") + 1] == written["mountPath"]
    policy = f"{mounts['relay']['witnesses']['mountPath']}/policy"
    assert args[args.index("--policy") + 1] == policy == env(pods["verifier"])["AETHERIS_SEAL_POLICY"]["value"]
    for service in mounts:
        [volume] = [one for one in pods[service]["volumes"] if one["name"] == "witnesses"]
        assert volume["configMap"] == {"name": "aetheris-witnesses"}
    assert "AETHERIS_SEAL_POLICY" not in env(next(pod for one, pod, _ in ours("production") if one == "verifier"))


def test_the_relay_publishes_the_log_on_a_volume_that_others_may_read() -> None:
    [pod] = [pod for service, pod, _ in workloads(WHOLE) if service == "relay"]
    [container] = pod["containers"]
    args = container["args"]
    [mount] = [one for one in container["volumeMounts"] if one["name"] == "tiles"]
    [volume] = [one for one in pod["volumes"] if one["name"] == "tiles"]
    assert args[args.index("--tiles") + 1] == f"{mount['mountPath']}/log"
    assert not mount.get("readOnly", False)
    [claim] = [one for one in of_kind(WHOLE, "PersistentVolumeClaim") if name(one) == "tiles"]
    assert volume["persistentVolumeClaim"] == {"claimName": name(claim)}
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    mounted = {service for service, pod, _ in workloads(WHOLE) if "tiles" in {one["name"] for one in pod["volumes"]}}
    assert mounted == {"relay"}, "no service of ours shows it"


def test_the_relay_asks_the_authority_that_a_map_names_by_its_roots() -> None:
    [pod] = [pod for service, pod, _ in workloads(WHOLE) if service == "relay"]
    [container] = pod["containers"]
    args = container["args"]
    assert args[args.index("--tsa") + 1] == "$(TSA_URL)"
    assert env(pod)["TSA_URL"]["valueFrom"] == {"configMapKeyRef": {"name": "aetheris-timestamps", "key": "url"}}
    [mount] = [one for one in container["volumeMounts"] if one["name"] == "timestamps"]
    [volume] = [one for one in pod["volumes"] if one["name"] == "timestamps"]
    assert (mount["readOnly"], volume["configMap"]) == (True, {"name": "aetheris-timestamps"})
    assert args[args.index("--tsa-roots") + 1] == f"{mount['mountPath']}/roots.pem"
    dockerfile = (REPOSITORY / "Dockerfile").read_text()
    assert "ARG EXTRAS" in dockerfile
    assert "--build-arg EXTRAS=timestamps" in (DEPLOY / "components/timestamps/kustomization.yaml").read_text()
    extras = tomllib.loads((REPOSITORY / "libs/cli/pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert "timestamps" in extras


@pytest.mark.parametrize("component", ["tiles", "timestamps"])
def test_what_the_relay_does_beside_is_done_where_it_is_asked_for(component: str) -> None:
    [pod] = [pod for service, pod, _ in workloads("production + relay") if service == "relay"]
    [more] = [pod for service, pod, _ in workloads(f"production + relay + {component}") if service == "relay"]
    assert {one["name"] for one in more["volumes"]} - {one["name"] for one in pod["volumes"]} == {component}
    args = pod["containers"][0]["args"]
    assert more["containers"][0]["args"][: len(args)] == args


def test_the_notifier_routes_by_the_file_that_executors_tell_by_and_has_a_token_and_no_key() -> None:
    pods = {service: pod for service, pod, _ in workloads(WHOLE)}
    said = env(pods["notifier"])
    known = {f"AETHERIS_{field.upper()}" for field in NotifierSettings.model_fields}
    assert {one for one in said if one.startswith("AETHERIS_")} <= known
    assert said["AETHERIS_NOTICES"]["value"] == env(pods["tool-executor"])["NOTICES_FILE"]["value"]
    assert said["AETHERIS_GATEWAY_URL"]["value"] == "https://gateway:8080"
    for service in ("notifier", "tool-executor"):
        [volume] = [one for one in pods[service]["volumes"] if one["name"] == "notices"]
        assert volume["configMap"] == {"name": "aetheris-notices"}
    secrets = {one["secret"]["secretName"] for one in pods["notifier"]["volumes"] if "secret" in one}
    assert secrets == {"aetheris-notifier-gateway", "aetheris-notifier", "aetheris-cluster-ca-cert"}
    assert "notifier" not in {service for service, _, _ in workloads("production")}


def test_the_scheduler_has_a_file_a_token_and_no_key() -> None:
    [pod] = [pod for service, pod, _ in workloads(WHOLE) if service == "scheduler"]
    known = {f"AETHERIS_{field.upper()}" for field in SchedulerSettings.model_fields}
    assert {one for one in env(pod) if one.startswith("AETHERIS_")} <= known
    assert env(pod)["AETHERIS_GATEWAY_URL"]["value"] == "https://gateway:8080"
    secrets = {one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one}
    own = {"aetheris-scheduler-gateway", "aetheris-scheduler", "aetheris-webhooks"}
    assert secrets == {*own, "aetheris-cluster-ca-cert"}
    assert "scheduler" not in {service for service, _, _ in workloads("production")}


def test_the_archiver_has_a_volume_public_keys_and_neither_token_nor_key() -> None:
    [pod] = [pod for service, pod, _ in workloads(WHOLE) if service == "archiver"]
    known = {f"AETHERIS_{field.upper()}" for field in ArchiverSettings.model_fields}
    assert {one for one in env(pod) if one.startswith("AETHERIS_")} <= known
    secrets = {one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one}
    assert secrets == {"aetheris-archiver", "aetheris-cluster-ca-cert"}
    mounts = {one["name"]: one for one in pod["containers"][0]["volumeMounts"]}
    assert [name for name, one in mounts.items() if not one.get("readOnly")] == ["parquet"]
    assert env(pod)["AETHERIS_PARQUET"]["value"].startswith(mounts["parquet"]["mountPath"])
    assert "archiver" not in {service for service, _, _ in workloads("production")}


def test_the_witness_is_made_where_it_serves_and_its_commands_are_ours() -> None:
    [(_, witness, _)] = [found for found in workloads(WHOLE) if found[0] == "witness"]
    [relay] = [pod for one, pod, _ in workloads(WHOLE) if one == "relay"]
    job = yaml.safe_load((DEPLOY / "components/witness/init.yaml").read_text())
    init = job["spec"]["template"]["spec"]
    for part in ("--key", "--state"):
        made, served = (pod["containers"][0]["args"] for pod in (init, witness))
        assert made[made.index(part) + 1] == served[served.index(part) + 1]
    assert init["containers"][0]["volumeMounts"] == witness["containers"][0]["volumeMounts"]
    assert init["volumes"] == witness["volumes"]
    for pod in (init, witness, relay):
        group, command, *given = pod["containers"][0]["args"]
        told = CliRunner().invoke(app, [group, command, "--help"], terminal_width=200).output
        assert {one for one in given if one.startswith("--")} <= set(re.findall(r"--[a-z-]+", told))
