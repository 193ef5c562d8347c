"""What is built and started: skaffold and compose name every service, and every image that the overlay wants."""

from typing import Any

import yaml

from tests.deploy.manifests import IMAGES, REPOSITORY, SERVICES, kubectl_needed, of_kind


def read(file: str) -> Any:
    return yaml.safe_load((REPOSITORY / file).read_text())


@kubectl_needed
def test_skaffold_builds_what_the_local_overlay_runs() -> None:
    built = {one["image"]: one["docker"]["buildArgs"]["SERVICE"] for one in read("skaffold.yaml")["build"]["artifacts"]}
    assert built == {f"aetheris/{service}": IMAGES.get(service, service).replace("-", "_") for service in SERVICES}
    images = {
        one["spec"]["template"]["spec"]["containers"][0]["image"]
        for one in of_kind("local", "Deployment", "StatefulSet")
    }
    assert built.keys() <= images


def test_compose_runs_every_service_restricted() -> None:
    found = read("compose.yaml")
    for service in SERVICES:
        one = found["services"][service]
        assert one["build"]["args"]["SERVICE"] == IMAGES.get(service, service).replace("-", "_")
        assert one["read_only"] is True
        assert one["cap_drop"] == ["ALL"]
        assert one["environment"]["AETHERIS_WORKER_ID"] == f"{service}-0"


def test_the_image_has_no_root_and_starts_without_a_shell() -> None:
    text = (REPOSITORY / "Dockerfile").read_text()
    final = text[text.rindex("FROM ") :]
    assert "USER 10001:10001" in final
    assert 'ENTRYPOINT ["/app/service"]' in final
    assert "RUN " not in final
    ignored = (REPOSITORY / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*", "only what is named goes into a build"
