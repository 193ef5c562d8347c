"""What `aetheris up` tells the console: where the gateway is, and nothing by which it could do more than a browser."""

from pathlib import Path

from aetheris.cli.embedded.ports import Ports
from aetheris.cli.embedded.services import CONSOLE, service_parts
from aetheris.console.settings import ConsoleSettings
from aetheris.verifier.apart import KEYS, SUBJECT_KEYS, TOOLS


def test_the_console_is_told_of_no_broker_no_store_and_no_key_but_that_of_https(tmp_path: Path) -> None:
    secret = dict.fromkeys((*KEYS, *SUBJECT_KEYS, *TOOLS, "AETHERIS_KAFKA", "AETHERIS_REDIS"), "somewhere")
    shared = {"AETHERIS_DATA": str(tmp_path), "AETHERIS_GATEWAY_URL": "http://127.0.0.1:1"}
    [part] = service_parts([CONSOLE], shared, Ports(tmp_path))
    env = {**secret, **part.env}
    assert {name for name in secret if env[name]} == {"AETHERIS_HTTP_KEY"}
    assert env["AETHERIS_GATEWAY_URL"] == "http://127.0.0.1:1"
    assert ConsoleSettings.model_fields.keys() >= {"gateway_url", "console_url", "login_issuer"}
