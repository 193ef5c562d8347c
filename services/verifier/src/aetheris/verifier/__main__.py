"""`python -m aetheris.verifier`."""

import os
import sys
from asyncio import Event

import aetheris.runtime.process.lean  # noqa: F401  # pyright: ignore[reportUnusedImport]  before all others
from aetheris.runtime.process import lifecycle
from aetheris.runtime.process.settings import load
from aetheris.verifier.apart import refuse_tools
from aetheris.verifier.app import serve
from aetheris.verifier.settings import VerifierSettings


async def _main(stop: Event) -> None:
    refuse_tools(os.environ)
    await serve(load(VerifierSettings), stop)


if __name__ == "__main__":
    sys.exit(lifecycle.run(_main, service="verifier"))
