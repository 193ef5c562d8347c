"""A running system whose sealing key is in a Vault: its seals verify, and a Vault that hangs holds up seals alone."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from aetheris.cli.embedded.plan import log_path
from tests.testkit.external_server import until
from tests.testkit.system import running_system
from tests.testkit.vault import TOKEN, running_vault

NODE = {"id": "a", "tool": "report", "args": {"size": 3}}

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(240)]


def test_a_vault_seals_and_only_seals_wait_while_it_hangs(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (tmp_path / "token").write_text(TOKEN)
    with running_vault() as vault:
        uri = f"vault+{vault.url}/transit/seal?token-source=file:{tmp_path}/token"
        env = {"AETHERIS_SEAL_KEY_URI": uri, "AETHERIS_TOOLS": "tests.testkit.hostile_tools"}
        with running_system(data, env) as system:
            job = system.completed(NODE)
            system.wait_sealed(job)
            report = system.verified(job)
            checkpoint = system.api.get("/seals/checkpoint")
            keys = system.api.get(f"/jobs/{job}/stream").json()["keys"]

            vault.delay_s = 600
            later = [system.completed(NODE) for _ in range(8)]
            until(lambda: "seal_key_away" in log_path(data, "verifier-0").read_text(), 60)
            assert [system.types(one, "job_sealed") for one in later] == [[]] * 8
            assert not system.report(later[0])["seal"]["present"], "it is judged all the same"
            vault.delay_s = 0
            for one in later:
                system.wait_sealed(one)
        assert TOKEN not in log_path(data, "verifier-0").read_text()
    assert report["seal"]["ok"]
    assert checkpoint.status_code == 200
    own = vault.versions[0].public_key()
    sealing = [key["public_key"] for key in keys if key["use"] == "seal"]
    assert [load_pem_public_key(key.encode()) for key in sealing] == [own]
    assert not (data / "keys" / "seal.pem").exists(), "none was made"
