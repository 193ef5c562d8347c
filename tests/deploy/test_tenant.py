"""A tenant's own installation, as the overlay has it: what it shares with production's, and where its rights end."""

import runpy
from pathlib import Path

import pytest

from aetheris.protocol.base.topics import Topic, dead_letters
from tests.deploy.manifests import (
    DEPLOY,
    TENANT,
    TENANTS_PREFIX,
    WHOLE,
    Manifest,
    kubectl_needed,
    name,
    of_kind,
    rendered,
    settings_of,
)

pytestmark = kubectl_needed

GENERATE = runpy.run_path(str(DEPLOY / "generate.py"))
VALKEY = runpy.run_path(str(DEPLOY / "valkey_users.py"))
NAMES = [*map(str, Topic), *(dead_letters(topic) for topic in Topic)]


def covered(user: Manifest, kind: str, names: list[str]) -> set[str]:
    """Which of these a user may do anything with."""
    found: set[str] = set()
    for acl in user["spec"]["authorization"]["acls"]:
        what = acl["resource"]
        if what["type"] == kind:
            is_prefix = what["patternType"] == "prefix"
            found |= {one for one in names if one == what["name"] or (is_prefix and one.startswith(what["name"]))}
    return found


def test_its_users_end_at_its_prefix_and_no_other_begins_there() -> None:
    its, production = of_kind(TENANT, "KafkaUser"), of_kind(WHOLE, "KafkaUser")
    assert {name(one).removeprefix(f"{TENANTS_PREFIX}-") for one in its} == set(GENERATE["RIGHTS"])
    assert not {name(one) for one in its} & {name(one) for one in production}
    groups = [f"aetheris.{one}" for one in ("gateway", "planner", "ledger", "tool_executor", "subscriber.x")]
    for kind, names in (("topic", NAMES), ("group", groups)):
        own = [f"{TENANTS_PREFIX}.{one}" for one in names]
        assert not [name(one) for one in its if covered(one, kind, names)]
        assert not [name(one) for one in production if covered(one, kind, own)]
        assert any(covered(one, kind, own) for one in its)
    for user in its:
        for acl in user["spec"]["authorization"]["acls"]:
            assert acl["resource"]["name"].startswith(f"{TENANTS_PREFIX}.aetheris."), name(user)


def test_its_topics_are_production_s_but_for_the_prefix() -> None:
    its = {name(one).removeprefix(f"{TENANTS_PREFIX}."): one["spec"] for one in of_kind(TENANT, "KafkaTopic")}
    assert its == {name(one): one["spec"] for one in of_kind("production", "KafkaTopic")}
    assert its.keys() == set(NAMES)


def test_its_services_are_in_a_namespace_of_their_own_and_told_the_prefix() -> None:
    placed = {one["kind"]: one["metadata"].get("namespace") for one in rendered(TENANT)}
    assert placed["StatefulSet"] == placed["ConfigMap"] == placed["Service"] == "aetheris-acme"
    assert placed["KafkaUser"] == placed["KafkaTopic"] == "aetheris"
    told = settings_of(TENANT)["data"]
    assert told["AETHERIS_PREFIX"] == TENANTS_PREFIX
    assert told["AETHERIS_KAFKA"].split(":")[0].endswith(".aetheris")
    assert not [one for one in rendered(TENANT) if one["kind"] == "Secret"]
    policies = {(name(one), one["metadata"]["namespace"]): one["spec"] for one in of_kind(TENANT, "NetworkPolicy")}
    [entry] = policies["valkey-acme", "aetheris"]["ingress"]
    [whom] = entry["from"]
    assert whom["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "aetheris-acme"}
    for policy, at in (("services", 1), ("redis", 0)):
        [to] = policies[policy, "aetheris-acme"]["egress"][at]["to"]
        assert to["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "aetheris"}


def test_at_valkey_its_users_end_at_its_prefix(tmp_path: Path) -> None:
    VALKEY["write"](tmp_path, "store:7000", TENANTS_PREFIX)
    lines = (tmp_path / "users.acl").read_text().splitlines()
    assert [line.split()[1] for line in lines] == [f"{TENANTS_PREFIX}-{service}" for service in VALKEY["RULES"]]
    for line in lines:
        patterns = [word for word in line.split() if word[0] in "~&" or word.startswith("%")]
        assert patterns
        assert all(word.lstrip("%R~&").startswith(f"{TENANTS_PREFIX}:aetheris:") for word in patterns)
    assert (tmp_path / "gateway.url").read_text().startswith(f"rediss://{TENANTS_PREFIX}-gateway:")
    with pytest.raises(ValueError, match="prefix"):
        VALKEY["write"](tmp_path, "store:7000", "a*")


def test_another_prefix_has_files_of_its_own(tmp_path: Path) -> None:
    GENERATE["main"]("other.eu", str(tmp_path))
    assert '"name": "other.eu-ledger"' in (tmp_path / "users.yaml").read_text()
    assert '"name": "other.eu.aetheris.jobs.events.v1"' in (tmp_path / "topics.yaml").read_text()
    for none in ("Acme", "a_b", "aetheris"):
        with pytest.raises(ValueError, match="letters"):
            GENERATE["main"](none, str(tmp_path))
