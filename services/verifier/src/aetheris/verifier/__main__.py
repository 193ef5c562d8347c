"""`python -m aetheris.verifier`."""

import sys

from aetheris.streams import lifecycle
from aetheris.verifier.app import serve
from aetheris.verifier.settings import VerifierSettings

if __name__ == "__main__":
    sys.exit(lifecycle.run(lambda stop: serve(VerifierSettings.model_validate({}), stop), service="verifier"))
