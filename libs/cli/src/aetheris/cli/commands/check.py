"""`aetheris check`: what is wrong with the settings, the tools and the files of a system, without any system."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from aetheris.cli.console import CommandError, Exit, Json, end, errors_as_exits, out, print_json, progress, shown
from aetheris.cli.given import Config, EffectiveConfig, Tools, given
from aetheris.cli.project_faults import Checked, ProjectFault, checked
from aetheris.cli.project_file import ProjectFileInvalid
from aetheris.sdk.loader import Toolbox


def check(tools: Tools = None, config: Config = None, as_json: Json = False) -> None:
    """Say what is wrong with tools, policy, secrets, MCP servers and models; a line for each fault."""
    with errors_as_exits(as_json=as_json):
        found, origins = _found(config, tools)
    if as_json:
        print_json({"faults": [vars(fault) for fault in found.faults], "loaded": dict(found.loaded), "from": origins})
    else:
        faults = [(fault.subject, f"✗ {fault.detail}") for fault in found.faults]
        for subject, detail in (*reported_faults(found, origins), *faults):
            out.print(f"{subject:<10} {shown(detail)}")
    end(Exit.FAILED if found.faults else Exit.HOLDS)


def reported_faults(found: Checked, origins: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(what, how much of it, and where it comes from) of what was loaded."""
    for subject, detail in found.loaded:
        yield subject, f"{detail} ({origins[subject]})" if subject in origins else detail


def origins_of(found: Checked, here: EffectiveConfig) -> dict[str, str]:
    """What was loaded → the flag, the variable, or the file and its line that says so."""
    body = {subject: here.origin(subject) for subject, _ in found.loaded}
    return {subject: origin for subject, origin in body.items() if origin is not None}


def _found(config: Path | None, tools: str | None) -> tuple[Checked, dict[str, str]]:
    try:
        with given(config, tools) as here:
            found = checked()
            return found, origins_of(found, here)
    except ProjectFileInvalid as invalid:
        return Checked([ProjectFault("config", one) for one in invalid.faults], (), Toolbox({})), {}


def startable() -> Checked:
    """What a system would be started with.

    Raises:
        CommandError: naming everything that would make a service refuse to run.
    """
    found = checked()
    stops = [fault for fault in found.faults if fault.stops]
    for fault in stops:
        progress(fault.subject, f"✗ {fault.detail}")
    if stops:
        reported = [f"{fault.subject}: {fault.detail}" for fault in stops]
        raise CommandError(Exit.REFUSED, "refused", "Nothing was started: mend what is named above", faults=reported)
    return found
