"""Programs that a service starts for its tools: they can't open the files of its credentials (docs/tools.md)."""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from aetheris.sdk.isolation import kernel

_START = Path(__file__).with_name("program_start.py")
_closed: list[str] = []


def close_to_programs(files: Sequence[Path]) -> None:
    """From here on no program that is started here can open these files, where Linux can see to that."""
    _closed[:] = [str(one.absolute()) for one in files]


def argv_of(argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """What is to be started in place of a program; itself where nothing can be closed to it, or it isn't there.

    Args:
        env: its whole environment.
    """
    closable = sorted({*_closed} - {*kernel.stay_open(_closed)}) if _closed and sys.platform == "linux" else []
    if not closable or not _is_there(argv[0], env):
        return list(argv)
    locale = "given" if "LC_CTYPE" in env else "own"
    return [sys.executable, "-I", "-S", str(_START), json.dumps(closable), locale, *argv]


def _is_there(program: str, env: Mapping[str, str]) -> bool:
    """Whether it can be found from here; one by a relative path is looked for where it is started."""
    is_relative = "/" in program and not Path(program).is_absolute()
    return is_relative or shutil.which(program, path=env.get("PATH")) is not None
