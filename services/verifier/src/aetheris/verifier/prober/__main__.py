"""`python -m aetheris.verifier.prober`."""

import os
import sys
from asyncio import Event

import aetheris.runtime.process.lean  # noqa: F401  # pyright: ignore[reportUnusedImport]  before all others
from aetheris.runtime.process import lifecycle
from aetheris.runtime.process.settings import load
from aetheris.verifier.apart import refuse_keys
from aetheris.verifier.prober.app import serve
from aetheris.verifier.prober.settings import ProberSettings


async def _main(stop: Event) -> None:
    refuse_keys(os.environ)
    await serve(load(ProberSettings), stop)


if __name__ == "__main__":
    sys.exit(lifecycle.run(_main, service="prober"))
