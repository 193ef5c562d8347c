"""What is built and started: skaffold and compose name every service, and every image that the overlay wants."""

import json
import tomllib
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator, Draft202012Validator

from aetheris.protocol.base.principals import PrincipalKind, Role
from tests.deploy.built import fetched, go_needed
from tests.deploy.manifests import IMAGES, REPOSITORY, SERVICES, kubectl_needed, of_kind

SKAFFOLD = ("github.com/GoogleContainerTools/skaffold/v2@v2.16.1", "h1:eMrp2qpn/5j2c1P/JqLo+mxcpEIdtokb/tCY2W/05ic=")
COMPOSE = ("github.com/compose-spec/compose-go/v2@v2.16.2", "h1:pTp1DqQwJzFd85GzlWsSszKA1ABrV/ySqsClujIcWA8=")
"""Go modules that have the schemas, and the checksums of their zips."""


def read(file: str) -> Any:
    return yaml.safe_load((REPOSITORY / file).read_text())


@kubectl_needed
def test_skaffold_builds_what_the_local_overlay_runs() -> None:
    found = read("skaffold.yaml")
    assert found["manifests"]["kustomize"]["paths"] == ["deploy/overlays/local"], "it is what is rendered here"
    (forwarded,) = found["portForward"]
    services = {one["metadata"]["name"]: one["spec"] for one in of_kind("local", "Service")}
    assert forwarded["port"] in [one["port"] for one in services[forwarded["resourceName"]]["ports"]]
    built = {one["image"]: one["docker"]["buildArgs"]["SERVICE"] for one in found["build"]["artifacts"]}
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


def test_who_submits_to_what_compose_runs_may_approve_nothing() -> None:
    found = read("compose.yaml")
    mounted = {name: [one["target"] for one in of.get("configs", ())] for name, of in found["services"].items()}
    assert {name for name, at in mounted.items() if at} == {"gateway"}
    assert mounted["gateway"] == [found["services"]["gateway"]["environment"]["AETHERIS_TOKENS"]]
    tokens = {one["name"]: one for one in tomllib.loads(found["configs"]["tokens"]["content"])["token"]}
    assert {PrincipalKind(one["kind"]) for one in tokens.values()} == {PrincipalKind.AGENT, PrincipalKind.PERSON}
    roles = {name: {Role(role) for role in one["roles"]} for name, one in tokens.items()}
    assert Role.SUBMIT in roles["agent"]
    assert not roles["agent"] & {Role.APPROVE, Role.RESOLVE, Role.ADMINISTER}
    assert Role.APPROVE in roles["approver"]
    assert len({one["sha256"] for one in tokens.values()}) == 2


def test_compose_has_a_place_for_tools_where_tools_run_and_nowhere_else() -> None:
    services = read("compose.yaml")["services"]
    having = {name for name, one in services.items() if any("/tools" in str(at) for at in one.get("volumes", ()))}
    assert having == {"tool-executor", "prober"}
    assert {services[name]["environment"]["PYTHONPATH"] for name in having} == {"/tools"}
    assert not any(str(at).startswith("keys:") for name in having for at in services[name]["volumes"])


@go_needed
@pytest.mark.full
def test_skaffold_s_file_is_one_by_its_own_schema(tmp_path: Path) -> None:
    found = read("skaffold.yaml")
    name = f"{found['apiVersion'].removeprefix('skaffold/')}.json"
    schema = json.loads((fetched(*SKAFFOLD, tmp_path) / "docs-v2/content/en/schemas" / name).read_text())
    shape = Draft7Validator(schema)
    assert [error.message for error in shape.iter_errors(found)] == []
    wrong = deepcopy(found)
    wrong["build"]["artifacts"][0]["docker"]["dockerfyle"] = "Dockerfile"
    assert not shape.is_valid(wrong)


@go_needed
@pytest.mark.full
def test_compose_s_file_is_one_by_the_specification(tmp_path: Path) -> None:
    found = read("compose.yaml")
    shape = Draft202012Validator(json.loads((fetched(*COMPOSE, tmp_path) / "schema/compose-spec.json").read_text()))
    assert [error.message for error in shape.iter_errors(found)] == []
    wrong = deepcopy(found)
    wrong["services"]["gateway"]["read_onli"] = True
    assert not shape.is_valid(wrong)


def test_the_image_has_no_root_and_starts_without_a_shell() -> None:
    text = (REPOSITORY / "Dockerfile").read_text()
    final = text[text.rindex("FROM ") :]
    assert "USER 10001:10001" in final
    assert 'ENTRYPOINT ["/app/service"]' in final
    assert "RUN " not in final
    ignored = (REPOSITORY / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*", "only what is named goes into a build"
