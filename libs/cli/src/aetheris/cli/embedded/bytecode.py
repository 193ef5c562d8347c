"""Where the embedded services keep the bytecode of what they import."""

import os
from importlib.util import cache_from_source
from pathlib import Path

from aetheris.cli.embedded.jars import cache_folder


def kept_bytecode() -> dict[str, str]:
    """Settings of Python's for a service: without bytecode, compiling is two thirds of its start, after each kill.

    Empty where there is bytecode beside the sources, or may be written there. Where the environment forbids that
    (PYTHONDONTWRITEBYTECODE), it is kept in the user's cache.
    """
    if not os.environ.get("PYTHONDONTWRITEBYTECODE") or os.environ.get("PYTHONPYCACHEPREFIX"):
        return {}
    if Path(cache_from_source(__file__)).exists():
        return {}
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(cache_folder().parent / "bytecode")}
