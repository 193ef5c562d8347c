"""`aetheris config`: every setting, as this environment has it."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import cast
from urllib.parse import urlsplit

from pydantic import ValidationError

from aetheris.cli.console import CommandError, Exit, Json, errors_as_exits, print_json, table
from aetheris.gateway.settings import GatewaySettings
from aetheris.ledger.settings import LedgerSettings
from aetheris.planner.settings import PlannerSettings
from aetheris.runtime.process.settings import RuntimeSettings
from aetheris.tool_executor.settings import ExecutorSettings
from aetheris.verifier.settings import VerifierSettings

SETTINGS: Mapping[str, type[RuntimeSettings]] = {
    "all": RuntimeSettings,
    "gateway": GatewaySettings,
    "planner": PlannerSettings,
    "ledger": LedgerSettings,
    "executor": ExecutorSettings,
    "verifier": VerifierSettings,
}


@dataclass(frozen=True)
class Setting:
    """One setting: who has it, its environment variable, its value here, what it means."""

    service: str
    variable: str
    value: str
    meaning: str


def config(as_json: Json = False) -> None:
    """Show every setting: its variable, its value in this environment, what it means."""
    with errors_as_exits(as_json=as_json):
        found = [setting for service in SETTINGS for setting in _settings(service)]
        if as_json:
            print_json([asdict(setting) for setting in found])
        else:
            table(("service", "variable", "value", "meaning"), [tuple(asdict(one).values()) for one in found])


def _settings(service: str) -> Iterator[Setting]:
    """The service's settings; those that all services have stand under `all` only."""
    declared = SETTINGS[service]
    shared = RuntimeSettings.model_fields if declared is not RuntimeSettings else {}
    try:
        values = declared.model_validate({})
    except ValidationError as error:
        name = str(error.errors(include_input=False)[0]["loc"][0]).upper()
        variable = name if name.startswith("AETHERIS_") else f"AETHERIS_{name}"
        raise CommandError(
            Exit.BAD_INPUT, "invalid_setting", f"{variable} has no valid value", field=variable
        ) from None
    for name, field in declared.model_fields.items():
        if name not in shared:
            value = _printable(getattr(values, name))
            yield Setting(service, f"AETHERIS_{name.upper()}", value, field.description or "")


def _printable(value: object) -> str:
    """A value without the password that a URL may carry."""
    if isinstance(value, tuple):
        return ",".join(map(str, cast("tuple[object, ...]", value)))
    text = "" if value is None else str(value)
    password = urlsplit(text).password if "://" in text else None
    return text.replace(f":{password}@", ":…@") if password else text
