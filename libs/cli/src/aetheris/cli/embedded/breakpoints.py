"""What `breakpoint()` does in a tool of `aetheris worker`: it asks at the terminal, whoever hears what tools print."""

import inspect
import pdb
import sys
from typing import Any

HOOK = f"{__name__}.stop"
"""As PYTHONBREAKPOINT names it."""


def stop(*_: Any, **__: Any) -> None:
    """Stop in the caller's frame."""
    here = inspect.currentframe()
    pdb.Pdb(stdin=sys.__stdin__, stdout=sys.__stdout__).set_trace(here.f_back if here is not None else None)
