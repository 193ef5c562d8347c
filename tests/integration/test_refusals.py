"""A service that would be unsafe, or lacks what it needs, does not start: it names the setting, never a secret."""

import asyncio
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from aetheris.cli.embedded.valkey import Valkey, running_valkey
from aetheris.protocol.base.writers import Party
from aetheris.runtime.base.refusal import StartRefused
from aetheris.runtime.kafka.admin import ensure_topics
from aetheris.runtime.kafka.tls import TlsUnusable, tls_context
from aetheris.runtime.keys.files import make_installation, make_key
from aetheris.runtime.process.settings import RuntimeSettings
from aetheris.runtime.redis.client import Redis
from aetheris.runtime.redis.store_check import StoreRefused, check_store
from tests.testkit.services import module_of

REFUSED = 78
AGAIN = 75
"""What is wrong lies with others, who may mend it at any time."""


def start(service: str, **env: str) -> tuple[int, str, str]:
    """Exit status, code and reason of a service that should not start."""
    argv = [sys.executable, "-m", module_of(service)]
    base = {name: value for name, value in os.environ.items() if not name.startswith("AETHERIS_")}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=40, check=False, env={**base, **env})
    entry = json.loads(done.stderr.splitlines()[-1])
    assert "s3cret" not in done.stderr
    return done.returncode, entry.get("code", entry["event"]), entry.get("reason", "")


@pytest.mark.parametrize("service", ["gateway", "planner", "ledger", "tool_executor", "prober", "verifier"])
def test_an_invalid_setting_is_named(service: str) -> None:
    code, kind, reason = start(service, AETHERIS_PARTITIONS="s3cret")
    assert (code, kind) == (REFUSED, "setting_invalid")
    assert reason.startswith("AETHERIS_PARTITIONS")


def test_a_redis_url_that_names_none() -> None:
    code, kind, reason = start("ledger", AETHERIS_REDIS="redis+sentinel://:s3cret@one,two")
    assert (code, kind) == (REFUSED, "setting_invalid")
    assert reason.startswith("AETHERIS_REDIS: behind the Sentinels stands what they call the master")


def test_no_seal_key(tmp_path: Path) -> None:
    code, kind, reason = start("verifier", AETHERIS_DATA=str(tmp_path))
    assert (code, kind) == (REFUSED, "seal_key_missing")
    assert "AETHERIS_SEAL_KEY" in reason


def test_no_log_key(tmp_path: Path) -> None:
    make_key(tmp_path / "seal.pem")
    code, kind, reason = start("verifier", AETHERIS_DATA=str(tmp_path), AETHERIS_SEAL_KEY=str(tmp_path / "seal.pem"))
    assert (code, kind) == (REFUSED, "log_key_missing")
    assert "AETHERIS_SEAL_LOG_KEY" in reason
    both = dict.fromkeys(("AETHERIS_SEAL_KEY", "AETHERIS_SEAL_LOG_KEY"), str(tmp_path / "seal.pem"))
    assert start("verifier", AETHERIS_DATA=str(tmp_path), **both)[:2] == (REFUSED, "seal_key_unusable")


OTHERS_KEYS = ("AETHERIS_SEAL_KEY", "AETHERIS_SEAL_LOG_KEY", "AETHERIS_INTERNAL_KEY", "AETHERIS_HTTP_KEY")


@pytest.mark.parametrize("setting", OTHERS_KEYS)
def test_a_prober_with_a_key(setting: str) -> None:
    code, kind, reason = start("prober", **{setting: "/s3cret"})
    assert (code, kind) == (REFUSED, "key_beside_tools")
    assert reason.startswith(f"{setting}: the prober runs tools' probes")


def test_a_prober_with_the_key_of_who_seals(tmp_path: Path) -> None:
    """A key of its own signs its answers; one that is certified as the auditor's is none of its."""
    now = datetime.now(UTC)
    root = make_installation(tmp_path, [Party.AUDITOR], now - timedelta(days=1), now + timedelta(days=1))
    files = {"AETHERIS_RECORD_KEY": "auditor.pem", "AETHERIS_RECORD_CERT": "auditor.cert.json"}
    given = {name: str(tmp_path / file) for name, file in files.items()}
    code, kind, _ = start("prober", AETHERIS_INSTALLATION=root, **given)
    assert (code, kind) == (REFUSED, "key_unusable")


@pytest.mark.parametrize("setting", ["AETHERIS_TOOLS", "AETHERIS_SECRETS", "AETHERIS_MCP"])
def test_a_verifier_with_tools(setting: str) -> None:
    code, kind, reason = start("verifier", **{setting: "s3cret"}, AETHERIS_MODELS="")
    assert (code, kind) == (REFUSED, "tools_beside_key")
    assert reason.startswith(f"{setting}: the verifier holds the key that seals")


@pytest.mark.real
def test_brokers_that_could_lose_a_record(kafka: str, tmp_path: Path) -> None:
    asyncio.run(ensure_topics(kafka, 4))
    code, kind, reason = start("planner", AETHERIS_KAFKA=kafka, AETHERIS_DATA=str(tmp_path))
    assert (code, kind) == (AGAIN, "broker_refused")
    assert "aetheris.jobs.events.v1: min.insync.replicas must be at least 2" in reason
    assert "aetheris.jobs.events.v1: must have at least 2 replicas" in reason


@pytest.mark.real
async def test_a_store_that_evicts(tmp_path: Path) -> None:
    with running_valkey(Valkey(tmp_path), tmp_path / "valkey.log") as url:
        redis = Redis(url)
        await check_store(redis)
        await redis.pipeline([("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")])
        with pytest.raises(StoreRefused, match="maxmemory-policy must be noeviction, is allkeys-lru"):
            await check_store(redis)
        await check_store(redis, dev=True)
        await redis.close()
    away = Redis("redis://127.0.0.1:1")
    await check_store(away)
    await away.close()


def test_certificates_that_cannot_be_used(tmp_path: Path) -> None:
    none, junk = tmp_path / "none.pem", tmp_path / "junk.pem"
    junk.write_text("s3cret")

    def refused(**files: Path) -> str:
        with pytest.raises(TlsUnusable) as caught:
            tls_context(RuntimeSettings.model_validate(files))
        assert isinstance(caught.value, StartRefused)
        return str(caught.value)

    assert "AETHERIS_KAFKA_CA" in refused(kafka_ca=none)
    assert "AETHERIS_KAFKA_CA" in refused(kafka_ca=junk)
    assert "AETHERIS_KAFKA_CA must be set" in refused(kafka_cert=junk)
    system = Path(ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt")
    assert "set together" in refused(kafka_ca=system, kafka_key=junk)
    assert "name no certificate" in refused(kafka_ca=system, kafka_cert=junk, kafka_key=junk)
    assert tls_context(RuntimeSettings.model_validate({})) is None


def test_a_reason_names_no_value() -> None:
    reasons: Mapping[str, str] = {"AETHERIS_DRAIN_S": "s3cret", "AETHERIS_DEV": "s3cret"}
    code, _, reason = start("ledger", **reasons)
    assert code == REFUSED
    assert all(name in reason for name in reasons)
