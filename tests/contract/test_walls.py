"""The wall around what decides (tests/walls.py) sees imports that no contract names."""

from pathlib import Path

from tests import walls


def test_what_is_not_known_to_compute_alone_is_seen(tmp_path: Path) -> None:
    module = tmp_path / "doubt.py"
    module.write_text("import json\nimport imaplib\nfrom requests import get\nfrom aetheris.protocol.base import ids\n")
    seen = list(walls.strangers("aetheris.ledger.core.doubt", module))
    assert [line.partition(" is ")[0] for line in seen] == [
        "aetheris.ledger.core.doubt:2: import imaplib",
        "aetheris.ledger.core.doubt:3: import requests",
    ]


def test_an_excuse_is_one_module_s_own(tmp_path: Path) -> None:
    module = tmp_path / "preferences.py"
    module.write_text("from urllib.request import parse_http_list\n")
    assert not list(walls.strangers("aetheris.gateway.core.preferences", module))
    assert list(walls.strangers("aetheris.gateway.core.wire", module))
