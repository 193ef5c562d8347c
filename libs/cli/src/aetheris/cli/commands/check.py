"""`aetheris check`: what is wrong with the settings, the tools and the files of a system, without any system."""

import os
from typing import Annotated

import typer

from aetheris.cli.console import CommandError, Exit, Json, end, errors_as_exits, out, print_json, progress, shown
from aetheris.cli.faults import Checked, checked


def check(
    tools: Annotated[str | None, typer.Option(envvar="AETHERIS_TOOLS", help="Modules of tools, a comma list.")] = None,
    as_json: Json = False,
) -> None:
    """Say what is wrong with tools, policy, secrets, MCP servers and models; a line for each fault."""
    with errors_as_exits(as_json=as_json):
        if tools is not None:
            os.environ["AETHERIS_TOOLS"] = tools
        found = checked()
    if as_json:
        print_json({"faults": [vars(fault) for fault in found.faults], "loaded": dict(found.loaded)})
    else:
        for subject, detail in (*found.loaded, *((fault.subject, f"✗ {fault.detail}") for fault in found.faults)):
            out.print(f"{subject:<10} {shown(detail)}")
    end(Exit.FAILED if found.faults else Exit.HOLDS)


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
        said = [f"{fault.subject}: {fault.detail}" for fault in stops]
        raise CommandError(Exit.BAD_INPUT, "refused", "Nothing was started: mend what is named above", faults=said)
    return found
