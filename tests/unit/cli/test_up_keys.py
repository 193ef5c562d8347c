"""The keys of an embedded system's services: judged before anything is started, or ended to start it anew."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.cli.embedded import lifecycle
from aetheris.cli.embedded.errors import EmbeddedError
from aetheris.cli.embedded.plan import RECORD_KEYS
from aetheris.cli.embedded.service_keys import record_keys
from aetheris.cli.embedded.services import SERVICES
from aetheris.protocol.base.writers import Party
from aetheris.runtime.keys.files import make_installation, make_key

SIGNING = [service.signs for service in SERVICES if service.signs is not None]
NOW = datetime.now(UTC)


def made(data: Path, days: int = 1) -> str:
    """Keys of every service that signs, of `days` that have begun; the root's id."""
    begin = NOW - timedelta(hours=1)
    return make_installation(data / RECORD_KEYS, SIGNING, begin, begin + timedelta(days=days))


def test_who_names_an_installation_and_has_put_its_keys_there_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, shared = made(tmp_path), dict[str, str]()
    monkeypatch.setenv("AETHERIS_INSTALLATION", f"{'f' * 64}, {root}")
    assert record_keys(tmp_path, SERVICES, shared) == tmp_path / RECORD_KEYS
    assert root in shared["AETHERIS_INSTALLATION"]


@pytest.mark.parametrize("lacks", ["all", "the ledger's key", "the root", "the time"])
def test_who_names_an_installation_without_its_keys_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    root = made(tmp_path, days=0 if lacks == "the time" else 1) if lacks != "all" else "f" * 64
    if lacks == "the ledger's key":
        (tmp_path / RECORD_KEYS / f"{Party.LEDGER}.pem").unlink()
    monkeypatch.setenv("AETHERIS_INSTALLATION", "f" * 64 if lacks == "the root" else root)
    party = Party.LEDGER if lacks == "the ledger's key" else SIGNING[0]
    with pytest.raises(EmbeddedError, match=f"AETHERIS_INSTALLATION is set, and {party} has no key") as refused:
        record_keys(tmp_path, SERVICES, {})
    assert f"aetheris root certify {party}" in refused.value.next_step
    assert str(tmp_path / RECORD_KEYS) in refused.value.next_step


@pytest.mark.parametrize("broken", ["keys/records/ledger.pem", "keys/records/planner.cert.json", "keys/seal.pem", None])
def test_what_runs_goes_on_where_it_could_not_be_started_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str | None
) -> None:
    made(tmp_path)
    make_key(tmp_path / "keys" / "seal.pem")
    if broken is not None:
        (tmp_path / broken).write_text("no key")
    ended = list[Path]()

    class EndedError(Exception):
        """Far enough."""

    def down(data: Path) -> None:
        ended.append(data)
        raise EndedError

    monkeypatch.setattr(lifecycle, "supervisor_pid", lambda _data: 1)  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(lifecycle, "down", down)
    shown = CliRunner().invoke(app, ["up", "--restart", "--data", str(tmp_path)])
    assert ended == ([] if broken is not None else [tmp_path])
    if broken is not None:
        assert Path(broken).name in shown.output.replace("\n", "")
