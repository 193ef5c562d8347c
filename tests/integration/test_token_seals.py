"""A running system whose sealing key is in a token: its seals verify, and no file of the system has the key."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from aetheris.cli.embedded.plan import log_path
from aetheris.verifier.token_key import KeyUri, TokenKey
from tests.testkit.external_server import until
from tests.testkit.softhsm import make_pair, make_token, softhsm_needed, uri_of
from tests.testkit.system import running_system

NODE = {"id": "a", "tool": "report", "args": {"size": 3}}

pytestmark = [pytest.mark.nightly, pytest.mark.real, softhsm_needed, pytest.mark.timeout(240)]


def test_a_token_seals_and_jobs_wait_while_it_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, token = tmp_path / "data", tmp_path / "token"
    token.mkdir()
    make_token(token, monkeypatch)
    make_pair("seal")
    env = {"AETHERIS_SEAL_KEY_URI": uri_of(token, "seal"), "AETHERIS_TOOLS": "tests.testkit.hostile_tools"}
    with running_system(data, env) as system:
        job = system.completed(NODE)
        system.wait_sealed(job)
        report = system.verified(job)
        checkpoint = system.api.get("/seals/checkpoint")
        keys = system.api.get(f"/jobs/{job}/stream").json()["keys"]

        (token / "tokens").rename(token / "away")
        later = system.completed(NODE)
        until(lambda: "seal_key_away" in log_path(data, "verifier-0").read_text(), 30)
        assert system.types(later, "job_sealed") == []
        (token / "away").rename(token / "tokens")
        system.wait_sealed(later)
    assert report["seal"]["ok"]
    assert checkpoint.status_code == 200
    own = TokenKey(KeyUri.parse(env["AETHERIS_SEAL_KEY_URI"])).public_key()
    sealing = [key["public_key"] for key in keys if key["use"] == "seal"]
    assert [load_pem_public_key(key.encode()) for key in sealing] == [own]
    assert not (data / "keys" / "seal.pem").exists(), "none was made"
