"""Imported before anything else by a service's process, so that it is back soon after a kill, and takes less memory.

structlog imports rich, httpx its command line, and OpenTelemetry psutil, wherever the command line of Aetheris brings
them along: for colours and figures that no service shows. pydantic looks through all installed packages for plugins.
The collector finds nothing in what is being imported, and looks all the time: `lifecycle.run` lets it go on.

glibc keeps what large buffers took (fetched records, above all): up to 10 MB in each process. With thresholds that are
set it stops moving them, and gives it back.
"""

import ctypes
import gc
import os
import sys
from importlib import import_module
from types import ModuleType
from typing import cast

_UNWANTED = ("rich", "psutil", "pygments")
_PLUGINS = "PYDANTIC_DISABLE_PLUGINS"
_MALLOC = {-1: 2 * 1024 * 1024, -3: 512 * 1024, -8: 2}
"""M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX of mallopt(3). Smaller ones map each fetch anew: 60 µs of it."""


def load(name: str) -> ModuleType:
    """Import a module without what it imports only if it is there."""
    hidden = [one for one in _UNWANTED if one not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden, cast("ModuleType", None)))  # importing it is an ImportError meanwhile
    try:
        return import_module(name)
    finally:
        for one in hidden:
            del sys.modules[one]


def _give_back() -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other libraries of C have none
    if mallopt is not None:
        for what, value in _MALLOC.items():
            mallopt(what, value)


gc.disable()
_give_back()
os.environ.setdefault(_PLUGINS, "__all__")
load("structlog")
