"""The key that a service is told to sign with: it starts with one that is its own and in force, and else not at all."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from aetheris.protocol.base.writers import Party
from aetheris.runtime.base.refusal import SettingInvalid, StartRefused, refusal
from aetheris.runtime.keys.files import certified, load_key, make_installation
from aetheris.runtime.keys.signing import raw_public_key
from aetheris.runtime.process.record_keys import record_keys
from aetheris.runtime.process.settings import SigningSettings, load

NOW = datetime.now(UTC)
DAY = timedelta(days=1)


class Installed:
    """Keys of a planner and a ledger under one root."""

    def __init__(self, folder: Path, begin: datetime = NOW - DAY, end: datetime = NOW + DAY) -> None:
        self.folder = folder
        self.root = make_installation(folder, [Party.PLANNER, Party.LEDGER], begin, end)

    def settings(self, **changed: Any) -> SigningSettings:
        own = {"installation": (self.root,), "record_key": self.folder / "ledger.pem"}
        own |= {"record_cert": self.folder / "ledger.cert.json"}
        return SigningSettings.model_validate(own | changed)


def test_a_service_with_its_key_starts_and_knows_its_root(tmp_path: Path) -> None:
    ours = Installed(tmp_path)
    keys = record_keys(ours.settings(), Party.LEDGER)
    assert set(keys.roots) == {ours.root}
    assert keys.signer is not None


def test_where_nothing_is_named_nothing_is_signed() -> None:
    keys = record_keys(SigningSettings(), Party.LEDGER)
    assert (tuple(keys.roots), keys.signer) == ((), None)


_WRONG: dict[str, Callable[[Installed], dict[str, Any]]] = {
    "no certificate": lambda _: {"record_cert": None},
    "no key": lambda _: {"record_key": None},
    "no root": lambda _: {"installation": ()},
    "a root alone": lambda _: {"record_key": None, "record_cert": None},
    "another root": lambda _: {"installation": ("0" * 64,)},
    "the planner's certificate": lambda ours: {"record_cert": ours.folder / "planner.cert.json"},
    "the planner's key": lambda ours: {"record_key": ours.folder / "planner.pem"},
    "the planner's both": lambda ours: {
        "record_key": ours.folder / "planner.pem",
        "record_cert": ours.folder / "planner.cert.json",
    },
    "a file that is not there": lambda ours: {"record_cert": ours.folder / "none.json"},
    "a certificate that its root never signed": lambda ours: {"record_cert": _altered(ours)},
    "a key that others may read": lambda ours: {"record_key": _shown(ours)},
}


@pytest.mark.parametrize("wrong", _WRONG)
def test_with_anything_else_it_does_not_start(tmp_path: Path, wrong: str) -> None:
    ours = Installed(tmp_path)
    settings = ours.settings(**_WRONG[wrong](ours))
    with pytest.raises(StartRefused) as refused:
        record_keys(settings, Party.LEDGER)
    assert refused.value.code == "key_unusable"
    assert "PRIVATE" not in str(refused.value)


def test_a_certificate_that_is_over_is_refused_in_words(tmp_path: Path) -> None:
    ours = Installed(tmp_path, NOW - 2 * DAY, NOW - DAY)
    with pytest.raises(StartRefused, match="renew it with `aetheris root certify`") as refused:
        record_keys(ours.settings(), Party.LEDGER)
    assert refused.value.code == "certificate_ended"
    assert not refused.value.passes
    assert refusal(ExceptionGroup("a running service", [refused.value])) is not None, "the process ends with 78"


def test_before_its_certificate_it_does_not_run_and_is_started_again(tmp_path: Path) -> None:
    """A clock that is behind is set right some time: then it runs, and nobody need start it."""
    ours = Installed(tmp_path, NOW + DAY, NOW + 2 * DAY)
    with pytest.raises(StartRefused, match=r"and the clock says .*: set the clock right") as refused:
        record_keys(ours.settings(), Party.LEDGER)
    assert refused.value.code == "certificate_not_yet"
    assert refused.value.passes


def test_another_root_that_is_named_beside_is_good(tmp_path: Path) -> None:
    ours = Installed(tmp_path)
    keys = record_keys(ours.settings(installation=("0" * 64, ours.root)), Party.LEDGER)
    assert len(keys.roots) == 2


@pytest.mark.parametrize("text", ["ours", "0" * 63, "A" * 64, "0" * 64 + ",x"])
def test_a_root_that_is_no_key_id_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("AETHERIS_INSTALLATION", text)
    with pytest.raises(SettingInvalid, match="AETHERIS_INSTALLATION: not_key_ids"):
        load(SigningSettings)


def _altered(ours: Installed) -> Path:
    """The ledger's, by a key that names our root as its own."""
    other = load_key(ours.folder / "planner.pem")
    made = certified(other, Party.LEDGER, raw_public_key(load_key(ours.folder / "ledger.pem")), NOW - DAY, NOW + DAY)
    root = raw_public_key(load_key(ours.folder / "root.pem"))
    path = ours.folder / "altered.json"
    path.write_text(json.dumps(replace(made, root=root).to_json()))
    return path


def _shown(ours: Installed) -> Path:
    path = ours.folder / "shown.pem"
    path.write_bytes((ours.folder / "ledger.pem").read_bytes())
    path.chmod(0o640)
    return path
