"""Each service has all that a service has: page, image, pod with probes, ways in and out, Kafka user, place in `up`."""

import pytest
import yaml

from aetheris.cli.embedded import services
from aetheris.cli.given import SETTINGS
from tests.deploy.manifests import IMAGES, REPOSITORY, WHOLE, kubectl_needed, name, of_kind, workloads

PROCESSES = ("prober", *sorted(one.name.replace("_", "-") for one in (REPOSITORY / "services").iterdir()))
WITHOUT_KAFKA = {"console"}
CALLED = {"tool-executor": "executor"}
"""How `aetheris up` and `aetheris config` call what Kubernetes calls otherwise."""


def folder_of(service: str) -> str:
    return IMAGES.get(service, service).replace("-", "_")


@pytest.mark.parametrize("service", PROCESSES)
def test_it_has_a_page_an_image_and_a_part_in_compose(service: str) -> None:
    folder = folder_of(service)
    assert (REPOSITORY / "services" / folder / "README.md").is_file()
    one = yaml.safe_load((REPOSITORY / "compose.yaml").read_text())["services"][service]
    assert (one["image"], one["build"]["args"]) == (f"aetheris/{service}", {"SERVICE": folder})
    assert (one["read_only"], one["cap_drop"]) == (True, ["ALL"])
    assert f"services/{folder}/README.md" in (REPOSITORY / "docs" / "architecture.md").read_text()


@pytest.mark.parametrize("service", PROCESSES)
def test_it_is_started_by_up_and_its_settings_are_shown(service: str) -> None:
    called = CALLED.get(service, service)
    assert called in {
        one.name for one in (*services.SERVICES, services.CONSOLE, *services.SUBMITTERS, services.ARCHIVER)
    }
    assert called in SETTINGS


@kubectl_needed
@pytest.mark.parametrize("service", PROCESSES)
def test_its_pod_is_asked_how_it_is_and_has_an_account_ways_and_a_user_of_its_own(service: str) -> None:
    [(_, pod, _)] = [one for one in workloads(WHOLE) if one[0] == service]
    container = pod["containers"][0]
    assert container["image"].partition(":")[0] == f"aetheris/{service}"
    for probe, path in (("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"]["path"] == path
    assert pod["serviceAccountName"] == service
    assert service in {name(one) for one in of_kind(WHOLE, "ServiceAccount")}
    own = {"app.kubernetes.io/name": service}
    policies = [one["spec"] for one in of_kind(WHOLE, "NetworkPolicy")]
    assert any(one["podSelector"].get("matchLabels", {}).items() <= own.items() for one in policies)
    users = {name(one) for one in of_kind(WHOLE, "KafkaUser")}
    assert (f"aetheris-{service}" in users) == (service not in WITHOUT_KAFKA)
