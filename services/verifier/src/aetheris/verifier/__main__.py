"""`python -m aetheris.verifier`."""

import sys

import aetheris.runtime.process.lean  # noqa: F401  # pyright: ignore[reportUnusedImport]  before all others
from aetheris.runtime.process import lifecycle
from aetheris.runtime.process.settings import load
from aetheris.verifier.app import serve
from aetheris.verifier.settings import VerifierSettings

if __name__ == "__main__":
    sys.exit(lifecycle.run(lambda stop: serve(load(VerifierSettings), stop), service="verifier"))
