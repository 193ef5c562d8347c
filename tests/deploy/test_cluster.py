"""All overlays, taken by a real API server that knows the operators' definitions; wrong ones are refused."""

import json
from collections.abc import Generator
from copy import deepcopy
from typing import Any

import pytest

from tests.deploy.built import go_needed
from tests.deploy.cluster import KubernetesCluster, etcd_needed, running_cluster
from tests.deploy.manifests import (
    DEPLOY,
    EVERY,
    SERVICES,
    WHOLE,
    Manifest,
    kubectl_needed,
    name,
    of_kind,
    rendered,
)
from tests.deploy.shapes import CRDS
from tests.deploy.test_schemas import spoiled
from tests.testkit.external_server import until

pytestmark = [pytest.mark.full, pytest.mark.timeout(4000), kubectl_needed, go_needed, etcd_needed]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[KubernetesCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as found:
        for definitions in sorted(CRDS.glob("*.json")):
            found.apply("-f", str(definitions))
        established = ("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        until(lambda: found.kubectl(*established).returncode == 0, 120)
        found.apply("-f", str(DEPLOY / "base" / "namespace.yaml"))
        yield found


@pytest.mark.parametrize("overlay", EVERY)
def test_a_cluster_takes_every_object(cluster: KubernetesCluster, overlay: str) -> None:
    objects = json.dumps({"apiVersion": "v1", "kind": "List", "items": rendered(overlay)})
    text = cluster.apply("--dry-run=server", "--validate=strict", "-f", "-", stdin=objects)
    assert len(text.splitlines()) == len(rendered(overlay))


def test_a_cluster_refuses_a_wrong_field_in_each_kind(cluster: KubernetesCluster) -> None:
    kinds = {one["kind"]: one for overlay in EVERY for one in rendered(overlay)}
    for kind, manifest in kinds.items():
        assert cluster.refuses(manifest) is None
        for wrong in spoiled(manifest):
            assert cluster.refuses(wrong) is not None, f"{kind}: {wrong}"


def pod_of(workload: Manifest) -> dict[str, Any]:
    """Its template, as the pod that a controller would make."""
    template = deepcopy(workload["spec"]["template"])
    spec = template["spec"]
    spec["volumes"] = spec.get("volumes", []) + [
        {"name": claim["metadata"]["name"], "persistentVolumeClaim": {"claimName": "of-its-own"}}
        for claim in workload["spec"].get("volumeClaimTemplates", [])
    ]
    meta = {"name": name(workload), "namespace": "aetheris", "labels": template["metadata"]["labels"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def test_pods_pass_the_restricted_standard_and_others_do_not(cluster: KubernetesCluster) -> None:
    for workload in of_kind(WHOLE, "Deployment", "StatefulSet"):
        pod = pod_of(workload)
        assert cluster.refuses(pod) is None, name(workload)
        if name(workload) in SERVICES:
            pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
            assert "PodSecurity" in str(cluster.refuses(pod))


def test_what_the_operators_rule_out_is_refused(cluster: KubernetesCluster) -> None:
    [topic, *_] = of_kind("production", "KafkaTopic")
    assert cluster.refuses({**topic, "spec": {**topic["spec"], "partitions": 0}}) is not None
    [user, *_] = of_kind("production", "KafkaUser")
    wrong: Any = deepcopy(user)
    wrong["spec"]["authorization"]["acls"][0]["operations"] = ["Reed"]
    assert cluster.refuses(wrong) is not None
