"""`aetheris config`: every setting, as this environment has it."""

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import cast

from pydantic import ValidationError

from aetheris.cli.console import CommandError, Exit, Json, errors_as_exits, print_json, table
from aetheris.cli.given import SETTINGS, Config, EffectiveConfig, given, printable
from aetheris.runtime.process.settings import RuntimeSettings


@dataclass(frozen=True)
class Setting:
    """One setting: who has it, its environment variable, its value here and where that comes from, what it means."""

    service: str
    variable: str
    value: str
    origin: str
    meaning: str


def config(config: Config = None, as_json: Json = False) -> None:
    """Show every setting: its variable, its value here and where that comes from, what it means."""
    with errors_as_exits(as_json=as_json), given(config) as here:
        found = [setting for service in SETTINGS for setting in _settings(service, here)]
        if as_json:
            print_json([asdict(setting) for setting in found])
        else:
            table(("service", "variable", "value", "from", "meaning"), [tuple(asdict(one).values()) for one in found])


def _settings(service: str, here: EffectiveConfig) -> Iterator[Setting]:
    """The service's settings; those that all services have stand under `all` only."""
    declared = SETTINGS[service]
    shared = RuntimeSettings.model_fields if declared is not RuntimeSettings else {}
    needed = [name for name, one in declared.model_fields.items() if one.is_required()]
    unset = {name: "" for name in needed if not os.environ.get(f"AETHERIS_{name.upper()}")}
    try:
        values = declared.model_validate(unset)
    except ValidationError as error:
        name = str(error.errors(include_input=False)[0]["loc"][0]).upper()
        variable = name if name.startswith("AETHERIS_") else f"AETHERIS_{name}"
        raise CommandError(
            Exit.BAD_INPUT, "invalid_setting", f"{variable} has no valid value", field=variable
        ) from None
    for name, field in declared.model_fields.items():
        if name not in shared:
            variable, value = f"AETHERIS_{name.upper()}", _printable(unset.get(name, getattr(values, name)))
            yield Setting(service, variable, value, here.origins.get(variable, "default"), field.description or "")


def _printable(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, cast("tuple[object, ...]", value)))
    return "" if value is None else printable(str(value))
