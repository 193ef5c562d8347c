"""Our own rules for the manifests: who may do what, what may be lost, what a pod may not."""

import re
import runpy
from pathlib import Path

import pytest

from aetheris.cli.given import SETTINGS
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.process.settings import load
from aetheris.runtime.telemetry.metrics import Metric
from aetheris.verifier.apart import KEYS, OTHERS_KEYS, SUBJECT_KEYS
from tests.deploy.manifests import (
    DEPLOY,
    EVERY,
    ON_S3,
    ON_VOLUME,
    OVERLAYS,
    REPOSITORY,
    SERVICES,
    WHOLE,
    WHOLE_S3,
    env,
    kubectl_needed,
    name,
    of_kind,
    ours,
    rendered,
    settings_of,
    workloads,
)

pytestmark = kubectl_needed

STOP_S = {"tool-executor": 20}
"""How long a service takes to stop, at most (settings drain_s, tool_drain_s; lifecycle.run): 15 s where not named."""


WITHOUT_REDIS = {"prober", "verifier"}
_VALKEY = runpy.run_path(str(DEPLOY / "valkey_users.py"))
RULES, CA = _VALKEY["RULES"], _VALKEY["CA"]


@pytest.mark.parametrize("overlay", EVERY)
def test_pods_are_restricted(overlay: str) -> None:
    [namespace] = of_kind(overlay, "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for service, pod, _ in workloads(overlay):
        [container] = pod["containers"]
        security = container["securityContext"]
        assert pod["securityContext"]["runAsNonRoot"], service
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security.get("readOnlyRootFilesystem") or service == "kafka"
        assert pod["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert not any("hostPath" in volume for volume in pod.get("volumes", []))


@pytest.mark.parametrize("overlay", EVERY)
def test_pods_are_probed_bounded_and_have_time_to_drain(overlay: str) -> None:
    for service, pod, _ in workloads(overlay):
        [container] = pod["containers"]
        assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys(), service
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
        assert "memory" in container["resources"]["limits"]
    for service, pod, _ in ours(overlay):
        [container] = pod["containers"]
        assert container["livenessProbe"]["httpGet"]["path"] == "/livez", "alive must not depend on Kafka or Redis"
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
        assert pod["terminationGracePeriodSeconds"] > STOP_S.get(service, 15)
        keys = {spread["topologyKey"] for spread in pod["topologySpreadConstraints"]}
        assert keys == {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}


@pytest.mark.parametrize("overlay", EVERY)
def test_every_service_has_a_budget_a_stable_name_and_known_settings(overlay: str) -> None:
    assert {service for service, _, _ in ours(overlay)} == set(SERVICES)
    budgets = {
        one["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"]
        for one in of_kind(overlay, "PodDisruptionBudget")
    }
    assert set(SERVICES) <= budgets
    known = {f"AETHERIS_{field.upper()}" for kind in SETTINGS.values() for field in kind.model_fields}
    shared = settings_of(overlay)
    for service, pod, one in ours(overlay):
        assert one["kind"] == ("Deployment" if service == "gateway" else "StatefulSet")
        given = env(pod)
        assert given["AETHERIS_WORKER_ID"]["value"] == "$(POD_NAMESPACE).$(POD_NAME)"
        order = [one["name"] for one in pod["containers"][0]["env"]]
        for variable, path in (("POD_NAMESPACE", "metadata.namespace"), ("POD_NAME", "metadata.name")):
            assert given[variable]["valueFrom"]["fieldRef"]["fieldPath"] == path
            assert order.index(variable) < order.index("AETHERIS_WORKER_ID"), "known only behind what it is made of"
        names = given.keys() | shared["data"].keys()
        assert {found for found in names if found.startswith("AETHERIS_")} <= known
        assert {"AETHERIS_KAFKA", "AETHERIS_PARTITIONS"} <= names
        assert ("AETHERIS_REDIS" in names) == (service not in WITHOUT_REDIS), "who asks Redis, and nobody else"


@pytest.mark.parametrize("overlay", EVERY)
def test_an_executors_identity_is_its_own_volume(overlay: str) -> None:
    [(_, pod, one)] = [found for found in ours(overlay) if found[0] == "tool-executor"]
    mounted = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    [claim] = one["spec"]["volumeClaimTemplates"]
    assert mounted["/data/workers"] == claim["metadata"]["name"]
    assert claim["spec"]["accessModes"] == (["ReadWriteOnce"] if overlay == "local" else ["ReadWriteOncePod"])


@pytest.mark.parametrize("overlay", EVERY)
def test_every_mount_has_its_volume(overlay: str) -> None:
    for service, pod, one in workloads(overlay):
        claims = {claim["metadata"]["name"] for claim in one["spec"].get("volumeClaimTemplates", [])}
        volumes = {volume["name"] for volume in pod.get("volumes", [])} | claims
        mounts = pod["containers"][0]["volumeMounts"]
        assert {mount["name"] for mount in mounts} <= volumes, service
        assert len(mounts) == len({mount["mountPath"] for mount in mounts})


@pytest.mark.parametrize("overlay", EVERY)
def test_no_pod_has_keys_and_tools(overlay: str) -> None:
    for service, pod, _ in ours(overlay):
        secrets = {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
        assert "aetheris-seal" not in secrets or service == "verifier"
        if service in {"prober", "tool-executor"}:
            assert not set(OTHERS_KEYS if service == "prober" else KEYS) & env(pod).keys()
            assert not any("internal" in one or "seal" in one or "tokens" in one for one in secrets)
        image = pod["containers"][0]["image"]
        assert image.partition(":")[0] == f"aetheris/{service}", (
            "tools are laid on the prober's, and not on the verifier's"
        )


@pytest.mark.parametrize("service", ["tool-executor", "prober"])
def test_what_tools_can_be_kept_from_lies_where_no_pod_may_write(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    [pod] = [pod for one, pod, _ in ours(WHOLE) if one == service]
    said = {one: entry["value"] for one, entry in env(pod).items() if "value" in entry} | settings_of(WHOLE)["data"]
    for variable, value in said.items():
        monkeypatch.setenv(variable, value)
    files = load(SETTINGS[service.removeprefix("tool-")]).credential_files
    mounts = {Path(one["mountPath"]): one for one in pod["containers"][0]["volumeMounts"]}
    closed = {one if one in mounts else one.parent for one in files}
    more = {"tool-executor": {Path("/secrets/subjects"), Path("/subjects")}, "prober": {Path("/secrets/records")}}
    assert closed == {Path("/secrets/kafka"), *more[service]} <= mounts.keys()
    assert not {folder for one in closed for folder in one.parents} & mounts.keys()


@pytest.mark.parametrize("overlay", ON_S3)
def test_on_s3_every_service_has_the_bucket_and_the_way_to_it_and_none_the_volume(overlay: str) -> None:
    assert settings_of(overlay)["data"].items() >= {
        ("AETHERIS_BLOBS", "s3://aetheris-blobs"),
        ("AWS_REGION", "us-east-1"),
    }
    assert "blobs" not in map(name, of_kind(overlay, "PersistentVolumeClaim"))
    secret = {"AWS_ACCESS_KEY_ID": "access-key-id", "AWS_SECRET_ACCESS_KEY": "secret-access-key"}
    archiver = [one for one in workloads(overlay) if one[0] == "archiver"]
    for service, pod, _ in (*ours(overlay), *archiver):
        reported = {name: env(pod)[name]["valueFrom"]["secretKeyRef"] for name in secret}
        assert reported == {name: {"name": f"aetheris-s3-{service}", "key": key} for name, key in secret.items()}
        mounts = pod["containers"][0]["volumeMounts"]
        assert not any(mount["mountPath"].startswith("/data/blobs") for mount in mounts)
        assert "blobs" not in {volume["name"] for volume in pod["volumes"]}
    [way] = [one["spec"] for one in of_kind(overlay, "NetworkPolicy") if name(one) == "s3"]
    [egress] = way["egress"]
    assert set(way["podSelector"]["matchExpressions"][0]["values"]) == {*SERVICES, "archiver"}
    assert egress["ports"] == [{"port": 443, "protocol": "TCP"}]
    assert egress["to"][0]["ipBlock"] == {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}
    assert of_kind(overlay, "Secret") == []


@pytest.mark.parametrize("overlay", ON_VOLUME)
def test_who_only_reads_large_results_can_not_write_them(overlay: str) -> None:
    for service, pod, _ in ours(overlay):
        mounted = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "blobs"]
        written = {one["mountPath"] for one in mounted if not one.get("readOnly", False)}
        assert all(one["mountPath"] == f"/data/blobs/{one.get('subPath', '')}".rstrip("/") for one in mounted)
        own = WRITTEN.get(service, set()) if overlay == WHOLE else set()
        assert written == (own if service in {"gateway", "planner", "verifier"} else {"/data/blobs"})


WRITTEN = {"gateway": {"/data/blobs/hidden"}, "verifier": {"/data/blobs/archive"}}
"""What who otherwise only reads may write, where components say so."""


@pytest.mark.parametrize("overlay", [WHOLE, WHOLE_S3])
def test_keys_of_subjects_are_for_gateway_and_executor_alone(overlay: str) -> None:
    assert "subject-keys" not in {name(one) for one in of_kind("production", "PersistentVolumeClaim")}
    for service, pod, _ in ours(overlay):
        has = service in {"gateway", "tool-executor"}
        mounts = {one["name"]: one for one in pod["containers"][0]["volumeMounts"]}
        volumes = {one["name"]: one for one in pod["volumes"]}
        assert {"subject-keys", "subjects"} & mounts.keys() == ({"subject-keys", "subjects"} if has else set())
        secrets = [one["secret"]["secretName"] for one in volumes.values() if "secret" in one]
        claims = [
            one["persistentVolumeClaim"]["claimName"] for one in volumes.values() if "persistentVolumeClaim" in one
        ]
        assert ("aetheris-subjects" in secrets, "subject-keys" in claims) == (has, has)
        told = {variable: env(pod)[variable]["value"] for variable in SUBJECT_KEYS if variable in env(pod)}
        assert told == (
            {} if not has else dict(zip(SUBJECT_KEYS, ("/subjects", "/secrets/subjects/kms.key"), strict=True))
        )
        if has:
            assert (mounts["subject-keys"]["mountPath"], mounts["subjects"]["mountPath"]) == (
                "/subjects",
                "/secrets/subjects",
            )
            assert volumes["subjects"]["secret"]["defaultMode"] == 0o440
    assert not set(SUBJECT_KEYS) & settings_of(overlay)["data"].keys()


@pytest.mark.parametrize("overlay", [WHOLE, WHOLE_S3])
def test_jobs_are_archived_where_that_is_asked_for(overlay: str) -> None:
    assert "AETHERIS_ARCHIVE_AFTER_DAYS" not in settings_of("production")["data"]
    assert float(settings_of(overlay)["data"]["AETHERIS_ARCHIVE_AFTER_DAYS"]) > 0


def test_who_lets_kafka_go_of_records_is_no_service_and_no_pod_is_given_its_certificate() -> None:
    may = {
        name(user)
        for user in of_kind(WHOLE, "KafkaUser")
        for acl in user["spec"]["authorization"]["acls"]
        if {"Delete", "Alter", "All"} & set(acl["operations"])
    }
    assert may == {"aetheris-archive-deletion"}
    for service, pod, _ in workloads(WHOLE):
        held = {one["secret"]["secretName"] for one in pod.get("volumes", []) if "secret" in one}
        assert not may & held, service


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_effect_store_keeps_what_it_is_given(overlay: str) -> None:
    [(_, pod, _)] = [found for found in workloads(overlay) if found[0] == "valkey"]
    args = pod["containers"][0]["args"]
    body = dict(zip(args[::2], args[1::2], strict=True))
    assert (body["--appendonly"], body["--maxmemory-policy"]) == ("yes", "noeviction")


@pytest.mark.parametrize("overlay", OVERLAYS[1:])
def test_the_effect_store_speaks_tls_alone(overlay: str) -> None:
    [(_, store, _)] = [found for found in workloads(overlay) if found[0] == "valkey"]
    args = store["containers"][0]["args"]
    body = dict(zip(args[::2], args[1::2], strict=True))
    assert (body["--port"], body["--tls-port"]) == ("0", "6379")
    mounted = [one["mountPath"] for one in store["containers"][0]["volumeMounts"]]
    for option in ("--aclfile", "--tls-cert-file", "--tls-key-file", "--tls-ca-cert-file"):
        assert str(Path(body[option]).parent) in mounted


@pytest.mark.parametrize("overlay", EVERY[1:])
def test_each_service_is_a_user_of_its_own_at_the_effect_store(overlay: str) -> None:
    for service, pod, _ in (found for found in ours(overlay) if found[0] not in WITHOUT_REDIS):
        given = env(pod)["AETHERIS_REDIS"]["valueFrom"]["secretKeyRef"]
        assert given == {"name": f"aetheris-redis-{service}", "key": "url"}
        [volume] = [one["secret"] for one in pod["volumes"] if one["name"] == "redis"]
        assert (volume["secretName"], volume["items"]) == (given["name"], [{"key": "ca.crt", "path": "ca.crt"}])
        [mount] = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "redis"]
        assert f"{mount['mountPath']}/ca.crt" == CA
    assert set(RULES) == set(SERVICES) - WITHOUT_REDIS


RECORDS = "aetheris-records-"
SIGNING = {"planner": "planner", "ledger": "ledger", "prober": "prober", "verifier": "auditor", "gateway": "gateway"}
"""Service → as whom its key is certified."""


@pytest.mark.parametrize("overlay", EVERY[1:])
def test_who_signs_has_a_key_of_its_own_and_nobody_elses(overlay: str) -> None:
    seen: dict[str, str] = {}
    for service, pod, _ in ours(overlay):
        secrets = [one["secret"] for one in pod["volumes"] if "secret" in one]
        held = [one for one in secrets if one["secretName"].startswith(RECORDS)]
        assert (len(held) == 1) == (service in SIGNING), service
        if not held:
            assert not {"AETHERIS_RECORD_KEY", "AETHERIS_RECORD_CERT"} & env(pod).keys()
            continue
        assert held == [{"secretName": f"{RECORDS}{service}", "defaultMode": 0o440}]
        [mount] = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "records"]
        seen[service] = SIGNING[service]
        files = [env(pod)[name]["value"] for name in ("AETHERIS_RECORD_KEY", "AETHERIS_RECORD_CERT")]
        assert files == [f"{mount['mountPath']}/{SIGNING[service]}.{kind}" for kind in ("pem", "cert.json")]
    assert seen == SIGNING


def test_who_obeys_signatures_is_told_of_revocations_where_that_is_asked_for() -> None:
    told: set[str] = set()
    for one in rendered(WHOLE):
        if one["kind"] in ("Deployment", "StatefulSet") and name(one) in SERVICES:
            pod = one["spec"]["template"]["spec"]
            if "AETHERIS_REVOCATIONS" not in env(pod):
                continue
            told.add(name(one))
            [volume] = [one for one in pod["volumes"] if one["name"] == "revocations"]
            [mount] = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "revocations"]
            assert volume["configMap"] == {"name": "aetheris-revocations"}
            assert env(pod)["AETHERIS_REVOCATIONS"]["value"] == f"{mount['mountPath']}/revocations.json"
    assert told == set(SERVICES) - {"verifier"}
    assert all("AETHERIS_REVOCATIONS" not in env(pod) for _, pod, _ in ours("production"))


def test_production_holds_no_secret_and_no_dev() -> None:
    assert of_kind("production", "Secret") == []
    shared = settings_of("production")
    assert "AETHERIS_DEV" not in shared["data"]
    verifier = next(pod for service, pod, _ in ours("production") if service == "verifier")
    assert "AETHERIS_SEAL_KEY" in env(verifier)
    for _, pod, _ in ours("production"):
        mounted = {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
        assert {"/secrets/kafka", "/secrets/kafka-ca"} <= mounted


def test_topics_and_users_are_as_generated() -> None:
    generated = runpy.run_path(str(DEPLOY / "generate.py"))["rendered"]()
    assert [path.name for path, text in generated.items() if path.read_text() != text] == [], "run `make docs`"


def test_the_brokers_lose_nothing_that_they_acknowledged() -> None:
    [kafka] = of_kind("production", "Kafka")
    config = kafka["spec"]["kafka"]["config"]
    assert config["min.insync.replicas"] >= 2
    assert config["unclean.leader.election.enable"] is False
    for topic in of_kind("production", "KafkaTopic"):
        spec = topic["spec"]
        assert spec["replicas"] > int(spec["config"]["min.insync.replicas"]) >= 2
        assert spec["config"]["unclean.leader.election.enable"] == "false"
    shared = settings_of("production")
    counts = {name(one): one["spec"]["partitions"] for one in of_kind("production", "KafkaTopic")}
    assert counts[Topic.JOBS_EVENTS] == int(shared["data"]["AETHERIS_PARTITIONS"])
    assert {str(topic) for topic in Topic} <= counts.keys()


def written_by() -> dict[str, set[str]]:
    """Topic → its writers, from the table of docs/architecture.md."""
    page = (REPOSITORY / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| ([a-z.]+) \| ([a-z, ]+) \|", page, re.M)
    return {
        f"aetheris.{topic}.v1": {"tool-executor" if who == "executor" else who for who in writers.split(", ")}
        for topic, writers in rows
        if f"aetheris.{topic}.v1" in set(Topic)
    }


def test_only_who_writes_a_topic_may() -> None:
    may: dict[str, set[str]] = {}
    for user in of_kind("production", "KafkaUser"):
        for acl in user["spec"]["authorization"]["acls"]:
            if "Write" in acl["operations"]:
                assert acl["resource"]["patternType"] == "literal"
                may.setdefault(acl["resource"]["name"], set()).add(name(user).removeprefix("aetheris-"))
    wanted = written_by()
    assert {str(topic) for topic in Topic} == wanted.keys()
    assert {topic: who for topic, who in may.items() if not topic.endswith(".dlq")} == wanted
    assert not any("subscriber" in who for who in may.values())


def test_every_alert_asks_for_a_metric_that_exists() -> None:
    [rules] = of_kind("production", "PrometheusRule")
    ends = ("", "_total", "_bucket", "_count", "_sum")
    exist = {f"{metric.in_prometheus()}{end}" for metric in Metric for end in ends}
    asked: set[str] = set()
    for rule in [rule for group in rules["spec"]["groups"] for rule in group["rules"]]:
        found = set(re.findall(r"aetheris_[a-z_]+", rule["expr"]))
        assert found or "up{" in rule["expr"], rule["alert"]
        asked |= found
        assert found <= exist
    unasked = {one for one in Metric if not any(f"{one.in_prometheus()}{end}" in asked for end in ends)}
    kinds = list(Metric)
    usual = kinds[kinds.index(Metric.JOBS_CREATED) :]
    assert unasked <= set(usual), "what is rare has its alert"


def test_what_is_scaled_never_outgrows_the_partitions() -> None:
    shared = settings_of("production")
    for scaled in of_kind("production", "ScaledObject"):
        assert scaled["spec"]["maxReplicaCount"] <= int(shared["data"]["AETHERIS_PARTITIONS"])
        query = scaled["spec"]["triggers"][0]["metadata"]["query"]
        assert f'job="aetheris-{name(scaled).replace("-", "_")}"' in query
        [target] = [one for one in rendered("production") if one["kind"] == "StatefulSet" and name(one) == name(scaled)]
        assert "replicas" not in target["spec"], "two owners of one number"
