"""The keys of seals and of persons in HashiCorp's Vault itself, by tokens with just the rights that the docs name."""

import json
import secrets
from base64 import b64decode
from collections.abc import Generator
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from aetheris.cli.embedded.plan import log_path
from tests.testkit.built_vault import MOUNT, SEAL_RIGHTS, SUBJECT_RIGHTS, BuiltVault, built_vault
from tests.testkit.external_server import until
from tests.testkit.system import System, running_system

pytestmark = [pytest.mark.full, pytest.mark.timeout(7_200)]


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Generator[BuiltVault]:
    with built_vault(tmp_path_factory.mktemp("vault")) as vault:
        yield vault


@pytest.fixture(scope="module")
def system(vault: BuiltVault, tmp_path_factory: pytest.TempPathFactory) -> Generator[System]:
    folder = tmp_path_factory.mktemp("system")
    (folder / "seen").touch()
    uris: dict[str, str] = {}
    for key, rights in (("seal", SEAL_RIGHTS), ("subjects", SUBJECT_RIGHTS)):
        (folder / key).write_text(vault.token(key, rights))
        uris[key] = f"vault+{vault.url}/{MOUNT}/{key}?token-source=file:{folder}/{key}&ca=file:{vault.ca}"
    env = {
        "AETHERIS_TOOLS": "tests.testkit.personal_tools",
        "PERSONAL_SEEN": str(folder / "seen"),
        "AETHERIS_SEAL_KEY_URI": uris["seal"],
        "AETHERIS_SUBJECT_KEYS": str(folder / "subject-keys"),
        "AETHERIS_SUBJECT_KMS": uris["subjects"],
    }
    with running_system(folder / "data", env) as system:
        yield system


def calling(customer: str) -> dict[str, Any]:
    email = f"{secrets.token_urlsafe(18)}@example.org"
    return {"id": "a", "tool": "echo", "args": {"customer": customer, "email": email}}


def test_it_seals_and_what_it_has_sealed_verifies(vault: BuiltVault, system: System) -> None:
    job = system.completed(calling("c-1"))
    system.wait_sealed(job)
    assert system.verified(job)["seal"]["ok"]
    (own,) = vault.asked("GET", f"{MOUNT}/keys/seal")["data"]["keys"].values()
    keys = system.api.get(f"/jobs/{job}/stream").json()["keys"]
    sealing = [load_pem_public_key(key["public_key"].encode()) for key in keys if key["use"] == "seal"]
    assert sealing == [Ed25519PublicKey.from_public_bytes(b64decode(own["public_key"]))]
    assert not (system.data / "keys" / "seal.pem").exists(), "none was made"


def test_a_key_that_is_rotated_seals_by_the_version_of_the_start(vault: BuiltVault, system: System) -> None:
    vault.asked("POST", f"{MOUNT}/keys/seal/rotate")
    job = system.completed(calling("c-1"))
    system.wait_sealed(job)
    assert system.verified(job)["seal"]["ok"]


def test_it_wraps_the_keys_of_persons_and_a_rotated_one_still_opens(vault: BuiltVault, system: System) -> None:
    called = calling("c-2")
    job = system.completed(called)
    kept = [json.loads(path.read_bytes()) for path in (system.data.parent / "subject-keys" / "keys").iterdir()]
    assert {one["wrapped"].partition("v1:")[0] for one in kept} == {"vault:"}
    vault.asked("POST", f"{MOUNT}/keys/subjects/rotate")
    system.kill("gateway-0")
    system.wait_ready()
    opened = system.api.get(f"/jobs/{job}/openings").json()["openings"]
    assert called["args"]["email"] in [one["value"] for one in opened]


def test_while_it_is_sealed_itself_only_seals_and_new_persons_wait(vault: BuiltVault, system: System) -> None:
    body = {"plan": {"nodes": [calling("c-3")]}}
    system.completed(calling("c-1"))  # whose key is in memory from now on
    vault.seal()
    try:
        answer = system.api.post("/jobs", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "subject_keys_away")
        job = system.completed(calling("c-1"))
        until(lambda: "seal_key_away" in log_path(system.data, "verifier-0").read_text(), 60)
        assert system.types(job, "job_sealed") == []
    finally:
        vault.unseal()
    system.wait_sealed(job)
    until(lambda: system.api.post("/jobs", json=body).status_code == 202, 60)
