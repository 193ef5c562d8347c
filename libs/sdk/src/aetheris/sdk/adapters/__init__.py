"""Tools of Aetheris for agents of other frameworks (docs/adapters.md); each framework has a module here."""

from aetheris.sdk.adapters.run_tools import CallAnswer, RunSuspended, RunTools

__all__ = ["CallAnswer", "RunSuspended", "RunTools"]
