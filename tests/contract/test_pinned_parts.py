"""Everything that others made is named by what it is, not by what it is called: images, actions, uv; and one Kafka."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from aetheris.cli.embedded.jars import KAFKA_VERSION, locked_jars
from tests.testkit.system import REPOSITORY

DIGEST = re.compile(r"[a-z0-9./-]+:[\w.-]+@sha256:[0-9a-f]{64}")
COMMIT = re.compile(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
KAFKA_IMAGE = "docker.io/apache/kafka"
BROKER = "libs/cli/src/aetheris/cli/embedded/kafka.lock"
TOOLS = "tests/deploy/kafka-tools.lock"
STRIMZI = "deploy/components/strimzi/kafka.yaml"
PAGE = "docs/supply-chain.md"


def read(file: str) -> str:
    return (REPOSITORY / file).read_text()


def images() -> Iterator[tuple[str, str]]:
    """(file, image) of everything that is started or built on, and that is not built here."""
    for file in [REPOSITORY / "compose.yaml", *sorted((REPOSITORY / "deploy").rglob("*.yaml"))]:
        for document in yaml.safe_load_all(file.read_text()):
            others = (image for image in _said(document, "image") if not image.startswith("aetheris/"))
            yield from ((str(file.relative_to(REPOSITORY)), image) for image in others)
    built_on = re.findall(r"^(?:FROM|ARG \w+=)\s*(\S+/\S+)", read("Dockerfile"), re.M)
    yield from (("Dockerfile", image) for image in built_on)


def _said(node: Any, key: str) -> Iterator[str]:
    """Every text under that key, at any depth."""
    if isinstance(node, dict):
        for name, inner in node.items():
            if name == key and isinstance(inner, str):
                yield inner
            yield from _said(inner, key)
    if isinstance(node, list):
        for inner in node:
            yield from _said(inner, key)


def kafkas() -> Iterator[tuple[str, str]]:
    """(where, version) of every Kafka that is started, spoken of or whose tools are used."""
    tools = [line.split()[1] for line in read(TOOLS).splitlines() if line[:1] != "#"]
    for where, jars in ((BROKER, [jar.coordinates for jar in locked_jars()]), (TOOLS, tools)):
        yield from ((where, jar.split(":")[2]) for jar in jars if jar.startswith("org.apache.kafka:"))
    for file, image in images():
        if image.startswith(KAFKA_IMAGE):
            yield file, image.removeprefix(f"{KAFKA_IMAGE}:").partition("@")[0]
    clusters = (one for one in yaml.safe_load_all(read(STRIMZI)) if one["kind"] == "Kafka")
    yield from ((STRIMZI, one["spec"]["kafka"]["version"]) for one in clusters)
    for page in (PAGE, BROKER, TOOLS):
        yield from ((page, version) for version in re.findall(r"Kafka (\d+\.\d+\.\d+)", read(page)))


def test_there_is_one_kafka() -> None:
    found = set(kafkas())
    assert {one for one in found if one[1] != KAFKA_VERSION} == set()
    local = "deploy/components/kafka-local/kafka.yaml"
    assert {where for where, _ in found} == {BROKER, TOOLS, STRIMZI, PAGE, "compose.yaml", local}


def test_every_image_of_others_is_named_by_its_digest() -> None:
    found = set(images())
    assert {one for one in found if not DIGEST.fullmatch(one[1])} == set()
    assert {file for file, _ in found} >= {"compose.yaml", "Dockerfile", "deploy/components/valkey/valkey.yaml"}


def test_one_image_has_one_digest() -> None:
    named = {image for _, image in images()}
    assert len(named) == len({image.partition(":")[0] for image in named})


def test_the_actions_of_the_gate_are_named_by_their_commit() -> None:
    workflows = [yaml.safe_load(file.read_text()) for file in (REPOSITORY / ".github" / "workflows").iterdir()]
    used = {one for workflow in workflows for one in _said(workflow, "uses")}
    assert used
    assert {one for one in used if not COMMIT.fullmatch(one)} == set()


@pytest.mark.parametrize("file", ["Makefile", "Dockerfile"])
def test_pip_takes_only_what_has_the_hash_that_is_written_here(file: str) -> None:
    asking = [line for line in read(file).splitlines() if "pip install" in line]
    assert asking
    assert [line for line in asking if "--require-hashes" not in line] == []
    assert [line for line in asking if "--only-binary=:all:" not in line] == [], "a build asks for more, without hashes"


def test_uv_is_one_version_with_a_hash_for_each_of_its_files() -> None:
    pinned = [line for line in read("deploy/uv.txt").splitlines() if not line.startswith("#")]
    assert re.fullmatch(r"uv==\d+\.\d+\.\d+ \\", pinned[0])
    assert len(pinned) > 10, "for every platform that it is built for"
    assert [line for line in pinned[1:] if not HASH.fullmatch(line.strip(" \\"))] == []
