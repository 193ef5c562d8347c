"""`aetheris init`: a project to begin with."""

from pathlib import Path
from typing import Annotated

import typer

from aetheris.cli.console import CommandError, Exit, Json, errors_as_exits, print_json, progress
from aetheris.cli.project import contents


def init(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where; made if it isn't there.")] = Path(),
    as_json: Json = False,
) -> None:
    """Write tools, a plan, a policy, aetheris.toml, a test and a README that run as they are; overwrite nothing."""
    with errors_as_exits(as_json=as_json):
        written = _written(folder)
        if as_json:
            print_json({"files": [str(path) for path in written]})
        else:
            for path in written:
                progress("wrote", str(path))


def _written(folder: Path) -> list[Path]:
    """Raises: CommandError: some of it is there already; nothing was written."""
    wanted = {folder / name: text for name, text in contents()}
    there = [str(path) for path in wanted if path.exists()]
    if there:
        message = f"{', '.join(there)}: there already, and nothing was written; name another folder"
        raise CommandError(Exit.BAD_INPUT, "file_exists", message, files=there)
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in wanted.items():
        path.write_text(text)
    return list(wanted)
