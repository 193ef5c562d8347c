"""A gateway that starts without a root it was told of before: its orders are not in force, and that is said."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.messages.commands import FreezeOrder
from aetheris.protocol.messages.envelope import draft
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.base.fresh_ids import fresh_id
from aetheris.runtime.keys.files import load_service_key, make_installation
from aetheris.runtime.keys.records import RecordKeys, RecordSigner
from aetheris.runtime.keys.signing import Signer
from tests.testkit.gateways import TIME, running, settings_of

pytestmark = pytest.mark.real


def root(folder: Path) -> tuple[str, RecordKeys]:
    """A root of its own, and its gateway's key."""
    now = datetime.now(UTC)
    made = make_installation(folder, [Party.GATEWAY], now - timedelta(hours=1), now + timedelta(days=1))
    held = load_service_key(folder, Party.GATEWAY)
    signer = RecordSigner({Party.GATEWAY: Signer(held.private_key, held.certificate)}, SystemClock())
    return made, RecordKeys(frozenset({made}), signer)


async def test_who_runs_it_hears_which_root_is_missing(
    kafka: str, valkey_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now, _ = root(tmp_path / "now")
    before, keys = root(tmp_path / "before")
    folder = tmp_path / "now"
    told = {"installation": now, "record_key": folder / "gateway.pem", "record_cert": folder / "gateway.cert.json"}
    scope = FreezeScope(tenant="t", tool=f"t-{fresh_id()[-12:]}")
    order = FreezeOrder(scope=scope, number=1, frozen=True, by="ann", at=TIME)
    record = draft(Topic.FREEZES, order, key=order.key, id=fresh_id(), source="test", time=TIME)
    async with running(settings_of(kafka, valkey_url, tmp_path / "first", **told)) as surroundings:
        await surroundings.appender.append([(keys.message(record),)])
    capsys.readouterr()
    async with running(settings_of(kafka, valkey_url, tmp_path / "again", **told)):
        pass
    (said,) = (line for line in capsys.readouterr().out.splitlines() if before in line)
    assert "[warning" in said
    assert "does not name their root lines=1 " in said
