"""The whole system by https: gateway and verifier show a certificate, everybody who calls them trusts its CA."""

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from aetheris.cli import local
from tests.testkit.authority import Authority
from tests.testkit.external_server import running_outside, until
from tests.testkit.system import REPOSITORY, running_system

pytestmark = pytest.mark.real


def test_a_job_runs_and_is_proved_by_https(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path / "ca")
    shown = authority.sign("services")
    https = {
        "AETHERIS_HTTP_CERT": str(shown.certificate),
        "AETHERIS_HTTP_KEY": str(shown.key),
        "AETHERIS_CA": str(authority.ca),
    }
    data = tmp_path / "data"
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    for name, value in https.items():
        monkeypatch.setenv(name, value)
    with (
        running_outside(tmp_path / "outside") as external,
        running_system(data, external.env | https | {"AETHERIS_TOOLS": "tests.testkit.external_tools"}),
    ):
        node = {"id": "one", "tool": "poke_probeable", "args": {"tag": "t"}}
        (tmp_path / "plan.json").write_text(json.dumps({"nodes": [node]}))

        def aetheris(*argv: str, ca: str = str(authority.ca)) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "aetheris.cli", *argv, "--data", str(data)]
            env = {**os.environ, "PYTHONPATH": str(REPOSITORY), "AETHERIS_CA": ca}
            return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)

        until(lambda: "poke_probeable" in aetheris("tools").stdout, 30)
        ran = aetheris("run", str(tmp_path / "plan.json"))
        assert ran.returncode == 0, ran.stderr
        job_id = aetheris("jobs").stdout.split()
        proved = aetheris("verify", next(word for word in job_id if len(word) == 36))
        assert proved.returncode == 0, proved.stderr
        missing = aetheris("jobs", ca=str(tmp_path / "nothing"))
        assert "AETHERIS_CA names no readable PEM file" in missing.stderr
        with pytest.raises(httpx.ConnectError), httpx.Client(trust_env=False) as stranger:
            stranger.get(local.target(data).url)
