"""The bills of materials: as CycloneDX has them, complete, and of what users get."""

import json
import runpy
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import jsonschema_rs
import pytest

from aetheris.cli.embedded.jars import locked_jars
from tests.testkit.system import REPOSITORY

Bom = dict[str, Any]

SBOM = runpy.run_path(str(REPOSITORY / "deploy" / "sbom.py"))
SERVICES = {path.parent.name for path in REPOSITORY.glob("services/*/pyproject.toml")}


@pytest.fixture(scope="module")
def boms() -> dict[str, Bom]:
    return SBOM["boms"]()


@pytest.fixture(scope="module")
def schema() -> Any:
    """CycloneDX 1.5's own, as the library of its makers has it."""

    def read(uri: str) -> Any:
        name = uri.rpartition("/")[2].removesuffix(".schema.json").removesuffix(".SNAPSHOT")
        return json.loads((files("cyclonedx.schema._res") / f"{name}.SNAPSHOT.schema.json").read_text())

    return jsonschema_rs.validator_for(read("bom-1.5.schema.json"), retriever=read)


def test_each_is_as_the_schema_has_it(boms: dict[str, Bom], schema: Any) -> None:
    assert boms.keys() == {"aetheris"} | SERVICES
    assert {name: str(next(schema.iter_errors(bom), "")) for name, bom in boms.items()} == dict.fromkeys(boms, "")


@pytest.mark.parametrize(
    "wrong",
    [
        {"hashes": [{"alg": "SHA-256", "content": "no hash"}]},
        {"licenses": [{"license": {"id": "Nobody-1.0"}}]},
        {"type": "parcel"},
        {"madeBy": "somebody"},
    ],
)
def test_a_wrong_one_is_refused(boms: dict[str, Bom], schema: Any, wrong: Bom) -> None:
    first, *rest = boms["ledger"]["components"]
    assert list(schema.iter_errors({**boms["ledger"], "components": [first | wrong, *rest]}))


def test_the_whole_has_what_every_package_asks_for_as_it_is_locked(boms: dict[str, Bom]) -> None:
    found = {one["name"]: one for one in boms["aetheris"]["components"]}
    locked = {one["name"]: one for one in tomllib.loads((REPOSITORY / "uv.lock").read_text())["package"]}
    assert asked_for() - found.keys() == set()
    assert not {"pytest", "moto", "mkdocs", "aetheris-testkit"} & found.keys(), "what only we use"
    for name, one in found.items():
        if one.get("purl", "").startswith("pkg:pypi/"):
            assert one["version"] == locked[name]["version"]
            kept = {each["content"] for file in one["externalReferences"] for each in file.get("hashes", ())}
            assert kept == {file["hash"].removeprefix("sha256:") for file in files_of(locked[name])}


def files_of(package: Bom) -> Iterator[Bom]:
    yield from package.get("wheels", ())
    yield from [package["sdist"]] if "sdist" in package else []


def asked_for() -> set[str]:
    """The packages that the lock says ours depend on, extras included."""
    packages = tomllib.loads((REPOSITORY / "uv.lock").read_text())["package"]
    ours = [one for one in packages if "editable" in one["source"] and not one["name"].endswith("-testkit")]
    each = [*(one.get("dependencies", []) for one in ours)]
    each += [more for one in ours for more in one.get("optional-dependencies", {}).values()]
    return {needed["name"] for group in each for needed in group}


def test_the_whole_has_every_jar_of_the_embedded_broker(boms: dict[str, Bom]) -> None:
    found = {
        (f"{one['group']}:{one['name']}:{one['version']}", one["hashes"][0]["content"])
        for one in boms["aetheris"]["components"]
        if one.get("purl", "").startswith("pkg:maven/")
    }
    assert found == {(jar.coordinates, jar.sha256) for jar in locked_jars()}


def test_an_image_has_its_service_and_no_other(boms: dict[str, Bom]) -> None:
    for service in SERVICES:
        bom = boms[service]
        assert bom["metadata"]["component"]["name"] == f"aetheris-{service.replace('_', '-')}"
        others = {f"aetheris-{other.replace('_', '-')}" for other in SERVICES - {service}}
        assert not {one["name"] for one in bom["components"]} & others


def test_everything_hangs_on_the_root(boms: dict[str, Bom]) -> None:
    for bom in boms.values():
        needs = {one["ref"]: one.get("dependsOn", ()) for one in bom["dependencies"]}
        reached: set[str] = set()
        waiting = [bom["metadata"]["component"]["bom-ref"]]
        while waiting:
            reached.add(ref := waiting.pop())
            waiting += [one for one in needs[ref] if one not in reached]
        assert {one["bom-ref"] for one in bom["components"]} <= reached


def test_each_has_a_licence_and_the_page_lists_it(boms: dict[str, Bom]) -> None:
    page = SBOM["licences_page"](boms["aetheris"])
    assert "none declared" not in page
    assert (REPOSITORY / "docs" / "licences.md").read_text() == page, "run `make docs`"
