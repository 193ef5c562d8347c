"""Who may reach whom, by the manifests."""

import pytest

from tests.deploy.manifests import (
    EVERY,
    ON_S3,
    ON_VOLUME,
    WHOLE,
    WHOLE_S3,
    egress_of,
    env,
    kubectl_needed,
    name,
    of_kind,
    settings_of,
    workloads,
)

pytestmark = kubectl_needed


@pytest.mark.parametrize("overlay", EVERY)
def test_the_network_is_closed_but_for_what_is_named(overlay: str) -> None:
    policies = {name(one): one["spec"] for one in of_kind(overlay, "NetworkPolicy")}
    assert policies["nothing"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    open_to_all = [
        found
        for found, spec in policies.items()
        if any("ipBlock" in to for e in spec.get("egress", []) for to in e.get("to", []))
    ]
    whole = overlay in {WHOLE, WHOLE_S3}
    more = {"s3": overlay in ON_S3, "relay": whole, "relay-timestamps": whole, "openid": whole, "console": whole}
    assert set(open_to_all) == {"world", *(found for found, is_there in more.items() if is_there)}
    assert policies["world"]["podSelector"]["matchExpressions"][0]["values"] == ["tool-executor", "prober"]


@pytest.mark.parametrize("overlay", ON_VOLUME)
def test_who_seals_reaches_nobody_but_kafka_names_and_telemetry(overlay: str) -> None:
    ways = egress_of(overlay, "verifier")
    ports = {port["port"]: egress.get("to") for egress in ways for port in egress["ports"]}
    assert ports.keys() == {53, 9092 if overlay == "local" else 9093, 4318}
    anywhere = {port for port, to in ports.items() if to is None}
    assert anywhere == ({53, 4318} if overlay == "local" else {53}), "no address is known of a collector of yours"


def test_the_gateway_reaches_providers_by_https_and_no_address_of_the_node() -> None:
    assert not any("ipBlock" in to for egress in egress_of("production", "gateway") for to in egress.get("to", []))
    [way] = [egress for egress in egress_of(WHOLE, "gateway") if any("ipBlock" in to for to in egress.get("to", []))]
    assert way["ports"] == [{"port": 443, "protocol": "TCP"}]
    assert way["to"][0]["ipBlock"] == {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}


def test_the_console_reaches_gateway_and_provider_and_has_no_key_of_ours() -> None:
    [(_, pod, _)] = [found for found in workloads(WHOLE) if found[0] == "console"]
    ports = {port["port"]: one.get("to", []) for one in egress_of(WHOLE, "console") for port in one["ports"]}
    gateway = [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "gateway"}}}]
    assert ports.keys() == {53, 443, 8080}
    assert (ports[8080], ports[443][0]["ipBlock"]["except"]) == (gateway, ["169.254.0.0/16"])
    [container] = pod["containers"]
    assert env(pod).keys() == {"AETHERIS_GATEWAY_URL", "AETHERIS_CA"}
    assert container["envFrom"] == [{"configMapRef": {"name": "aetheris-console"}}], (
        "what all services share names Kafka"
    )
    assert [one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one] == ["aetheris-console"]


CALLERS = {
    "notifier": [],
    "scheduler": [{"namespaceSelector": {"matchLabels": {"aetheris.io/webhook-clients": "true"}}}],
}
"""From where what submits jobs is reached."""


@pytest.mark.parametrize("service", CALLERS)
def test_who_submits_reaches_kafka_and_the_gateway_and_is_reached_by_who_delivers_to_webhooks(service: str) -> None:
    ports = {port["port"]: egress.get("to", []) for egress in egress_of(WHOLE, service) for port in egress["ports"]}
    assert ports.keys() == {53, 9093, 8080, 4318}
    assert ports[8080] == [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "gateway"}}}]
    entries = {name(one): one["spec"].get("ingress", []) for one in of_kind(WHOLE, "NetworkPolicy")}
    assert [caller for entry in entries[service] for caller in entry["from"]] == CALLERS[service]


def test_the_archiver_reaches_kafka_alone_and_nobody_reaches_it() -> None:
    ports = {port["port"] for egress in egress_of(WHOLE, "archiver") for port in egress["ports"]}
    assert ports == {53, 9093, 4318}
    assert not any("ipBlock" in to for egress in egress_of(WHOLE, "archiver") for to in egress.get("to", []))
    entries = {name(one): one["spec"].get("ingress", []) for one in of_kind(WHOLE, "NetworkPolicy")}
    assert entries["archiver"] == []


def test_prometheus_alone_reaches_health_ports_and_reaches_all_of_ours() -> None:
    [scraping] = [one["spec"] for one in of_kind(WHOLE, "NetworkPolicy") if name(one) == "scraping"]
    [entry] = scraping["ingress"]
    assert entry["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    assert entry["ports"] == [{"port": 9090, "protocol": "TCP"}]
    [monitor] = [one["spec"] for one in of_kind(WHOLE, "PodMonitor")]
    assert monitor["selector"] == scraping["podSelector"]
    [endpoint] = monitor["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("health", "/metrics")
    healthy = {
        service
        for service, pod, _ in workloads(WHOLE)
        if any(port["name"] == "health" for port in pod["containers"][0].get("ports", []))
    }
    assert set(scraping["podSelector"]["matchExpressions"][0]["values"]) == healthy
    assert not of_kind("production", "PodMonitor"), "there a collector is sent what is measured"


def test_what_prometheus_asks_for_is_not_sent_as_well_and_has_the_same_names() -> None:
    assert settings_of(WHOLE)["data"]["OTEL_METRICS_EXPORTER"] == "none", "all would count twice"
    assert "OTEL_METRICS_EXPORTER" not in settings_of("production")["data"]
    [monitor] = of_kind(WHOLE, "PodMonitor")
    first, second = monitor["spec"]["podMetricsEndpoints"][0]["relabelings"]
    assert first["sourceLabels"] == ["__meta_kubernetes_pod_label_app_kubernetes_io_name"]
    assert (first["targetLabel"], first["replacement"]) == ("job", "aetheris-$1")
    assert (second["regex"], second["replacement"]) == ("aetheris-tool-executor", "aetheris-tool_executor")


def test_the_relay_alone_reaches_witnesses_and_nobody_reaches_it() -> None:
    [(_, pod, _)] = [found for found in workloads(WHOLE) if found[0] == "relay"]
    ways = egress_of(WHOLE, "relay")
    ports = {port["port"]: egress.get("to", []) for egress in ways for port in egress["ports"]}
    gateway = [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "gateway"}}}]
    assert ports.keys() == {53, 443, 8080, 80}, "authorities of time stamps answer by plain HTTP"
    for port in (443, 80):
        assert ports[port][0]["ipBlock"]["except"] == ["169.254.0.0/16"]
    assert ports[8080] == gateway
    assert not any("ipBlock" in to for egress in egress_of(WHOLE, "verifier") for to in egress.get("to", []))
    assert egress_of(WHOLE, "witness") == []
    entries = {name(one): one["spec"].get("ingress", []) for one in of_kind(WHOLE, "NetworkPolicy")}
    assert entries["relay"] == []
    [[entry], [asker]] = entries["witness"], entries["gateway-relay"]
    assert entry["from"] == [{"namespaceSelector": {"matchLabels": {"aetheris.io/witness-clients": "true"}}}]
    assert asker["from"] == [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "relay"}}}]
    assert "envFrom" not in pod["containers"][0]
    assert not any("secret" in volume for volume in pod["volumes"]), "it has a token, and no key"
    assert env(pod).keys() == {"AETHERIS_URL", "AETHERIS_TOKEN", "AETHERIS_CA", "TSA_URL"}
