"""Imported before anything else by a service's process, so that it is back soon after a kill, and takes less memory.

structlog imports rich, httpx its command line, and OpenTelemetry psutil, wherever the command line of Aetheris brings
them along: for colours and figures that no service shows. pydantic looks through all installed packages for plugins.
The collector finds nothing in what is being imported, and looks all the time: `lifecycle.run` lets it go on.
"""

import gc
import os
import sys
from importlib import import_module
from types import ModuleType
from typing import cast

_UNWANTED = ("rich", "psutil", "pygments")
_PLUGINS = "PYDANTIC_DISABLE_PLUGINS"


def load(name: str) -> ModuleType:
    """Import a module without what it imports only if it is there."""
    hidden = [one for one in _UNWANTED if one not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden, cast("ModuleType", None)))  # importing it is an ImportError meanwhile
    try:
        return import_module(name)
    finally:
        for one in hidden:
            del sys.modules[one]


gc.disable()
os.environ.setdefault(_PLUGINS, "__all__")
load("structlog")
