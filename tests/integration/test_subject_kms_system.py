"""Persons' keys wrapped by a Vault (a stand-in for one): hidden and opened by it, and refused while it is away."""

import json
import secrets
from pathlib import Path

import pytest

from tests.testkit.external_server import until
from tests.testkit.system import running_system
from tests.testkit.vault import TOKEN, running_vault

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(600)]


def test_a_vault_wraps_the_keys_of_persons(tmp_path: Path) -> None:
    value = f"ann.{secrets.token_urlsafe(18)}@example.org"
    (tmp_path / "seen").touch()
    (tmp_path / "token").write_text(TOKEN)
    with running_vault() as vault:
        env = {
            "AETHERIS_TOOLS": "tests.testkit.personal_tools",
            "PERSONAL_SEEN": str(tmp_path / "seen"),
            "AETHERIS_SUBJECT_KEYS": str(tmp_path / "subjects"),
            "AETHERIS_SUBJECT_KMS": f"vault+{vault.url}/transit/subjects?token-source=file:{tmp_path}/token",
        }
        with running_system(tmp_path / "data", env) as system:
            called = {"id": "a", "tool": "echo", "args": {"customer": "c-17", "email": value}}
            job = system.completed(called)
            system.wait_sealed(job)
            kept = [json.loads(path.read_bytes()) for path in (tmp_path / "subjects" / "keys").iterdir()]
            assert [one["wrapped"].partition("v1:")[0] for one in kept] == ["vault:"]
            assert TOKEN.encode() not in b"".join(path.read_bytes() for path in (tmp_path / "data" / "logs").iterdir())
            vault.status = 503
            other = {**called, "args": {"customer": "c-18", "email": value}}
            body = {"plan": {"nodes": [other]}}
            answer = system.api.post("/jobs", json=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "subject_keys_away")
            vault.status = 200
            until(
                lambda: system.api.post("/jobs", json=body).status_code == 202, 30
            )  # a second later it is asked again
            system.completed(other)
            system.verified(job)
